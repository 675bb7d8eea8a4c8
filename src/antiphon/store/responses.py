"""Stored responses in SQL."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, exists, or_, select, update

from antiphon.principal import Principal
from antiphon.store import large_items, rows, schema
from antiphon.store.acceptance import Acceptance, check_continuable, made_with
from antiphon.store.events import read_events
from antiphon.store.failures import NotFound, Refused, StillActive, StoreUnavailable
from antiphon.store.items import is_sane
from antiphon.store.lines import chunks
from antiphon.store.owners import Owner
from antiphon.store.pages import page
from antiphon.store.records import (
    Accepted,
    EventPage,
    History,
    Idempotency,
    ItemBody,
    NewResponse,
    Order,
    Page,
    Record,
)
from antiphon.store.removal import remove_responses
from antiphon.store.session import notify
from antiphon.store.shared import Shared

T = TypeVar("T")

#: When a response was used is noted no more often.
_USE_SECONDS = 60.0

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
_PLACES = schema.line_items
_ITEMS = schema.items

# What nothing refers to that is there is not there either.
_READABLE = or_(
    exists().where(
        and_(
            _PLACES.c.item == _ITEMS.c.key,
            _RESPONSES.c.line == _PLACES.c.line,
            _RESPONSES.c.output_end > _PLACES.c.position,
            or_(_RESPONSES.c.expires_at.is_(None), _RESPONSES.c.expires_at > bindparam("now")),
        )
    ),
    exists().where(
        and_(
            _PLACES.c.item == _ITEMS.c.key,
            _CONVERSATIONS.c.line == _PLACES.c.line,
            _CONVERSATIONS.c.length > _PLACES.c.position,
        )
    ),
)
_ITEMS_BY_ID = select(_ITEMS.c.id, _ITEMS.c.body, _ITEMS.c.blob).where(
    _ITEMS.c.owner == bindparam("owner"),
    _ITEMS.c.id.in_(bindparam("ids", expanding=True)),
    _READABLE,
)


class SqlResponses:
    """Implements `Responses`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._db = shared.db

    async def history(self, principal: Principal, response_id: str) -> History:
        def work(connection: Connection, owner: Owner, row: Row[Any]) -> tuple[History, bool]:
            check_continuable(row)
            items, known = self._shared.lines.read_prefix(
                connection, row.line, row.output_end, owner
            )
            return History(items, row.depth + 1), known

        history, known = await self._read(principal, response_id, work)
        if known:
            self._shared.counters.hits += 1
        else:
            self._shared.counters.misses += 1
        return history

    async def history_bytes(self, principal: Principal, response_id: str) -> int:
        return await self._read(principal, response_id, lambda _, __, row: int(row.total_bytes))

    async def items(self, principal: Principal, ids: Sequence[str]) -> Sequence[ItemBody]:
        now = self._shared.clock()

        def work(connection: Connection) -> Sequence[ItemBody]:
            if not ids:
                return []
            owner = rows.owner_of(connection, self._shared.owners, principal, ids[0])
            found: dict[str, ItemBody] = {}
            for chunk in chunks(sorted({id for id in ids if is_sane(id)})):
                values = {"owner": owner.key, "ids": list(chunk), "now": now}
                for row in connection.execute(_ITEMS_BY_ID, values):
                    found[row.id] = self._shared.lines.opened(owner, row.id, row.body, row.blob)
            for id in ids:
                if id not in found:
                    raise NotFound(id)
            return [found[id] for id in ids]

        return await self._db.read(work)

    async def create(self, principal: Principal, new: NewResponse) -> Accepted:
        acceptance = Acceptance(self._shared, principal, new)
        try:
            accepted = await large_items.write(
                self._shared, principal, acceptance.store, durable=new.background
            )
        except Refused:
            self._shared.counters.rejections += 1
            raise
        if accepted.existing is None:
            self._shared.counters.writes += 1
            self._shared.counters.evictions += acceptance.removed.responses
            self._shared.lines.forget(acceptance.removed.lines)
        return accepted

    async def made_with(self, principal: Principal, idempotency: Idempotency) -> str | None:
        shared = self._shared

        def work(connection: Connection) -> str | None:
            owner = shared.owners.owner_of(connection, principal)
            if owner is None:
                return None
            return made_with(connection, owner, idempotency, shared.limits, shared.clock())

        return await self._db.read(work)

    async def retrieve(self, principal: Principal, response_id: str) -> Record:
        now = self._shared.clock()
        return await self._read(
            principal,
            response_id,
            lambda connection, owner, row: rows.record_of(
                connection, self._shared.lines, owner, row, now
            ),
        )

    async def delete(self, principal: Principal, response_id: str) -> None:
        now = self._shared.clock()

        def work(connection: Connection) -> frozenset[int]:
            owner = rows.owner_of(connection, self._shared.owners, principal, response_id)
            row = rows.lock(connection, owner, response_id, now)
            if rows.is_active(row):
                raise StillActive(response_id)
            return remove_responses(connection, [row.key]).lines

        self._shared.lines.forget(await self._db.write(work))

    async def input_items(
        self,
        principal: Principal,
        response_id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        return await self._read(
            principal,
            response_id,
            lambda connection, owner, row: page(
                connection,
                self._shared.lines,
                owner,
                (row.line, row.input_end),
                after=after,
                limit=limit,
                order=order,
            ),
        )

    async def request_cancel(self, principal: Principal, response_id: str) -> Record:
        now = self._shared.clock()

        def work(connection: Connection) -> Record:
            owner = rows.owner_of(connection, self._shared.owners, principal, response_id)
            row = rows.lock(connection, owner, response_id, now)
            if rows.is_active(row) and not row.cancel_requested:
                connection.execute(
                    update(_RESPONSES).where(_RESPONSES.c.key == row.key),
                    {"cancel_requested": True},
                )
                notify(connection, "cancel", response_id)
                row = rows.find(connection, owner, response_id, now)
            return rows.record_of(connection, self._shared.lines, owner, row, now)

        return await self._db.write(work)

    async def events(
        self, principal: Principal, response_id: str, number: int, *, limit: int = 500
    ) -> EventPage:
        now = self._shared.clock()

        def work(connection: Connection, owner: Owner, row: Row[Any]) -> EventPage:
            if not rows.is_log_kept(row, now):
                return EventPage(row.next_event, (), True)
            return read_events(connection, row, number, limit, owner.box)

        return await self._read(principal, response_id, work)

    async def _read(
        self,
        principal: Principal,
        response_id: str,
        work: Callable[[Connection, Owner, Row[Any]], T],
    ) -> T:
        """The result of `work` on the row of a response. Raises `NotFound`."""
        now = self._shared.clock()

        def read(connection: Connection) -> tuple[T, Row[Any]]:
            owner = rows.owner_of(connection, self._shared.owners, principal, response_id)
            row = rows.find(connection, owner, response_id, now)
            return work(connection, owner, row), row

        result, row = await self._db.read(read)
        if row.used_at < now - _USE_SECONDS:
            # Who can read may do so even where nothing can be written any more.
            with suppress(StoreUnavailable):
                await self._db.write(lambda connection: _use(connection, row.key, now))
        return result


def _use(connection: Connection, key: int, now: float) -> None:
    connection.execute(update(_RESPONSES).where(_RESPONSES.c.key == key), {"used_at": now})
