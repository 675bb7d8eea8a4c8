"""How long an event loop does not come to what it has to do."""

import asyncio
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

_TICK = 0.001


class LoopWatch:
    """Wraps an application and notes its loop's longest stall, in seconds, and in `waiting` how
    much of it the thread was ready to run and had no processor.

    A timer asks to be called every millisecond; a stall is how much later than that it is called.
    """

    def __init__(
        self,
        app: Any,
        longest: "Synchronized[float]",
        waiting: "Synchronized[float] | None" = None,
    ) -> None:
        self._app = app
        self._longest = longest
        self._waiting = waiting
        self._ticking = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._ticking:
            self._ticking = True
            self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
            self._tick(time.perf_counter(), self._delayed())
        await self._app(scope, receive, send)

    def _delayed(self) -> float:
        return 0.0 if self._waiting is None else int(self._schedstat.read_text().split()[1]) / 1e9

    def _tick(self, due: float, delayed: float) -> None:
        now, delayed_now = time.perf_counter(), self._delayed()
        if now - due > self._longest.value:
            self._longest.value = now - due
            if self._waiting is not None:
                self._waiting.value = delayed_now - delayed
        loop = asyncio.get_running_loop()
        loop.call_later(_TICK, self._tick, time.perf_counter() + _TICK, delayed_now)
