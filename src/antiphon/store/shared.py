"""What the parts of a store have in common."""

from collections.abc import Callable
from dataclasses import dataclass

from antiphon.store.database import Database
from antiphon.store.lines import Lines
from antiphon.store.owners import Owners
from antiphon.store.records import StoreCounters, StoreLimits


@dataclass(frozen=True, slots=True)
class Shared:
    """The database and all that is read and written there with. `clock` gives seconds since
    1970."""

    db: Database
    owners: Owners
    lines: Lines
    limits: StoreLimits
    counters: StoreCounters
    clock: Callable[[], float]
