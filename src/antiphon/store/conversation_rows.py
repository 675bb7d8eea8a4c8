"""Rows of conversations: found, locked and changed by their owners."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, select, update

from antiphon.store import schema
from antiphon.store.failures import NotFound
from antiphon.store.items import is_sane
from antiphon.store.owners import Owner
from antiphon.store.records import ACTIVE
from antiphon.store.removal import prune_lines

_CONVERSATIONS = schema.conversations
_RESPONSES = schema.responses
_PLACES = schema.line_items
_ITEMS = schema.items

_BY_ID = select(_CONVERSATIONS).where(
    _CONVERSATIONS.c.id == bindparam("id"), _CONVERSATIONS.c.owner == bindparam("owner")
)
_LOCKED = _BY_ID.with_for_update(key_share=True)
_SUM = (
    select(func.coalesce(func.sum(_ITEMS.c.size), 0))
    .join_from(_PLACES, _ITEMS, _PLACES.c.item == _ITEMS.c.key)
    .where(
        _PLACES.c.line == bindparam("line"),
        _PLACES.c.position >= bindparam("begin"),
        _PLACES.c.position < bindparam("end"),
    )
)
_LATEST = (
    select(_RESPONSES.c.output_end, _RESPONSES.c.total_bytes)
    .where(_RESPONSES.c.line == bindparam("line"))
    .order_by(_RESPONSES.c.key.desc())
    .limit(1)
)


def find(connection: Connection, owner: Owner, id: str) -> Row[Any]:
    """The row of a conversation. Raises `NotFound`."""
    return _found(connection, _BY_ID, owner, id)


def lock(connection: Connection, owner: Owner, id: str) -> Row[Any]:
    """The row of a conversation, which nobody changes until the transaction ends. Raises
    `NotFound`."""
    return _found(connection, _LOCKED, owner, id)


def is_busy(connection: Connection, row: Row[Any]) -> bool:
    """Whether a response is being made in it, not only was when its process died."""
    if row.active is None:
        return False
    status = connection.execute(
        select(_RESPONSES.c.status).where(
            _RESPONSES.c.id == row.active, _RESPONSES.c.owner == row.owner
        )
    ).scalar()
    return status in ACTIVE


def num_bytes(connection: Connection, row: Row[Any]) -> int:
    """The bytes of all items."""
    # What the latest response knows is not counted again, or each turn would cost more.
    latest = connection.execute(_LATEST, {"line": row.line}).first()
    begin, before = 0, 0
    if latest is not None and latest.output_end <= row.length:
        begin, before = latest.output_end, latest.total_bytes
    stretch = {"line": row.line, "begin": begin, "end": row.length}
    added: int = connection.execute(_SUM, stretch).scalar_one()
    return before + int(added)


def set_active(connection: Connection, key: int, response_id: str) -> None:
    """Note that a response is being made in it."""
    connection.execute(
        update(_CONVERSATIONS).where(_CONVERSATIONS.c.key == key), {"active": response_id}
    )


def _found(connection: Connection, query: Any, owner: Owner, id: str) -> Row[Any]:
    row: Row[Any] | None = None
    if is_sane(id):
        row = connection.execute(query, {"id": id, "owner": owner.key}).first()
    if row is None:
        raise NotFound(id)
    return row


def remove_conversations(connection: Connection, lines: Mapping[int, int]) -> None:
    """Remove conversations and what only they need. `lines` has their lines by their keys."""
    connection.execute(delete(_CONVERSATIONS).where(_CONVERSATIONS.c.key.in_(lines)))
    prune_lines(connection, set(lines.values()))
