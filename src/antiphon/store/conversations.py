"""Stored conversations in SQL."""

import secrets
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson
from sqlalchemy import Connection, Row, insert, literal, select, update

from antiphon.principal import Principal
from antiphon.store import conversation_rows, large_items, rows, schema
from antiphon.store.failures import ConversationBusy, NotFound, TooLarge
from antiphon.store.items import is_sane, object_of
from antiphon.store.lines import new_line
from antiphon.store.owners import Owner
from antiphon.store.pages import page
from antiphon.store.records import Conversation, History, ItemBody, Order, Page
from antiphon.store.removal import prune_lines
from antiphon.store.shared import Shared

_CONVERSATIONS = schema.conversations
_PLACES = schema.line_items
_ITEMS = schema.items


class SqlConversations:
    """Implements `Conversations`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._db = shared.db

    async def create(
        self, principal: Principal, metadata: Mapping[str, str], items: Sequence[ItemBody]
    ) -> Conversation:
        id = f"conv_{secrets.token_hex(16)}"
        now = self._shared.clock()

        def work(connection: Connection, ready: frozenset[str]) -> None:
            owner = self._shared.owners.locked(connection, principal)
            extended = self._shared.lines.extend(connection, owner, None, 0, items, ready=ready)
            self._check_size(extended.num_bytes)
            connection.execute(
                insert(_CONVERSATIONS),
                {
                    "id": id,
                    "owner": owner.key,
                    "line": extended.line,
                    "length": extended.end,
                    "metadata": _sealed(owner, id, metadata),
                    "created_at": now,
                    "used_at": now,
                },
            )

        await large_items.write(self._shared, principal, work)
        return Conversation(id, int(now), dict(metadata))

    async def retrieve(self, principal: Principal, conversation_id: str) -> Conversation:
        def work(connection: Connection) -> Conversation:
            owner, row = self._find(connection, principal, conversation_id)
            return _opened(owner, row)

        return await self._db.read(work)

    async def update(
        self, principal: Principal, conversation_id: str, metadata: Mapping[str, str]
    ) -> Conversation:
        def work(connection: Connection) -> Conversation:
            owner, row = self._lock(connection, principal, conversation_id)
            sealed = _sealed(owner, conversation_id, metadata)
            self._change(connection, row, metadata=sealed)
            return Conversation(conversation_id, int(row.created_at), dict(metadata))

        return await self._db.write(work)

    async def delete(self, principal: Principal, conversation_id: str) -> None:
        def work(connection: Connection) -> int:
            _, row = self._idle(connection, principal, conversation_id)
            conversation_rows.remove_conversations(connection, {row.key: row.line})
            return int(row.line)

        self._shared.lines.forget([await self._db.write(work)])

    async def history_bytes(self, principal: Principal, conversation_id: str) -> int:
        def work(connection: Connection) -> int:
            _, row = self._find(connection, principal, conversation_id)
            return conversation_rows.num_bytes(connection, row)

        return await self._db.read(work)

    async def history(self, principal: Principal, conversation_id: str) -> History:
        def work(connection: Connection) -> tuple[History, bool]:
            owner, row = self._find(connection, principal, conversation_id)
            if conversation_rows.is_busy(connection, row):
                raise ConversationBusy(conversation_id)
            items, known = self._shared.lines.read_prefix(connection, row.line, row.length, owner)
            return History(items), known

        history, known = await self._db.read(work)
        if known:
            self._shared.counters.hits += 1
        else:
            self._shared.counters.misses += 1
        return history

    async def add_items(
        self, principal: Principal, conversation_id: str, items: Sequence[ItemBody]
    ) -> Sequence[ItemBody]:
        def work(connection: Connection, ready: frozenset[str]) -> Sequence[ItemBody]:
            owner, row = self._idle(connection, principal, conversation_id)
            before = conversation_rows.num_bytes(connection, row)
            extended = self._shared.lines.extend(
                connection, owner, row.line, row.length, items, ready=ready
            )
            self._check_size(before + extended.num_bytes)
            self._change(connection, row, line=extended.line, length=extended.end)
            if extended.line != row.line:
                prune_lines(connection, [row.line])
            return extended.bodies

        return await large_items.write(self._shared, principal, work)

    async def list_items(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        def work(connection: Connection) -> Page:
            owner, row = self._find(connection, principal, conversation_id)
            return page(
                connection,
                self._shared.lines,
                owner,
                (row.line, row.length),
                after=after,
                limit=limit,
                order=order,
            )

        return await self._db.read(work)

    async def item(self, principal: Principal, conversation_id: str, item_id: str) -> ItemBody:
        def work(connection: Connection) -> ItemBody:
            owner, row = self._find(connection, principal, conversation_id)
            places = _places(connection, owner, row, item_id)
            return self._shared.lines.read_line(
                connection, row.line, places[0], places[0] + 1, owner
            )[0]

        return await self._db.read(work)

    async def delete_item(
        self, principal: Principal, conversation_id: str, item_id: str
    ) -> Conversation:
        def work(connection: Connection) -> tuple[Conversation, int]:
            owner, row = self._idle(connection, principal, conversation_id)
            places = _places(connection, owner, row, item_id)
            length = row.length - len(places)
            line = new_line(connection, owner, length)
            bounds = [-1, *places, row.length]
            for removed, (above, below) in enumerate(pairwise(bounds)):
                _copy(connection, row.line, line, above, below, removed)
            self._change(connection, row, line=line, length=length)
            prune_lines(connection, [row.line])
            return _opened(owner, row), row.line

        conversation, line = await self._db.write(work)
        self._shared.lines.forget([line])
        return conversation

    def _find(
        self, connection: Connection, principal: Principal, id: str
    ) -> tuple[Owner, Row[Any]]:
        owner = rows.owner_of(connection, self._shared.owners, principal, id)
        return owner, conversation_rows.find(connection, owner, id)

    def _lock(
        self, connection: Connection, principal: Principal, id: str
    ) -> tuple[Owner, Row[Any]]:
        owner = rows.owner_of(connection, self._shared.owners, principal, id)
        return owner, conversation_rows.lock(connection, owner, id)

    def _idle(
        self, connection: Connection, principal: Principal, id: str
    ) -> tuple[Owner, Row[Any]]:
        """A locked conversation. Raises `ConversationBusy` if a response is being made in it."""
        owner, row = self._lock(connection, principal, id)
        if conversation_rows.is_busy(connection, row):
            raise ConversationBusy(id)
        return owner, row

    def _change(self, connection: Connection, row: Row[Any], **values: Any) -> None:
        values["used_at"] = self._shared.clock()
        connection.execute(
            update(_CONVERSATIONS).where(_CONVERSATIONS.c.key == row.key).values(**values)
        )

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self._shared.limits.entry_bytes:
            raise TooLarge(self._shared.limits.entry_bytes)


def _places(connection: Connection, owner: Owner, row: Row[Any], item_id: str) -> list[int]:
    """Where an item stands in a conversation, at least once. Raises `NotFound`."""
    places: list[int] = []
    if is_sane(item_id):
        places = list(
            connection.execute(
                select(_PLACES.c.position)
                .join_from(_PLACES, _ITEMS, _PLACES.c.item == _ITEMS.c.key)
                .where(
                    _ITEMS.c.owner == owner.key,
                    _ITEMS.c.id == item_id,
                    _PLACES.c.line == row.line,
                    _PLACES.c.position < row.length,
                )
                .order_by(_PLACES.c.position)
            ).scalars()
        )
    if not places:
        raise NotFound(item_id)
    return places


def _copy(
    connection: Connection, source: int, target: int, above: int, below: int, back: int
) -> None:
    """Copy the places strictly between two to another line, `back` places further to the front."""
    connection.execute(
        insert(_PLACES).from_select(
            ["line", "position", "item"],
            select(literal(target), _PLACES.c.position - back, _PLACES.c.item).where(
                _PLACES.c.line == source, _PLACES.c.position > above, _PLACES.c.position < below
            ),
        )
    )


def _sealed(owner: Owner, id: str, metadata: Mapping[str, str]) -> bytes:
    return owner.box.seal(orjson.dumps(dict(metadata)), f"conversation:{id}")


def _opened(owner: Owner, row: Row[Any]) -> Conversation:
    place = f"conversation:{row.id}"
    metadata = object_of(owner.box.open(row.metadata, place), place)
    return Conversation(row.id, int(row.created_at), metadata)
