"""A model for tests inside one event loop: it says, waits and fails as it is told beforehand."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

from antiphon.models.base import ModelDefaults
from antiphon.turn import Delta, Effort, TextDelta, TokenUsage, Turn

_HANGS_AFTER_SECONDS = 10

#: Something to say, something to wait for, or a failure to raise.
Step = Delta | asyncio.Event | BaseException


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own, and fails it if it hangs."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), _HANGS_AFTER_SECONDS))

    return run


class SaidGeneration:
    """One answer. `ended` is set once its deltas are closed, whether they were read to the end or
    not; a delta of text counts as one token."""

    def __init__(self, steps: Sequence[Step], input_tokens: int = 3) -> None:
        self._steps = steps
        self._input_tokens = input_tokens
        self._said = 0
        self.ended = asyncio.Event()

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(self._input_tokens, output_tokens=self._said)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    async def released(self) -> None:
        pass

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        try:
            for step in self._steps:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    self._said += isinstance(step, TextDelta)
                    yield step
        finally:
            self.ended.set()


class SaidModel:
    """Answers every turn in the same way. `ready` may keep turns waiting before they begin."""

    created = 0
    context_window = None
    family = "test"
    defaults = ModelDefaults()

    def __init__(self, *steps: Step, name: str = "said", ready: asyncio.Event | None = None):
        self.name = name
        self._steps = steps
        self._ready = ready
        self.preparing = asyncio.Event()
        self.generations: list[SaidGeneration] = []

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked

    async def prepare(self, turn: Turn) -> SaidGeneration:
        self.preparing.set()
        if self._ready is not None:
            await self._ready.wait()
        self.generations.append(SaidGeneration(self._steps))
        return self.generations[-1]

    async def close(self) -> None:
        pass
