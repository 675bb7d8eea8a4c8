"""One prompt and what is made of it: the request, the stream of its tokens, and its state between
steps."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from antiphon.turn import Sampling

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """`tokens` is the prompt, at least one. Generation ends after a token of `stop_tokens` or after
    `max_tokens` tokens. `top_logprobs` is how many likeliest tokens to report, None for none."""

    tokens: list[int]
    sampling: Sampling
    stop_tokens: frozenset[int]
    max_tokens: int
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token, its natural log-probability before sampling settings, and the likeliest tokens with
    theirs. Log-probabilities are 0 and empty if not asked for."""

    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What one step made of a sequence. The last output says why it ended."""

    tokens: tuple[SampledToken, ...]
    finish_reason: FinishReason | None = None


class EngineStream:
    """The tokens of one sequence, on the event loop. Iterate it to its end or cancel it.

    Raises from the iteration what went wrong in the engine.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outputs: deque[TokenOutput | BaseException] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        # Read by the engine's thread between its steps. Setting a bool needs no lock.
        self.cancelled = False
        self.cached_tokens = 0

    def cancel(self) -> None:
        """Have the engine drop the sequence before its next step."""
        self.cancelled = True

    def publish(self, output: TokenOutput | BaseException) -> None:
        """Hand over an output. For the engine's thread."""
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is left to read.
            self._loop.call_soon_threadsafe(self._receive, output)

    def _receive(self, output: TokenOutput | BaseException) -> None:
        self._outputs.append(output)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> "EngineStream":
        return self

    async def __anext__(self) -> TokenOutput:
        if self._ended:
            raise StopAsyncIteration
        while not self._outputs:
            self._waiter = self._loop.create_future()
            await self._waiter
        output = self._outputs.popleft()
        if isinstance(output, BaseException):
            self._ended = True
            raise output
        self._ended = output.finish_reason is not None
        return output


@dataclass(slots=True)
class Sequence:
    """A request in the engine: how many prompt tokens are computed, and the tokens made since.

    `state` is the model runner's own, such as a cache of keys and values.
    """

    request: SequenceRequest
    stream: EngineStream
    num_computed: int = 0
    generated: list[int] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    state: object = None

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is computed."""
        return self.num_computed >= len(self.request.tokens)

    def append(self, token: int) -> FinishReason | None:
        """Add a token that was drawn; why the sequence ends with it, if it does."""
        self.generated.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1
        if token in self.request.stop_tokens:
            return "stop"
        return "length" if len(self.generated) >= self.request.max_tokens else None
