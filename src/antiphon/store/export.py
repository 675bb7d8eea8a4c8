"""Everything that can be read, for people who take it elsewhere.

    {"object": "response", "owner", "response", "input"[, "history"]}
    {"object": "conversation", "owner", "id", "created_at", "metadata", "items"}
    {"object": "unreadable", "owner", "id", "reason"}

`input` is what a response itself was given. What came before it is the input and output of the
response that it continues, or the items of its conversation; `history` is there only where that is
gone, or a chain of a thousand responses would be written out a thousand times.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from antiphon.principal import Principal
from antiphon.store import rows, schema
from antiphon.store.failures import Corrupt, NotFound
from antiphon.store.items import object_of
from antiphon.store.owners import Owner
from antiphon.store.rows import record_of, unexpired
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
#: How many one transaction reads.
_BATCH = 20

Entry = Mapping[str, Any]
_Read = Callable[[Connection, Owner, Row[Any]], Entry]


async def export(shared: Shared, principal: Principal | None = None) -> AsyncIterator[Entry]:
    """All responses and conversations, of one owner or of everybody, in the order they were made.

    Raises `NotFound` if nothing is stored for the principal. What is made meanwhile may be missing.
    """
    reading = _Reading(shared)
    responses = select(_RESPONSES)
    conversations = select(_CONVERSATIONS)
    if principal is not None:
        owner = await shared.db.read(
            lambda connection: rows.owner_of(connection, shared.owners, principal, principal.id)
        )
        responses = responses.where(_RESPONSES.c.owner == owner.key)
        conversations = conversations.where(_CONVERSATIONS.c.owner == owner.key)
    parts: tuple[tuple[Select[Any], Any, _Read], ...] = (
        (responses.where(unexpired(shared.clock())), _RESPONSES.c.key, reading.response),
        (conversations, _CONVERSATIONS.c.key, reading.conversation),
    )
    for query, key, read in parts:
        last = 0
        while True:
            batch = query.where(key > last).order_by(key).limit(_BATCH)
            entries, last = await shared.db.read(partial(reading.batch, query=batch, read=read))
            for entry in entries:
                yield entry
            if not entries:
                break


class _Reading:
    def __init__(self, shared: Shared) -> None:
        self._owners = shared.owners
        self._lines = shared.lines
        self._clock = shared.clock

    def batch(
        self, connection: Connection, query: Select[Any], read: _Read
    ) -> tuple[list[Entry], int]:
        """The entries of some rows, and the key of the last."""
        entries = []
        last = 0
        for row in connection.execute(query).all():
            last = row.key
            owner = self._owners.of_key(connection, row.owner)
            try:
                entries.append(read(connection, owner, row))
            except Corrupt as error:
                entries.append(
                    {
                        "object": "unreadable",
                        "owner": owner.id,
                        "id": row.id,
                        "reason": str(error),
                    }
                )
        return entries, last

    def response(self, connection: Connection, owner: Owner, row: Row[Any]) -> Entry:
        record = record_of(connection, self._lines, owner, row, self._clock())
        read = self._lines.read_line
        entry: dict[str, Any] = {
            "object": "response",
            "owner": owner.id,
            "response": record.response,
            "input": read(connection, row.line, row.own_begin, row.input_end, owner),
        }
        if row.own_begin and not self._has_origin(connection, owner, row, record.response):
            entry["history"] = read(connection, row.line, 0, row.own_begin, owner)
        return entry

    def conversation(self, connection: Connection, owner: Owner, row: Row[Any]) -> Entry:
        place = f"conversation:{row.id}"
        return {
            "object": "conversation",
            "owner": owner.id,
            "id": row.id,
            "created_at": int(row.created_at),
            "metadata": object_of(owner.box.open(row.metadata, place), place),
            "items": self._lines.read_line(connection, row.line, 0, row.length, owner),
        }

    def _has_origin(
        self, connection: Connection, owner: Owner, row: Row[Any], response: Mapping[str, Any]
    ) -> bool:
        """Whether what a response continues is exported too."""
        if row.conversation is not None:
            return True
        try:
            rows.find(connection, owner, response["previous_response_id"] or "", self._clock())
        except NotFound:
            return False
        return True
