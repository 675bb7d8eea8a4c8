"""The beginnings of lines as they were read, so that a long chain is parsed once, not every turn.

Places of a line are never used twice, so what was read of it stays right for as long as anybody
may ask for it.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from antiphon.store.records import ItemBody

# What a parsed item takes: its text, and the objects around it.
_TEXT_FACTOR = 2
_OBJECT_BYTES = 1024


class _Prefix(NamedTuple):
    items: tuple[ItemBody, ...]
    num_bytes: int


class PrefixCache:
    """Items of lines from their first on, the lines used longest ago going first.

    Holds about `max_bytes` bytes of memory. Safe to use from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._prefixes: OrderedDict[int, _Prefix] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """How much memory is in use, estimated."""
        return self._num_bytes

    def get(self, line: int) -> tuple[ItemBody, ...]:
        """What is known of a line."""
        with self._lock:
            if line not in self._prefixes:
                return ()
            self._prefixes.move_to_end(line)
            return self._prefixes[line].items

    def put(self, line: int, items: tuple[ItemBody, ...], sizes: Sequence[int]) -> None:
        """Remember the first items of a line; `sizes` are the bytes of those that are new."""
        added = _TEXT_FACTOR * sum(sizes) + _OBJECT_BYTES * len(sizes)
        with self._lock:
            known = self._prefixes.get(line, _Prefix((), 0))
            # Two threads may have read the same; the second finds it there.
            if len(known.items) + len(sizes) != len(items):
                return
            self._prefixes[line] = _Prefix(items, known.num_bytes + added)
            self._prefixes.move_to_end(line)
            self._num_bytes += added
            while self._num_bytes > self._max_bytes:
                _, oldest = self._prefixes.popitem(last=False)
                self._num_bytes -= oldest.num_bytes

    def drop(self, lines: Iterable[int]) -> None:
        """Forget lines."""
        with self._lock:
            for line in lines:
                dropped = self._prefixes.pop(line, None)
                if dropped is not None:
                    self._num_bytes -= dropped.num_bytes
