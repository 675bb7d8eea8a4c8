"""How much may be going on at once: readers of stored streams, and bytes of history in hand."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.errors import HistoryBusy, TooManyRequests
from antiphon.principal import Principal

_RETRY = {"retry-after": "1"}


class Readers:
    """Counts readers, in all and of each key."""

    def __init__(self, limit: int, limit_per_key: int) -> None:
        self._limit = limit
        self._limit_per_key = limit_per_key
        self._readers: Counter[str] = Counter()

    @property
    def number(self) -> int:
        """How many there are now."""
        return self._readers.total()

    def enter(self, principal: Principal) -> None:
        """Count one more, who must `leave`. Raises `TooManyRequests`."""
        if self.number >= self._limit:
            raise TooManyRequests(
                f"There are {self._limit} readers of stored streams already.", headers=_RETRY
            )
        if self._readers[principal.id] >= self._limit_per_key:
            raise TooManyRequests(
                f"There are {self._limit_per_key} readers of stored streams with this key already.",
                headers=_RETRY,
            )
        self._readers[principal.id] += 1

    def leave(self, principal: Principal) -> None:
        """Count one less."""
        self._readers[principal.id] -= 1
        if not self._readers[principal.id]:
            del self._readers[principal.id]


class HistoryBudget:
    """Limits the bytes of history that are being read and rendered at once. One history alone may
    be larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.num_bytes = 0

    @contextmanager
    def taking(self, num_bytes: int) -> Iterator[None]:
        """Have so many bytes in hand. Raises `HistoryBusy`."""
        if self.num_bytes and self.num_bytes + num_bytes > self._limit:
            raise HistoryBusy(
                "Too many long conversations are being continued at once. Try again.",
                headers=_RETRY,
            )
        self.num_bytes += num_bytes
        try:
            yield
        finally:
            self.num_bytes -= num_bytes
