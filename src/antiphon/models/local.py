"""A model that runs in this process."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from antiphon import ids
from antiphon.engine.engine import DeadlineExceeded, Engine, QueueFull, SequenceTooLong
from antiphon.engine.grammar.errors import GrammarFailed
from antiphon.engine.sampler import NoTokenAllowed
from antiphon.engine.sequence import EngineStream, SequenceRequest
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.errors import (
    ContextLengthExceeded,
    GatewayTimeout,
    InvalidAnswer,
    InvalidPrompt,
    TooManyRequests,
)
from antiphon.formats.base import Prompt
from antiphon.formats.family import Family
from antiphon.formats.grammars.turn import ReasoningState, callable_tools
from antiphon.formats.parser import marker_tokens
from antiphon.models.base import ModelDefaults
from antiphon.models.constraints import Constraints
from antiphon.models.output import OutputReader
from antiphon.spec.types import EngineStatus, ModelStatus
from antiphon.turn import Delta, Effort, Finish, TokenUsage, Turn

_PREPARING_THREADS = 4


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How requests are put to the engine.

    `top_k` and `min_p` are of the sampling, where no request says them. An answer may take
    `timeout_seconds`, None for any time. An idle prefix stays for `keep_seconds`, None for as long
    as there is room. With `isolate_cache_keys`, requests of different `prompt_cache_key`s share no
    prefix. `family` is whose reasoning the model goes on from; its own alone if it is empty.
    """

    top_k: int = 0
    min_p: float = 0.0
    timeout_seconds: float | None = None
    keep_seconds: float | None = None
    isolate_cache_keys: bool = False
    family: str = ""


class LocalModel:
    """Renders and counts prompts on threads of its own, and has the engine answer them."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        tokenizer: PromptTokenizer,
        family: Family,
        *,
        context_window: int,
        stop_tokens: frozenset[int],
        defaults: ModelDefaults,
        options: LocalOptions | None = None,
    ) -> None:
        self.name = name
        self.created = ids.now()
        self.context_window = context_window
        self.defaults = defaults
        self._options = options or LocalOptions()
        self._engine = engine
        self._tokenizer = tokenizer
        self._family = family
        ends = (family.turn_end, *family.dialect.stops)
        self._stop_tokens = stop_tokens | tokenizer.ids_of(text for text in ends if text).keys()
        names = [*tokenizer.controls.values(), *tokenizer.added]
        self._marks = tokenizer.ids_of(marker_tokens(family.dialect, names))
        self._threads = ThreadPoolExecutor(_PREPARING_THREADS, thread_name_prefix="prepare")
        self._constraints = Constraints(
            family.dialect,
            tokenizer,
            self._marks,
            self._stop_tokens,
            engine.vocab_size,
            self._threads,
        )

    async def prepare(self, turn: Turn) -> "LocalGeneration":
        loop = asyncio.get_running_loop()
        request, reasoning = await loop.run_in_executor(self._threads, self._request, turn)
        limit = self._family.max_reasoning(turn)
        grammar = await self._constraints.of(turn, reasoning, limit)
        if grammar is not None:
            request = replace(request, grammar=grammar)
        reader = OutputReader(
            self._family.dialect,
            callable_tools(turn),
            self._tokenizer,
            self._marks,
            self._stop_tokens,
            in_reasoning=reasoning == "inside",
        )
        return LocalGeneration(
            self._engine, request, reader, timeout_seconds=self._options.timeout_seconds
        )

    @property
    def family(self) -> str:
        return self._options.family or self.name

    def effort(self, asked: Effort | None) -> Effort | None:
        return self._family.effort(asked)

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "loaded", "engine": engine_status(self._engine.stats())}

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)
        await asyncio.to_thread(self._constraints.close)
        self._threads.shutdown(cancel_futures=True)

    def _request(self, turn: Turn) -> tuple[SequenceRequest, ReasoningState]:
        prompt = self._family.render(turn)
        self._refuse_hopeless(prompt)
        tokens = self._tokenizer.encode(prompt)
        if not tokens:
            raise InvalidPrompt("The model's chat template shows nothing of it.", param="input")
        room = self.context_window - len(tokens)
        if room < 1:
            raise ContextLengthExceeded.by(self.context_window, f"{len(tokens)} tokens")
        options = self._options
        keep_seconds = options.keep_seconds if turn.keep_seconds is None else turn.keep_seconds
        request = SequenceRequest(
            tokens=tokens,
            sampling=replace(turn.sampling, top_k=options.top_k, min_p=options.min_p),
            stop_tokens=self._stop_tokens,
            max_tokens=min(turn.max_output_tokens or room, room),
            top_logprobs=turn.top_logprobs,
            tenant=turn.tenant,
            priority=turn.priority,
            cache_salt=f"{turn.tenant}\n{turn.cache_key if options.isolate_cache_keys else ''}",
            cache_key=turn.cache_key,
            keep_seconds=keep_seconds,
            private=turn.private,
        )
        return request, self._family.reasoning(prompt, turn)

    def _refuse_hopeless(self, prompt: Prompt) -> None:
        """Refuse what is too long by its bytes alone, before it is tokenised."""
        fewest = self._tokenizer.fewest_tokens(sum(len(p.encode()) for p in prompt))
        if fewest >= self.context_window:
            raise ContextLengthExceeded.by(self.context_window, f"at least {fewest} tokens")


def engine_status(stats: Mapping[str, Any]) -> EngineStatus:
    """The part of an engine's own account that is shown."""
    return {
        "path": stats["path"],
        "reason": stats["reason"],
        "weights": stats["runner"]["weights"],
        "healthy": stats["healthy"],
        "running": stats["running"],
        "waiting": stats["waiting"],
        "steps": stats["steps"],
        "preemptions": stats["preemptions"],
        "cache": stats["cache"],
        "speculation": stats["speculation"],
    }


