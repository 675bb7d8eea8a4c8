"""One prompt and what is made of it: the request, the stream of its tokens, and where it stands."""

import asyncio
import contextlib
from array import array
from collections import deque
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from antiphon.turn import Sampling

FinishReason = Literal["stop", "length"]


class Grammar(Protocol):
    """What a sequence may say next. Used by one thread at a time."""

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        """Set the bit of every token that may come next: bit `t % 32` of word `t // 32`."""
        ...

    def accept(self, token: int) -> None:
        """Take a token that was drawn or forced."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, in their order; none where there is a choice."""
        ...


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """A prompt to be continued.

    `tokens` is the prompt, at least one. Generation ends after a token of `stop_tokens` or after
    `max_tokens` tokens. `top_logprobs` is how many likeliest tokens to report, None for no
    log-probabilities.

    `tenant` is whose it is; tenants get equal shares of the engine. A higher `priority` goes first.
    After `deadline` (`time.monotonic()`) it fails. Prefixes are shared between requests of the same
    `cache_salt`; one used with a `cache_key` is evicted later than others, and one that was idle
    for `keep_seconds` (None: as long as there is room) is forgotten. `private` keeps it out of
    everything but memory.
    """

    tokens: Tokens[int]
    sampling: Sampling
    stop_tokens: frozenset[int]
    max_tokens: int
    top_logprobs: int | None = None
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    cache_salt: str = ""
    cache_key: str = ""
    keep_seconds: float | None = None
    private: bool = True
    grammar: Grammar | None = None


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
        self.loop = loop
        self._outputs: deque[TokenOutput | BaseException] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        # Read by the engine's thread between its steps. Setting a bool needs no lock.
        self.cancelled = False
        #: Set once the engine holds nothing for it any more.
        self.released = asyncio.Event()
        #: Tokens of the prompt that were not computed again; set before the first output.
        self.cached_tokens = 0

    def cancel(self) -> None:
        """Have the engine drop the sequence before its next step."""
        self.cancelled = True

    def publish(self, output: TokenOutput | BaseException) -> None:
        """Hand over an output. For the engine's thread."""
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is left to read.
            self.loop.call_soon_threadsafe(self.receive, output)

    def receive(self, output: TokenOutput | BaseException) -> None:
        """Take an output. On the event loop."""
        self._outputs.append(output)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> "EngineStream":
        return self

    async def __anext__(self) -> TokenOutput:
        if self._ended:
            raise StopAsyncIteration
        while not self._outputs:
            self._waiter = self.loop.create_future()
            await self._waiter
        output = self._outputs.popleft()
        if isinstance(output, BaseException):
            self._ended = True
            raise output
        self._ended = output.finish_reason is not None
        return output


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine.

    `tokens` is the prompt and what was made since; of these the first `num_computed` have keys and
    values, in the `blocks` of the cache. `state` is the model runner's own, where the model's cache
    has no blocks. `draws` is the sampler's.
    """

    request: SequenceRequest
    stream: EngineStream
    tokens: "array[int]" = field(init=False)
    num_computed: int = 0
    blocks: "array[int]" = field(default_factory=lambda: array("i"))
    hashes: list[int] = field(default_factory=list)
    state: object = None
    draws: object = None

    def __post_init__(self) -> None:
        self.tokens = array("i", self.request.tokens)

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.tokens)

    @property
    def num_generated(self) -> int:
        """Tokens made since."""
        return len(self.tokens) - len(self.request.tokens)

    @property
    def num_pending(self) -> int:
        """Tokens that are known but not computed."""
        return len(self.tokens) - self.num_computed

    def append(self, token: int) -> FinishReason | None:
        """Add a token that was drawn; why the sequence ends with it, if it does."""
        self.tokens.append(token)
        if token in self.request.stop_tokens:
            return "stop"
        return "length" if self.num_generated >= self.request.max_tokens else None
