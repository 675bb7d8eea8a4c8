"""Calls and their arguments, in the form that chat templates take."""

import json
import math
from collections.abc import Callable
from typing import Any, Literal, NoReturn

from antiphon.turn import Call

Write = Callable[[str], str]

_DEEPEST = 64  # Layers that any template can put into JSON.


def call_json(call: Call, form: Literal["object", "json"] | None, write: Write) -> dict[str, Any]:
    """A call as an element of `tool_calls`, `write` applied to every text in it.

    Arguments that are no JSON object, or one that would not come out the same, and a custom tool's
    input are shown as an object that has them as `arguments` or `input`.
    """
    arguments: Any
    if form == "object":
        arguments = written(_object(call), write)
    elif call.custom:
        arguments = write(json.dumps(_object(call), ensure_ascii=False))
    else:
        arguments = write(call.arguments or "{}")
    return {
        "id": write(call.call_id),
        "type": "function",
        "function": {"name": write(call.name), "arguments": arguments},
    }


def _object(call: Call) -> dict[str, Any]:
    if call.custom:
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(
            call.arguments,
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse,
            parse_float=_finite,
        )
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or _deeper(value, _DEEPEST):
        return {"arguments": call.arguments}
    return value


def _deeper(value: Any, depth: int) -> bool:
    """Whether objects and lists are nested in more than so many layers."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper(one, depth - 1) for one in inner)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key comes twice")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def written(value: Any, write: Write) -> Any:
    """A JSON value with `write` applied to every text and key in it."""
    match value:
        case str():
            return write(value)
        case dict():
            return {write(key): written(inner, write) for key, inner in value.items()}
        case list():
            return [written(inner, write) for inner in value]
        case _:
            return value
