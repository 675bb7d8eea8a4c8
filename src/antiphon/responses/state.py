"""What is stored and going on, for `GET /v1/status` and the metrics."""

import dataclasses
from collections.abc import Mapping
from typing import Protocol, cast

from antiphon.responses.admission import HistoryBudget, Readers
from antiphon.responses.refusals import told
from antiphon.responses.worker import Worker
from antiphon.spec.types import StateKind, StoreCounts, StoreStatus
from antiphon.spec.types import StoreCounters as Counters
from antiphon.store.records import StoreCounters, StoreStats


class Counted(Protocol):
    """A store that counts."""

    @property
    def counters(self) -> StoreCounters: ...
    async def stats(self) -> StoreStats: ...


class StateStatus:
    """Gathers counts; no id, key or content is among them."""

    def __init__(
        self,
        kind: StateKind,
        store: Counted,
        worker: Worker,
        readers: Readers,
        budget: HistoryBudget,
    ) -> None:
        self._kind = kind
        self._store = store
        self._worker = worker
        self._readers = readers
        self._budget = budget

    async def status(self) -> StoreStatus:
        """All of it. Raises `StorageUnavailable`."""
        with told():
            stats = await self._store.stats()
        return {
            "state": self._kind,
            "counts": cast(StoreCounts, dataclasses.asdict(stats)),
            "counters": cast(Counters, dataclasses.asdict(self._store.counters)),
            "readers": self._readers.number,
            "background_running": self._worker.num_claimed,
            "history_bytes_in_use": self._budget.num_bytes,
        }

    async def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What there is now, and what happened since the start, by name."""
        status = await self.status()
        now = {
            **cast(Mapping[str, int], status["counts"]),
            "readers": status["readers"],
            "background_running": status["background_running"],
            "history_bytes_in_use": status["history_bytes_in_use"],
        }
        return now, cast(Mapping[str, int], status["counters"])
