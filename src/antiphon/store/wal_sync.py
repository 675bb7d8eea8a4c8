"""Keeps what a SQLite file's write-ahead log has in memory little.

Most commits need not be on disk at once. One that must would have to wait until all before it are,
which for a long answer are megabytes; so they are written there on the way, on a thread that nobody
waits for.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

#: Commits between two writes: some 100 kB.
_EVERY = 8


class WalSync:
    """For the writing connection to the SQLite file `file`. Close it, or its thread stays."""

    def __init__(self, file: str) -> None:
        self._log = f"{file}-wal"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._descriptor: int | None = None
        self._num_commits = 0
        self._syncing: Future[None] | None = None

    def committing(self) -> None:
        """Count a commit that need not be on disk."""
        self._num_commits += 1
        if self._num_commits % _EVERY == 0 and (self._syncing is None or self._syncing.done()):
            self._syncing = self._thread.submit(self._sync)

    def close(self) -> None:
        """Let go of the file."""
        self._thread.shutdown()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _sync(self) -> None:
        # If it cannot be done, the commit that needs it says so.
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._log, os.O_RDONLY)
            os.fdatasync(self._descriptor)
