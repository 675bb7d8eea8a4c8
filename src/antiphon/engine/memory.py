"""How much memory there is."""

import os
from pathlib import Path

from antiphon.engine.checkpoints.checkpoint import LoadError

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that may still be taken: the machine's, or the container's if that is less.

    None where nothing is known.
    """
    known = [size for size in (_machine(), _container()) if size is not None]
    return min(known, default=None)


def check_room(what: str, needed: int, available: int | None) -> None:
    """Raise `LoadError` if `needed` bytes are not there."""
    if available is not None and needed > available:
        raise LoadError(
            f"{what} needs about {shown(needed)} of memory, and {shown(available)} are free. "
            "Take a smaller model, or set cache_mib lower."
        )


def shown(size: int) -> str:
    """A size as people read it."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        return None if limit == "max" else max(int(limit) - used, 0)
    except (OSError, ValueError):
        return None
