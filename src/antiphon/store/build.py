"""Puts a store together from its parts."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from antiphon.principal import Principal
from antiphon.store.base import Blobs, Store
from antiphon.store.conversations import SqlConversations
from antiphon.store.database import Database
from antiphon.store.deliveries import SqlDeliveries
from antiphon.store.export import Entry, export
from antiphon.store.lines import Lines
from antiphon.store.owners import Owners
from antiphon.store.records import StoreCounters, StoreLimits, StoreStats
from antiphon.store.responses import SqlResponses
from antiphon.store.retention import Sweeper
from antiphon.store.runs import SqlRuns
from antiphon.store.sealing import Sealer
from antiphon.store.shared import Shared
from antiphon.store.signals import SqlSignals
from antiphon.store.stats import stats
from antiphon.store.workers import SqlWorkers


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStore(Store):
    """A store in SQL, with what those who run it need. Close it, or its threads stay."""

    signals: SqlSignals
    shared: Shared
    sweeper: Sweeper
    deliveries: SqlDeliveries
    workers: SqlWorkers

    async def stats(self) -> StoreStats:
        """Counts of what is stored now."""
        return await stats(self.shared)

    def export(self, principal: Principal | None = None) -> AsyncIterator[Entry]:
        """All that can be read, of one owner or of everybody; see `store.export`."""
        return export(self.shared, principal)

    def close(self) -> None:
        """Do what waits, and let go of the database. Not on an event loop that has more to do."""
        self.signals.close()
        self.shared.db.close()


def open_store(
    url: str,
    *,
    limits: StoreLimits,
    sealer: Sealer,
    blobs: Blobs | None,
    clock: Callable[[], float] = time.time,
    history_cache_bytes: int = 32 * 2**20,
    announce_webhooks: bool = False,
) -> SqlStore:
    """Open a store in the database `url`, as `Database.open` has it, and bring it up to date.

    Large items go to `blobs`; None keeps them in the database. `clock` gives seconds since 1970.
    With `announce_webhooks` the ends of background runs are put down in `deliveries`. Raises
    `StartError`.
    """
    database = Database.open(url)
    try:
        signals = SqlSignals(database)
    except BaseException:
        database.close()
        raise
    counters = StoreCounters()
    lines = Lines(blobs, history_cache_bytes)
    shared = Shared(database, Owners(sealer), lines, limits, counters, clock)
    return SqlStore(
        responses=SqlResponses(shared),
        runs=SqlRuns(shared, announce=announce_webhooks),
        conversations=SqlConversations(shared),
        signals=signals,
        counters=counters,
        shared=shared,
        sweeper=Sweeper(shared),
        deliveries=SqlDeliveries(database, sealer, clock),
        workers=SqlWorkers(database, clock),
    )