class LocalGeneration:
    """One sequence of the engine, as deltas."""

    def __init__(
        self,
        engine: Engine,
        request: SequenceRequest,
        reader: OutputReader,
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        self._engine = engine
        self._request = request
        self._reader = reader
        self._timeout_seconds = timeout_seconds
        self._stream: EngineStream | None = None

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(
            len(self._request.tokens),
            cached_tokens=self._stream.cached_tokens if self._stream else 0,
            output_tokens=self._reader.num_tokens,
            reasoning_tokens=self._reader.num_reasoning,
        )

    def start(self) -> None:
        request = self._request
        if self._timeout_seconds is not None:
            request = replace(request, deadline=time.monotonic() + self._timeout_seconds)
        try:
            self._stream = self._engine.submit(request)
        except QueueFull as error:
            seconds = error.retry_after_seconds
            raise TooManyRequests(
                "The model has as many requests waiting as it may. "
                f"Try again in {seconds} {'second' if seconds == 1 else 'seconds'}.",
                headers={"retry-after": str(seconds)},
            ) from error
        except SequenceTooLong as error:
            raise ContextLengthExceeded(
                "The prompt is too long for the model's cache of keys and values.",
                param="input",
            ) from error

    def cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def released(self) -> None:
        if self._stream is not None:
            await self._stream.released.wait()

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        if self._stream is None:
            self.start()
        stream = self._stream
        assert stream is not None
        logprobs = self._request.top_logprobs is not None
        try:
            async for output in stream:
                for delta in self._reader.feed(output.tokens, logprobs=logprobs):
                    yield delta
                if output.finish_reason is not None:
                    for delta in self._reader.finish(output.finish_reason):
                        yield delta
                    yield Finish(output.finish_reason)
                    return
        except DeadlineExceeded:
            raise GatewayTimeout("The answer took longer than the server allows.") from None
        except (GrammarFailed, NoTokenAllowed) as error:
            raise InvalidAnswer(f"The answer cannot be held to its form: {error}.") from error
        finally:
            stream.cancel()
