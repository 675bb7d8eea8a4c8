"""Runs in the tables: their leases, and what is written under them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import structlog
from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    bindparam,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from antiphon.principal import Principal
from antiphon.store import endings, events, large_items, schema
from antiphon.store.claims import Claimed, Wanted, claim, load
from antiphon.store.failures import Corrupt
from antiphon.store.items import is_sane
from antiphon.store.lines import CHUNK, BlobsWanted
from antiphon.store.prepared import Prepared, Values
from antiphon.store.records import ACTIVE, Append, Heartbeat, Lease, Run
from antiphon.store.session import notify
from antiphon.store.shared import Shared

_logger = structlog.get_logger("antiphon.store")

_RESPONSES = schema.responses
#: A run that cannot be read is left for so long before it fails, as the right keys may be found.
_UNREADABLE_SECONDS = 3600.0

# Not `in_`, which is no fixed text.
_IS_ACTIVE = or_(*(_RESPONSES.c.status == literal_column(f"'{status}'") for status in ACTIVE))
_HELD = (
    _RESPONSES.c.key == bindparam("at"),
    _RESPONSES.c.fence == bindparam("by", type_=BigInteger),
    _RESPONSES.c.next_event == bindparam("number", type_=BigInteger),
    _IS_ACTIVE,
)
_APPEND = Prepared(
    update(_RESPONSES)
    .where(*_HELD)
    .values(
        next_event=_RESPONSES.c.next_event + bindparam("num_events", type_=BigInteger),
        event_bytes=_RESPONSES.c.event_bytes + bindparam("num_bytes", type_=BigInteger),
        published=or_(_RESPONSES.c.published, bindparam("output", type_=Boolean)),
    )
    .returning(
        _RESPONSES.c.owner,
        _RESPONSES.c.first_event,
        _RESPONSES.c.event_bytes,
        _RESPONSES.c.status,
        _RESPONSES.c.lease_until,
    )
)
# Seldom, as there is an index over both.
_PROLONG = Prepared(
    update(_RESPONSES)
    .where(_RESPONSES.c.key == bindparam("at"))
    .values(status=literal_column("'in_progress'"), lease_until=bindparam("until"))
)
# An end changes the row as a whole, and once.
_ENDING = Prepared(endings.ROW.where(*_HELD).with_for_update(key_share=True))


class _WantedBy(Exception):
    """Large items of an owner must be put where blobs are first."""

    def __init__(self, owner: Principal, contents: Sequence[bytes]) -> None:
        super().__init__(len(contents))
        self.owner = owner
        self.contents = contents


class SqlRuns:
    """Implements `base.Runs`. With `announce` there is a row of `deliveries` for the end of each
    background run."""

    def __init__(self, shared: Shared, *, announce: bool = False) -> None:
        self._shared = shared
        self._announce = announce

    async def claim(
        self, worker: str, models: Sequence[str] | None, held: Sequence[Lease] = ()
    ) -> Run | None:
        keys = [lease.key for lease in held]
        return await self._claim(worker, Wanted(models=models, held=keys))

    async def claim_queued(self, worker: str, response_id: str) -> Run | None:
        if not is_sane(response_id):
            return None
        return await self._claim(worker, Wanted(response_id=response_id))

    async def append(self, batch: Sequence[Append]) -> Sequence[Lease]:
        # All processes lock rows in the same order.
        batch = sorted(
            (entry for entry in batch if entry.frames or entry.end is not None),
            key=lambda entry: entry.lease.key,
        )
        durable = any(entry.durable or entry.end is not None for entry in batch)
        ready: frozenset[str] = frozenset()
        while batch:
            work = partial(self._append, batch, ready)
            try:
                lost = await self._shared.db.write(work, durable=durable)
            except _WantedBy as wanted:
                ready |= await large_items.put(self._shared, wanted.owner, wanted.contents)
                continue
            self._count(entry for entry in batch if entry.lease not in lost)
            return lost
        return []

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> Heartbeat:
        if not leases:
            return Heartbeat()
        return await self._shared.db.write(partial(self._beat, worker, leases))

    async def release(self, lease: Lease) -> None:
        def work(connection: Connection) -> None:
            # Also who has the lease still must not write any more.
            released = connection.execute(
                update(_RESPONSES)
                .where(_RESPONSES.c.key == lease.key, _RESPONSES.c.fence == lease.fence, _IS_ACTIVE)
                .values(worker=None, lease_until=None, fence=lease.fence + 1)
            )
            if released.rowcount:
                notify(connection, "queue")

        await self._shared.db.write(work)

    # --- claiming ---

    async def _claim(self, worker: str, wanted: Wanted) -> Run | None:
        shared = self._shared
        while True:
            claimed = await shared.db.write(partial(claim, shared, worker, wanted))
            if claimed is None:
                return None
            shared.counters.takeovers += claimed.taken_over
            try:
                run = await shared.db.read(partial(load, shared, claimed))
            except Corrupt as error:
                await self._leave(claimed, error)
                continue
            if run is not None:
                return run

    async def _leave(self, claimed: Claimed, error: Corrupt) -> None:
        """Leave a run that cannot be read: it is claimed again when the lease ends, and in the end
        it fails."""
        lease = claimed.lease
        _logger.error("run unreadable", response=lease.response_id, reason=str(error))
        if self._shared.clock() < claimed.created_at + _UNREADABLE_SECONDS:
            return
        await self._shared.db.write(
            partial(endings.write_failure, shared=self._shared, lease=lease), durable=True
        )

    # --- in a transaction ---

    def _append(
        self, batch: Sequence[Append], ready: frozenset[str], connection: Connection
    ) -> list[Lease]:
        ends = [entry for entry in batch if entry.end is not None]
        rows = _ENDING.each(connection, [_held(entry) for entry in ends])
        ending = [(entry, row) for entry, row in zip(ends, rows, strict=True) if row is not None]
        lost = [entry.lease for entry, row in zip(ends, rows, strict=True) if row is None]
        lost += self._go_on(connection, [entry for entry in batch if entry.end is None])
        # Here too, of owners.
        for entry, row in sorted(ending, key=lambda pair: pair[1].owner):
            self._end(connection, entry, row, ready)
        return lost

    def _go_on(self, connection: Connection, batch: Sequence[Append]) -> list[Lease]:
        """Append to runs that go on. The leases that were lost."""
        states = _APPEND.each(
            connection,
            [
                {
                    **_held(entry),
                    "num_events": len(entry.frames),
                    "num_bytes": sum(map(len, entry.frames)),
                    "output": entry.published,
                }
                for entry in batch
            ],
        )
        held = [
            (entry, state) for entry, state in zip(batch, states, strict=True) if state is not None
        ]
        rows: list[Values] = []
        for entry, state in held:
            rows += self._rows(connection, entry, state.owner)
        events.write(connection, rows)
        self._prolong(connection, held)
        for entry, state in held:
            kept = self._trimmed(
                connection, entry, state.owner, state.first_event, state.event_bytes
            )
            if kept.first != state.first_event:
                connection.execute(
                    update(_RESPONSES).where(_RESPONSES.c.key == entry.lease.key),
                    {"first_event": kept.first, "event_bytes": kept.num_bytes},
                )
            notify(connection, entry.lease.response_id)
        return [entry.lease for entry, state in zip(batch, states, strict=True) if state is None]

    def _prolong(self, connection: Connection, held: Iterable[tuple[Append, Any]]) -> None:
        now = self._shared.clock()
        seconds = self._shared.limits.lease_seconds
        _PROLONG.many(
            connection,
            [
                {"at": entry.lease.key, "until": now + seconds}
                for entry, state in held
                if state.status != "in_progress" or not _lasts(state, now + 0.9 * seconds)
            ],
        )

    def _rows(self, connection: Connection, entry: Append, owner: int) -> Iterable[Values]:
        box = self._shared.owners.of_key(connection, owner).box
        lease = entry.lease
        return events.rows_of(box, lease.key, lease.response_id, entry.first, entry.frames)

    def _trimmed(
        self, connection: Connection, entry: Append, owner: int, first: int, num_bytes: int
    ) -> events.Kept:
        """What is kept of a run's events, of which `num_bytes` are there now."""
        kept = events.Kept(first, entry.first + len(entry.frames), num_bytes)
        if not entry.frames:
            return kept
        box = self._shared.owners.of_key(connection, owner).box
        # Even the quickest reader has not got those of this commit yet.
        return events.trimmed(
            connection, entry.lease.key, kept, self._shared.limits, box, before=entry.first
        )

    def _end(self, connection: Connection, entry: Append, row: Any, ready: frozenset[str]) -> None:
        assert entry.end is not None
        events.write(connection, list(self._rows(connection, entry, row.owner)))
        num_bytes = row.event_bytes + sum(map(len, entry.frames))
        kept = self._trimmed(connection, entry, row.owner, row.first_event, num_bytes)
        try:
            endings.write_end(
                connection,
                self._shared,
                entry,
                row,
                kept,
                ready=ready,
                announce=self._announce,
            )
        except BlobsWanted as wanted:
            raise _WantedBy(entry.lease.owner, wanted.contents) from None

    def _beat(self, worker: str, leases: Sequence[Lease], connection: Connection) -> Heartbeat:
        until = self._shared.clock() + self._shared.limits.lease_seconds
        cancelled: list[str] = []
        missing = {lease.key: lease for lease in leases}
        for begin in range(0, len(leases), CHUNK):
            held = [(lease.key, lease.fence) for lease in leases[begin : begin + CHUNK]]
            for key, cancel_requested in connection.execute(
                update(_RESPONSES)
                .where(
                    # By the keys, too: not every database looks for pairs by them.
                    _RESPONSES.c.key.in_(key for key, _ in held),
                    tuple_(_RESPONSES.c.key, _RESPONSES.c.fence).in_(held),
                    _RESPONSES.c.worker == worker,
                    _IS_ACTIVE,
                )
                .values(lease_until=until)
                .returning(_RESPONSES.c.key, _RESPONSES.c.cancel_requested)
            ):
                lease = missing.pop(key)
                if cancel_requested:
                    cancelled.append(lease.response_id)
        return Heartbeat(cancelled, _lost(connection, missing))

    def _count(self, entries: Iterable[Append]) -> None:
        counters = self._shared.counters
        for entry in entries:
            counters.events += len(entry.frames)
            counters.event_bytes += sum(map(len, entry.frames))


def _lasts(state: Any, until: float) -> bool:
    return state.lease_until is not None and state.lease_until > until


def _held(entry: Append) -> dict[str, Any]:
    """What `_HELD` is given."""
    return {"at": entry.lease.key, "by": entry.lease.fence, "number": entry.first}


def _lost(connection: Connection, missing: dict[int, Lease]) -> list[str]:
    """Those of some leases that others have, or whose response is gone, but not of runs that ended
    under them."""
    keys = sorted(missing)
    ended: set[int] = set()
    for begin in range(0, len(keys), CHUNK):
        rows: Any = connection.execute(
            select(_RESPONSES.c.key, _RESPONSES.c.fence).where(
                _RESPONSES.c.key.in_(keys[begin : begin + CHUNK]), ~_IS_ACTIVE
            )
        )
        ended |= {key for key, fence in rows if missing[key].fence == fence}
    return [lease.response_id for key, lease in missing.items() if key not in ended]
