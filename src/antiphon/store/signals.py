"""Waiting for changes, whichever process makes them.

This process's commits wake its own waiters at once. Of others, PostgreSQL tells over a connection
that listens; a SQLite file is asked once a second, while anybody waits.
"""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import count

from antiphon.store.database import Database
from antiphon.store.failures import StoreUnavailable
from antiphon.store.listener import Listener

_POLL_SECONDS = 1.0

Waiter = asyncio.Future[None]


class SqlSignals:
    """Implements `base.Signals` for a database. Close it before the database, or a thread stays.

    A waiter that nobody holds any more is forgotten. Raises `StartError` if it cannot listen.
    """

    def __init__(self, database: Database, *, poll_seconds: float = _POLL_SECONDS) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, dict[int, weakref.ref[Waiter]]] = {}
        self._keys = count()
        #: Waiters that are gone, but not yet from `_waiters`: a garbage collector may not lock.
        self._gone: deque[tuple[str, int]] = deque()
        #: Set whenever somebody begins to wait.
        self._wanted = threading.Event()
        self._source: Listener | _Poller | None = None
        database.on_commit(self.wake)
        if database.dialect == "postgresql":
            self._source = Listener(database.url, database.name, self)
        elif database.shared:
            self._source = _Poller(database, self, self._wanted, poll_seconds)

    def waiter(self, topic: str) -> Waiter:
        """Becomes done at the next change. May be cancelled or forgotten. For the running event
        loop."""
        future = asyncio.get_running_loop().create_future()
        key = next(self._keys)
        ref = weakref.ref(future, lambda _: self._gone.append((topic, key)))
        with self._lock:
            self._forget_gone()
            self._waiters.setdefault(topic, {})[key] = ref
        self._wanted.set()
        return future

    @property
    def num_waiters(self) -> int:
        """How many wait."""
        with self._lock:
            self._forget_gone()
            return sum(map(len, self._waiters.values()))

    def wake(self, topics: Collection[str]) -> None:
        """Wake those who wait for these topics. From any thread."""
        with self._lock:
            found = [self._waiters.pop(topic) for topic in topics if topic in self._waiters]
        if found:
            _finish(ref for refs in found for ref in refs.values())

    def wake_all(self) -> None:
        """Wake everybody, as something may have been missed. From any thread."""
        with self._lock:
            found, self._waiters = self._waiters, {}
        _finish(ref for refs in found.values() for ref in refs.values())

    def close(self) -> None:
        """Listen no more. Whoever waits is woken."""
        if self._source is not None:
            self._source.close()
        self.wake_all()

    def _forget_gone(self) -> None:
        while self._gone:
            topic, key = self._gone.popleft()
            refs = self._waiters.get(topic)
            if refs is not None:
                refs.pop(key, None)
                if not refs:
                    del self._waiters[topic]


class _Poller:
    """Asks a SQLite file whether another process has written to it, while anybody waits."""

    def __init__(
        self, database: Database, signals: SqlSignals, wanted: threading.Event, seconds: float
    ) -> None:
        self._database = database
        self._signals = signals
        self._wanted = wanted
        self._seconds = seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="store signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        self._thread.join()

    def _loop(self) -> None:
        with suppress(StoreUnavailable):  # It was closed.
            # What is written from now on is noticed, also while nobody waits.
            self._database.if_changed_elsewhere(self._signals.wake_all)
            while not self._closing.is_set():
                self._wanted.wait()
                self._wanted.clear()
                while self._signals.num_waiters and not self._closing.wait(self._seconds):
                    self._database.if_changed_elsewhere(self._signals.wake_all)


def _finish(refs: Iterable[weakref.ref[Waiter]]) -> None:
    """Let waiters be done, those of each event loop in one step."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for ref in refs:
        future = ref()
        if future is not None:
            by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):  # It has ended.
            loop.call_soon_threadsafe(_set_results, futures)


def _set_results(futures: Iterable[Waiter]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
