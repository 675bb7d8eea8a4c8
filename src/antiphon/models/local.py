"""A model that runs in this process."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from antiphon import ids
from antiphon.engine.detokenizer import Detokenizer
from antiphon.engine.engine import DeadlineExceeded, Engine, QueueFull, SequenceTooLong
from antiphon.engine.sequence import EngineStream, SampledToken, SequenceRequest
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.errors import (
    ContextLengthExceeded,
    GatewayTimeout,
    InvalidPrompt,
    TooManyRequests,
)
from antiphon.formats.base import ChatFormat, Prompt
from antiphon.models.base import ModelDefaults
from antiphon.spec.types import EngineStatus, ModelStatus
from antiphon.turn import Delta, Finish, TextDelta, TokenLogprob, TokenUsage, Turn

_PREPARING_THREADS = 4


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How requests are put to the engine.

    `top_k` and `min_p` are of the sampling, where no request says them. An answer may take
    `timeout_seconds`, None for any time. An idle prefix stays for `keep_seconds`, None for as long
    as there is room. With `isolate_cache_keys`, requests of different `prompt_cache_key`s share no
    prefix.
    """

    top_k: int = 0
    min_p: float = 0.0
    timeout_seconds: float | None = None
    keep_seconds: float | None = None
    isolate_cache_keys: bool = False


class LocalModel:
    """Renders and counts prompts on threads of its own, and has the engine answer them."""

    takes_tools = False

    def __init__(
        self,
        name: str,
        engine: Engine,
        tokenizer: PromptTokenizer,
        chat_format: ChatFormat,
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
        self._format = chat_format
        self._stop_tokens = stop_tokens
        turn_end = chat_format.turn_end and tokenizer.id_of(chat_format.turn_end)
        if turn_end is not None:
            self._stop_tokens |= {int(turn_end)}
        self._threads = ThreadPoolExecutor(_PREPARING_THREADS, thread_name_prefix="prepare")

    async def prepare(self, turn: Turn) -> "LocalGeneration":
        loop = asyncio.get_running_loop()
        request = await loop.run_in_executor(self._threads, self._request, turn)
        return LocalGeneration(
            self._engine, self._tokenizer, request, timeout_seconds=self._options.timeout_seconds
        )

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "loaded", "engine": engine_status(self._engine.stats())}

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)
        self._threads.shutdown(cancel_futures=True)

    def _request(self, turn: Turn) -> SequenceRequest:
        prompt = self._format.render(turn)
        self._refuse_hopeless(prompt)
        tokens = self._tokenizer.encode(prompt)
        if not tokens:
            raise InvalidPrompt("The model's chat template shows nothing of it.", param="input")
        room = self.context_window - len(tokens)
        if room < (turn.max_output_tokens or 1):
            raise self._too_long(f"{len(tokens)} tokens", turn.max_output_tokens, room)
        options = self._options
        keep_seconds = options.keep_seconds if turn.keep_seconds is None else turn.keep_seconds
        return SequenceRequest(
            tokens=tokens,
            sampling=replace(turn.sampling, top_k=options.top_k, min_p=options.min_p),
            stop_tokens=self._stop_tokens,
            max_tokens=turn.max_output_tokens or room,
            top_logprobs=turn.top_logprobs,
            tenant=turn.tenant,
            priority=turn.priority,
            cache_salt=f"{turn.tenant}\n{turn.cache_key if options.isolate_cache_keys else ''}",
            cache_key=turn.cache_key,
            keep_seconds=keep_seconds,
            private=turn.private,
        )

    def _refuse_hopeless(self, prompt: Prompt) -> None:
        """Refuse what is too long by its bytes alone, before it is tokenised."""
        fewest = self._tokenizer.fewest_tokens(sum(len(p.encode()) for p in prompt))
        if fewest >= self.context_window:
            raise self._too_long(f"at least {fewest} tokens", None, 0)

    def _too_long(self, size: str, wanted: int | None, room: int) -> ContextLengthExceeded:
        context = f"the model's context holds {self.context_window}"
        if wanted is not None and room > 0:
            return ContextLengthExceeded(
                f"The input is {size} and max_output_tokens asks for {wanted} more, but {context}.",
                param="max_output_tokens",
            )
        return ContextLengthExceeded(f"The input is {size}, but {context}.", param="input")


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
    """One sequence of the engine, as text."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: PromptTokenizer,
        request: SequenceRequest,
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._request = request
        self._timeout_seconds = timeout_seconds
        self._stream: EngineStream | None = None
        self._output_tokens = 0

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(
            len(self._request.tokens),
            cached_tokens=self._stream.cached_tokens if self._stream else 0,
            output_tokens=self._output_tokens,
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
                "The input is longer than the model's cache of keys and values has room for.",
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
        detokenizer = Detokenizer(self._tokenizer)
        # Tokens whose text is not whole yet; they are reported with the delta that they end up in.
        pending: list[SampledToken] = []
        try:
            async for output in stream:
                text = ""
                for sampled in output.tokens:
                    self._output_tokens += 1
                    if sampled.token not in self._request.stop_tokens:
                        text += detokenizer.feed(sampled.token)
                        pending.append(sampled)
                if output.finish_reason is not None:
                    text += detokenizer.finish()
                if text:
                    yield TextDelta(text, self._logprobs(pending))
                    pending = []
                if output.finish_reason is not None:
                    yield Finish(output.finish_reason)
                    return
        except DeadlineExceeded:
            raise GatewayTimeout("The answer took longer than the server allows.") from None
        finally:
            stream.cancel()

    def _logprobs(self, sampled: Sequence[SampledToken]) -> tuple[TokenLogprob, ...]:
        if self._request.top_logprobs is None:
            return ()
        return tuple(
            self._logprob(
                token.token,
                token.logprob,
                tuple(self._logprob(number, logprob) for number, logprob in token.top),
            )
            for token in sampled
        )

    def _logprob(
        self, token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()
    ) -> TokenLogprob:
        data = self._tokenizer.bytes_of(token)
        return TokenLogprob(data.decode("utf-8", "replace"), data, logprob, top)
