"""Items as bytes. The id is a column of its own, so what is sealed is an item without it."""

import re
import secrets
from typing import Any, NamedTuple

import orjson

from antiphon.store.failures import Corrupt
from antiphon.store.records import ItemBody

#: What an id must look like to be kept: it is searched for, so it stands in a column as it is.
_SANE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PREFIX = re.compile(r"[a-z]{1,12}(?=_)")
#: Prefixes of ids by the type of the item.
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}


class Content(NamedTuple):
    """An item to be stored: its own id if it has one that is sane, and its bytes without it.

    `plain` is what is sealed, with the fields in their order; `sorted` is the same for the same
    content, whatever the order.
    """

    id: str | None
    plain: bytes
    sorted: bytes


def is_sane(id: object) -> bool:
    """Whether an id may stand in a column."""
    return isinstance(id, str) and _SANE.fullmatch(id) is not None


def content_of(body: ItemBody) -> Content:
    """An item's id and bytes."""
    id = body.get("id")
    rest = {name: value for name, value in body.items() if name != "id"}
    plain = orjson.dumps(rest)
    return Content(
        id if is_sane(id) else None, plain, orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)
    )


def with_id(id: str, body: ItemBody) -> dict[str, Any]:
    """An item under another id."""
    return {"id": id, **{name: value for name, value in body.items() if name != "id"}}


def parsed(id: str, plain: bytes) -> dict[str, Any]:
    """The item that bytes are of. Raises `Corrupt`."""
    return {"id": id, **object_of(plain, f"item:{id}")}


def object_of(plain: bytes, place: str) -> dict[str, Any]:
    """The JSON object that bytes are. Raises `Corrupt`, naming `place`."""
    try:
        value = orjson.loads(plain)
    except orjson.JSONDecodeError as error:
        raise Corrupt(f"{place} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{place} is no JSON object")
    return value


def fresh_id(body: ItemBody) -> str:
    """A new id of the same kind."""
    found = _PREFIX.match(body["id"]) if isinstance(body.get("id"), str) else None
    prefix = found.group() if found else _PREFIXES.get(str(body.get("type")), "item")
    return f"{prefix}_{secrets.token_hex(16)}"
