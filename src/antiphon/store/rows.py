"""Rows of responses as their owners see them. What has expired is not there for anybody."""

from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Row, bindparam, or_, select

from antiphon.principal import Principal
from antiphon.spec.types import Response
from antiphon.store import schema
from antiphon.store.failures import NotFound
from antiphon.store.items import is_sane, object_of
from antiphon.store.lines import Lines
from antiphon.store.owners import Owner, Owners
from antiphon.store.records import ACTIVE, Record

_RESPONSES = schema.responses


def unexpired(now: float) -> ColumnElement[bool]:
    """Whether a row of `responses` is there."""
    return or_(_RESPONSES.c.expires_at.is_(None), _RESPONSES.c.expires_at > now)


_BY_ID = select(_RESPONSES).where(
    _RESPONSES.c.id == bindparam("id"),
    _RESPONSES.c.owner == bindparam("owner"),
    or_(_RESPONSES.c.expires_at.is_(None), _RESPONSES.c.expires_at > bindparam("now")),
)
_LOCKED = _BY_ID.with_for_update(key_share=True)
_KEPT = _BY_ID.with_for_update(read=True)


def owner_of(connection: Connection, owners: Owners, principal: Principal, what: str) -> Owner:
    """The owner that a principal is. Raises `NotFound` for `what` if nothing is stored for them."""
    owner = owners.owner_of(connection, principal)
    if owner is None:
        raise NotFound(what)
    return owner


def find(connection: Connection, owner: Owner, id: str, now: float) -> Row[Any]:
    """The row of a response. Raises `NotFound`."""
    return _found(connection, _BY_ID, owner, id, now)


def lock(connection: Connection, owner: Owner, id: str, now: float) -> Row[Any]:
    """The row of a response, which nobody changes until the transaction ends. Raises
    `NotFound`."""
    return _found(connection, _LOCKED, owner, id, now)


def keep(connection: Connection, owner: Owner, id: str, now: float) -> Row[Any]:
    """The row of a response, which nobody deletes until the transaction ends. Raises
    `NotFound`."""
    return _found(connection, _KEPT, owner, id, now)


def is_active(row: Row[Any]) -> bool:
    """Whether a response will still change."""
    return row.status in ACTIVE


def record_of(
    connection: Connection, lines: Lines, owner: Owner, row: Row[Any], now: float
) -> Record:
    """A response with its output. Raises `Corrupt`."""
    place = f"response:{row.id}"
    body = object_of(owner.box.open(row.body, place), place)
    body["status"] = row.status
    body["output"] = lines.read_line(connection, row.line, row.input_end, row.output_end, owner)
    return Record(
        response=cast(Response, body),
        first_event=row.first_event,
        next_event=row.next_event,
        log_kept=is_log_kept(row, now),
        cancel_requested=row.cancel_requested,
    )


def is_log_kept(row: Row[Any], now: float) -> bool:
    """Whether the events of a response are there: always while it is active, then for a while."""
    if is_active(row):
        return True
    return bool(row.log_kept) and (row.log_until is None or row.log_until > now)


def _found(connection: Connection, query: Any, owner: Owner, id: str, now: float) -> Row[Any]:
    row: Row[Any] | None = None
    if is_sane(id):
        row = connection.execute(query, {"id": id, "owner": owner.key, "now": now}).first()
    if row is None:
        raise NotFound(id)
    return row


def ended() -> ColumnElement[bool]:
    """Whether a row of `responses` will not change any more."""
    return _RESPONSES.c.status.not_in(ACTIVE)
