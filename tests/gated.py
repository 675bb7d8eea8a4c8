"""A model that says what a test tells it to, when the test tells it to."""

import asyncio
import threading
from collections.abc import AsyncGenerator

from antiphon.models.base import ModelDefaults
from antiphon.spec.types import ModelStatus
from antiphon.turn import Delta, Effort, TokenUsage, Turn


class GatedModel:
    """Its answers wait for `say`. `stopped` is set when a running answer is cancelled or done, and
    `steps` counts what was said."""

    name = "gated"
    created = 0
    context_window = None
    family = "test"
    defaults = ModelDefaults()

    def __init__(self) -> None:
        self.started = threading.Event()
        self.stopped = threading.Event()
        self.steps = 0
        self._queue: asyncio.Queue[Delta] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "loaded", "engine": None}

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(1, output_tokens=self.steps)

    async def prepare(self, turn: Turn) -> "GatedModel":
        self._loop = asyncio.get_running_loop()
        return self

    def say(self, *deltas: Delta) -> None:
        """Have the running answer say something more. From the test's thread."""
        assert self.started.wait(10)
        assert self._loop is not None
        for delta in deltas:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, delta)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    async def released(self) -> None:
        pass

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        self.started.set()
        try:
            while True:
                delta = await self._queue.get()
                self.steps += 1
                yield delta
        finally:
            self.stopped.set()

    async def close(self) -> None:
        pass
