"""Keeps runs of blocks on disk, by the hashes of the prefixes that they end.

The engine's thread reads; files are written, and those that are too old or too many deleted, on a
thread of the tier's own. What that cannot keep up with is dropped: nobody ever waits for it.
"""

import hashlib
import math
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from antiphon.engine import block_file
from antiphon.engine.block_file import PARTIAL_SUFFIX, SUFFIX, Bytes, DamagedFile, Header
from antiphon.errors import StartError

_logger = structlog.get_logger("antiphon.engine")

_NAME_BYTES = 16
#: How much may wait to be written. It is memory.
_MAX_PENDING_BYTES = 256 * 2**20
#: How often the folder is looked through for files that expired or are too many.
_SWEEP_SECONDS = 60.0
#: When room is made, so much of the whole is left free, or every file were written after a sweep.
_SPARE = 1 / 16
#: Nobody is still writing a file that is so old.
_PARTIAL_SECONDS = 3600.0
_CLOSE_SECONDS = 30.0


class DiskTierError(StartError):
    """The folder cannot be used."""


class _File(NamedTuple):
    used_at: float
    header: Header
    path: Path


class DiskTier:
    """Keeps content of one `layout`, which names all that it depends on, in a folder.

    The folder may be shared by tiers of other layouts and of other processes; they all count for
    `max_bytes`, though what others wrote is noticed within a minute only. The content used longest
    ago goes first. `clock` gives seconds since 1970. `put`, `touch` and `read` are for one thread.
    Close it, or its thread stays. Raises `DiskTierError`.
    """

    def __init__(
        self,
        folder: Path,
        layout: str,
        max_bytes: int,
        *,
        max_pending_bytes: int = _MAX_PENDING_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._layout = hashlib.sha256(layout.encode()).digest()
        self._max_bytes = max_bytes
        self._max_pending_bytes = max_pending_bytes
        self._clock = clock
        #: Guards what follows, and tells of changes to it.
        self._changed = threading.Condition()
        #: When what is on disk expires.
        self._expires_at: dict[bytes, float] = {}
        self._pending: dict[bytes, tuple[Bytes, float]] = {}
        self._pending_bytes = 0
        self._touched: dict[bytes, float] = {}
        self._busy = False
        self._closing = False
        # Of the writing thread alone.
        self._num_bytes = 0
        self._failing = False
        self._sweep_at = time.monotonic() + _SWEEP_SECONDS
        self._num_written = self._num_dropped = self._num_read = self._num_damaged = 0
        _make_private(folder)
        try:
            self._sweep()
        except OSError as error:
            raise DiskTierError(f"{folder} cannot be used: {error.strerror}") from error
        self._thread = threading.Thread(target=self._loop, name="disk tier", daemon=True)
        self._thread.start()

    def __contains__(self, name: int) -> bool:
        """Whether the content of a name is on disk."""
        expires_at = self._expires_at.get(_bytes_of(name))
        return expires_at is not None and expires_at > self._clock()

    def wants(self, name: int, num_bytes: int) -> bool:
        """Whether content would be written: it is not there yet, and there is room to wait. For
        lack of room alone it counts as dropped."""
        key = _bytes_of(name)
        with self._changed:
            if self._closing or key in self._pending or name in self:
                return False
            # However large it is, one may wait.
            has_room = self._pending_bytes + num_bytes <= self._max_pending_bytes
            has_room = has_room or not self._pending
            self._num_dropped += not has_room
            return has_room

    def put(self, name: int, content: Bytes, expires_at: float = math.inf) -> None:
        """Have content written, unless it is not wanted. It must not be changed any more."""
        with self._changed:
            if self.wants(name, content.nbytes):
                self._pending[_bytes_of(name)] = (content, expires_at)
                self._pending_bytes += content.nbytes
                self._changed.notify_all()

    def touch(self, name: int, expires_at: float = math.inf) -> None:
        """Note that content was used just now. It expires at `expires_at`, or later if somebody
        else wants that."""
        key = _bytes_of(name)
        with self._changed:
            known = self._expires_at.get(key)
            if self._closing or (known is None and key not in self._pending):
                return
            if known is not None:
                self._expires_at[key] = max(known, expires_at)
            # The last that is touched is the last that was used.
            self._touched[key] = max(self._touched.pop(key, expires_at), expires_at)
            self._changed.notify_all()

    def read(self, name: int, into: Bytes) -> bool:
        """Read the content of a name, which must be as long as `into`. False if it is not there."""
        if name not in self:
            return False
        path = self._path(_bytes_of(name))
        try:
            header = block_file.read(path, into)
        except (DamagedFile, OSError) as error:
            self._give_up(path, error)
            with self._changed:
                self._expires_at.pop(_bytes_of(name), None)
            return False
        self._num_read += 1
        return header.expires_at > self._clock()

    def flush(self) -> None:
        """Wait until all that was put and touched is on disk."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._pending or self._touched or self._busy))

    def close(self) -> None:
        """Write what waits and end the thread. Nothing is taken any more, but may be read."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _logger.error("disk tier stuck", folder=str(self._folder))

    def stats(self) -> dict[str, Any]:
        """How much there is now, of this layout and in all, and what happened since the start."""
        return {
            "files": len(self._expires_at),
            "bytes": self._num_bytes,
            "written": self._num_written,
            "dropped": self._num_dropped,
            "read": self._num_read,
            "damaged": self._num_damaged,
        }

    def _path(self, key: bytes) -> Path:
        return self._folder / block_file.file_name(self._layout, key)

    def _give_up(self, path: Path, error: Exception) -> None:
        """A file cannot be used. If it is damaged it goes."""
        if isinstance(error, FileNotFoundError):
            return  # Somebody else needed the room.
        _logger.warning("prefix on disk lost", file=path.name, reason=str(error))
        self._num_damaged += 1
        if isinstance(error, DamagedFile):
            with suppress(OSError):
                path.unlink()

    # --- on the thread ---

    def _loop(self) -> None:
        while True:
            with self._changed:
                seconds = max(self._sweep_at - time.monotonic(), 0.0)
                self._changed.wait_for(self._has_work, seconds)
                if self._closing and not self._pending and not self._touched:
                    return
                self._busy = True
            try:
                self._work(due=time.monotonic() >= self._sweep_at)
            except Exception:  # Whatever it is, the thread must go on.
                _logger.exception("disk tier failed")
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _has_work(self) -> bool:
        return bool(self._pending or self._touched or self._closing)

    def _work(self, *, due: bool) -> None:
        """Write what has waited longest or else note what was used, and look through the folder if
        that is due."""
        with self._changed:
            key = next(iter(self._pending), None)
            touched = {}
            if key is None:
                touched, self._touched = self._touched, {}
        if key is not None:
            self._write(key)
        for name, expires_at in touched.items():
            path = self._path(name)
            try:
                block_file.use(path, expires_at, self._clock())
            except (DamagedFile, OSError) as error:
                self._give_up(path, error)
                with self._changed:
                    self._expires_at.pop(name, None)
        if due:
            self._sweep()
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS

    def _write(self, key: bytes) -> None:
        content, expires_at = self._pending[key]
        try:
            header = Header.of(self._layout, key, expires_at, content)
            if self._make_room(header.file_size):
                block_file.write(self._folder, header, content, self._clock())
                self._num_bytes += header.file_size
                self._num_written += 1
                self._failing = False
                with self._changed:
                    self._expires_at[key] = expires_at
        except OSError as error:
            if not self._failing:  # A full disk is told once.
                _logger.warning("prefix not written", reason=error.strerror)
            self._failing = True
        finally:
            with self._changed:
                del self._pending[key]
                self._pending_bytes -= content.nbytes

    def _make_room(self, size: int) -> bool:
        if size > self._max_bytes:
            return False
        if self._num_bytes + size > self._max_bytes:
            self._sweep(min(size + int(self._max_bytes * _SPARE), self._max_bytes))
        return True

    def _sweep(self, room: int = 0) -> None:
        """Look through the folder. Delete what expired or is damaged, and what was used longest
        ago until there is so much room."""
        files = sorted(self._files(), key=lambda file: file.used_at)
        num_bytes = sum(file.header.file_size for file in files)
        kept: dict[bytes, float] = {}
        for file in files:
            if num_bytes > self._max_bytes - room:
                with suppress(FileNotFoundError):
                    file.path.unlink()
                num_bytes -= file.header.file_size
            elif file.header.layout == self._layout:
                kept[file.header.name] = file.header.expires_at
        self._num_bytes = num_bytes
        with self._changed:
            # What was touched meanwhile may not be noted in its file yet.
            for name in kept.keys() & self._touched.keys():
                kept[name] = max(kept[name], self._touched[name])
            self._expires_at = kept

    def _files(self) -> list[_File]:
        """All files that can be used, of whatever layout; others are deleted."""
        files: list[_File] = []
        now = self._clock()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                try:
                    if entry.name.endswith(SUFFIX):
                        header = block_file.read_header(path)
                        if header.expires_at > now:
                            files.append(_File(entry.stat().st_mtime, header, path))
                        else:
                            path.unlink()
                    elif entry.name.endswith(PARTIAL_SUFFIX):
                        if entry.stat().st_mtime < now - _PARTIAL_SECONDS:
                            path.unlink()
                except (DamagedFile, OSError) as error:
                    self._give_up(path, error)
        return files


def _bytes_of(name: int) -> bytes:
    return name.to_bytes(_NAME_BYTES)


def _make_private(folder: Path) -> None:
    """Make a folder that others cannot look into. Raises `DiskTierError` for one that they can, as
    they might have put something there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise DiskTierError(f"{folder} cannot be made: {error.strerror}") from error
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
        raise DiskTierError(
            f"{folder} is open to other users of this machine. "
            f"Close it (chmod 700 {folder}), or set cache_disk_dir to another."
        )
