"""Calls as a model of a dialect would write them."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.formats.dialects.dialect import GEMMA_QUOTE, INPUT_KEY, Dialect, Params
from antiphon.turn import Call

_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}


def spelled(dialect: Dialect, calls: Sequence[Call]) -> str:
    """Calls that are made at once.

    Arguments have to be JSON objects. Mistral's ids are letters and digits of the calls' own, and
    Kimi's count from 0.
    """
    opening, closing = ("[", "]") if dialect.array and len(calls) else ("", "")
    texts = [_call(dialect, call, number) for number, call in enumerate(calls)]
    bare = dialect.bare and dialect.codec != "pythonic"
    section_open = "" if dialect.bare else dialect.section_open
    section_close = "" if dialect.bare else dialect.section_close
    if bare:
        opening = closing = ""
    return section_open + opening + dialect.separator.join(texts) + closing + section_close


def _call(dialect: Dialect, call: Call, number: int) -> str:
    arguments = json.dumps({INPUT_KEY: call.arguments}) if call.custom else call.arguments or "{}"
    id_ = ""
    if dialect.id_open:
        own = "".join(char for char in call.call_id if char.isalnum() and char.isascii())
        id_ = dialect.id_open + (str(number) if "9}" not in dialect.id_pattern else own[-9:])
    value = json.loads(arguments)
    match dialect.codec:
        case "params":
            assert dialect.params is not None
            arguments = "".join(_param(dialect.params, key, value[key]) for key in value)
        case "pythonic":
            arguments = ", ".join(f"{key}={value[key]!r}" for key in value)
        case "gemma":
            arguments = _gemma(value)
    return (
        dialect.before_name
        + call.name
        + id_
        + dialect.after_name
        + arguments
        + dialect.after_arguments
    )


def _param(params: Params, key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    key_end = params.key_end.replace("{string}", json.dumps(isinstance(value, str)))
    key_end = key_end.replace("{type}", _TYPES.get(type(value), "object" if value else "null"))
    return params.open + key + key_end + text + params.close


def _gemma(value: Any) -> str:
    write: Callable[[Any], str] = _gemma
    match value:
        case str():
            return GEMMA_QUOTE[0] + value + GEMMA_QUOTE[0]
        case dict():
            return "{" + ",".join(f"{key}:{write(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(write, value)) + "]"
        case _:
            return json.dumps(value)
