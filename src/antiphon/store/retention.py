"""How long things are kept: what has expired is removed, a little at a time.

Nothing that has expired can be seen, removed or not. Several processes may sweep at once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, delete, select, tuple_, update

from antiphon.principal import Principal
from antiphon.store import orphans, schema
from antiphon.store.conversation_rows import remove_conversations
from antiphon.store.forgetting import forget
from antiphon.store.lines import CHUNK
from antiphon.store.records import ACTIVE, Swept
from antiphon.store.removal import Removed, prune_lines, remove_items, remove_responses
from antiphon.store.rows import ended
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
_KEYS = schema.idempotency_keys

#: What one transaction removes at most, as nobody else writes meanwhile: responses, and events.
_MAX_RESPONSES = 50
_MAX_EVENTS = 5000
#: How many rows one transaction looks through.
_MAX_LOOKED_AT = 5000
#: A worker that was not seen for so many leases is gone.
_LEASES = 20


class _Find(Protocol):
    def __call__(
        self, connection: Connection, after: int, limit: int
    ) -> tuple[Sequence[int], int | None]: ...


class _Remove(Protocol):
    def __call__(self, connection: Connection, keys: Sequence[int]) -> None: ...


class Sweeper:
    """Removes what is not to be kept."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._db = shared.db

    async def sweep(self) -> Swept:
        """Remove responses and event logs whose time is up, and what nothing refers to."""
        now = self._shared.clock()
        responses = await self._remove(_RESPONSES.c.expires_at <= now)
        self._shared.counters.expirations += responses
        event_logs = await self._repeat(lambda connection: _remove_logs(connection, now))
        await self._repeat(
            lambda connection: _remove_keys(
                connection, now - self._shared.limits.idempotency_seconds
            )
        )
        await self._db.write(
            lambda connection: _remove_workers(
                connection, now - _LEASES * self._shared.limits.lease_seconds
            )
        )
        blobs = await self._remove_orphans(now)
        await self._db.checkpoint()
        return Swept(responses=responses, event_logs=event_logs, blobs=blobs)

    async def prune(self, older_than_seconds: float) -> Swept:
        """Remove ended responses that nobody has used and conversations that nobody has changed for
        so long, and then all that `sweep` does."""
        before = self._shared.clock() - older_than_seconds
        responses = await self._remove(ended(), _RESPONSES.c.used_at <= before)
        conversations = await self._repeat(
            lambda connection: _remove_conversations(connection, before)
        )
        swept = await self.sweep()
        return Swept(
            responses=responses + swept.responses,
            event_logs=swept.event_logs,
            conversations=conversations,
            blobs=swept.blobs,
        )

    async def forget(self, principal: Principal, *, force: bool = False) -> Swept:
        """Remove everything of an owner, the data key included.

        Raises `NotFound` if nothing is stored for them, and `StillActive` if a response is being
        made; with `force`, whoever makes it loses it.
        """
        return await forget(self._shared, principal, force=force)

    async def _remove(self, *which: ColumnElement[bool]) -> int:
        count = 0
        while True:
            removed = await self._db.write(lambda connection: _remove_some(connection, which))
            self._shared.lines.forget(removed.lines)
            count += removed.responses
            if not removed.responses:
                return count

    async def _repeat(self, work: Callable[[Connection], int]) -> int:
        count = 0
        while removed := await self._db.write(work):
            count += removed
        return count

    async def _remove_orphans(self, now: float) -> int:
        kinds: tuple[tuple[_Find, _Remove], ...] = (
            (orphans.longer_lines, prune_lines),
            (orphans.loose_items, remove_items),
        )
        for find, remove in kinds:
            last: int | None = 0
            while last is not None:
                after = last
                keys, last = await self._db.read(partial(find, after=after, limit=_MAX_LOOKED_AT))
                for begin in range(0, len(keys), CHUNK):
                    await self._db.write(partial(remove, keys=keys[begin : begin + CHUNK]))
        blobs = self._shared.lines.blobs
        if blobs is None:
            return 0
        before = now - orphans.BLOB_SECONDS
        return await self._repeat(
            lambda connection: orphans.remove_blobs(connection, blobs, before)
        )


def _remove_some(connection: Connection, which: Sequence[ColumnElement[bool]]) -> Removed:
    return remove_responses(connection, [row.key for row in _some(connection, which)])


def _remove_logs(connection: Connection, now: float) -> int:
    """Remove the events of some ended responses."""
    keys = [
        row.key
        for row in _some(
            connection, (ended(), _RESPONSES.c.log_kept, _RESPONSES.c.log_until <= now)
        )
    ]
    connection.execute(delete(schema.events).where(schema.events.c.response.in_(keys)))
    connection.execute(
        update(_RESPONSES)
        .where(_RESPONSES.c.key.in_(keys))
        .values(log_kept=False, first_event=_RESPONSES.c.next_event, event_bytes=0)
    )
    return len(keys)


def _some(connection: Connection, which: Sequence[ColumnElement[bool]]) -> Sequence[Any]:
    """As many rows of responses as one transaction may remove."""
    rows = connection.execute(
        select(_RESPONSES.c.key, _RESPONSES.c.first_event, _RESPONSES.c.next_event)
        .where(*which)
        .limit(_MAX_RESPONSES)
        .with_for_update(skip_locked=True)
    ).all()
    events = 0
    for index, row in enumerate(rows):
        events += row.next_event - row.first_event
        if events >= _MAX_EVENTS:
            return rows[: index + 1]
    return rows


def _remove_keys(connection: Connection, before: float) -> int:
    rows = connection.execute(
        select(_KEYS.c.owner, _KEYS.c.name).where(_KEYS.c.created_at <= before).limit(CHUNK)
    ).all()
    if rows:
        pairs = [(row.owner, row.name) for row in rows]
        connection.execute(
            delete(_KEYS).where(
                tuple_(_KEYS.c.owner, _KEYS.c.name).in_(pairs), _KEYS.c.created_at <= before
            )
        )
    return len(rows)


def _remove_workers(connection: Connection, before: float) -> None:
    connection.execute(delete(schema.workers).where(schema.workers.c.seen_at <= before))


def _remove_conversations(connection: Connection, before: float) -> int:
    rows = connection.execute(
        select(_CONVERSATIONS.c.key, _CONVERSATIONS.c.line)
        .where(
            _CONVERSATIONS.c.used_at <= before,
            _CONVERSATIONS.c.active.is_(None)
            | _CONVERSATIONS.c.active.not_in(
                select(_RESPONSES.c.id).where(_RESPONSES.c.status.in_(ACTIVE))
            ),
        )
        .limit(_MAX_RESPONSES)
        .with_for_update(skip_locked=True)
    ).all()
    remove_conversations(connection, {row.key: row.line for row in rows})
    return len(rows)
