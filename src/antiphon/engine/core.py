"""The engine without its thread: one step, and who is in it."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import structlog

from antiphon.engine.cache import SequenceCache
from antiphon.engine.masks import Mask, Masks
from antiphon.engine.outbox import Outbox
from antiphon.engine.runners.base import ModelRunner, Scores, Segment
from antiphon.engine.sampler import Sampler, SampleRow
from antiphon.engine.scheduler import DeadlineExceeded, Scheduler, SequenceTooLong, Work
from antiphon.engine.sequence import FinishReason, Grammar, SampledToken, Sequence, TokenOutput

_logger = structlog.get_logger("antiphon.engine")


@dataclass(slots=True)
class Counters:
    """What was done since the start. Written by the engine's thread, read by any."""

    steps: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    memory_errors: int = 0
    failures: int = 0
    ended: int = 0
    busy_seconds: float = 0.0
    #: When the last ones ended (`time.monotonic()`).
    ended_at: deque[float] = field(default_factory=lambda: deque(maxlen=32))


@dataclass(slots=True)
class _Result:
    """What a step made of one sequence; of its guesses the first `num_right` came true."""

    tokens: list[SampledToken] = field(default_factory=list)
    num_right: int = 0
    finish_reason: FinishReason | None = None
    error: Exception | None = None

    @property
    def ended(self) -> bool:
        return self.finish_reason is not None or self.error is not None


class EngineCore:
    """Takes sequences further, step by step. Used by the engine's thread alone.

    Nothing that goes wrong with a sequence is raised: it is told to its stream.
    """

    def __init__(
        self,
        runner: ModelRunner,
        cache: SequenceCache,
        sampler: Sampler,
        scheduler: Scheduler,
        outbox: Outbox,
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._sampler = sampler
        self._scheduler = scheduler
        self._outbox = outbox
        self._masks = Masks(runner.vocab_size)
        self._open: set[Sequence] = set()
        #: Tokens that a grammar forced before the first step; they are told with the first output.
        self._forced: dict[Sequence, list[SampledToken]] = {}
        self.counters = Counters()

    def add(self, sequence: Sequence) -> None:
        """Take in a new sequence."""
        self._open.add(sequence)
        self._scheduler.add(sequence)
        grammar = sequence.request.grammar
        if grammar is None:
            return
        result = _Result()
        _guarded(result, lambda: _jump(sequence, grammar, result))
        if result.ended:
            self._settle(sequence, result)
        elif result.tokens:
            self._forced[sequence] = result.tokens

    def plan(self, now: float) -> list[Work]:
        """Let go of who was cancelled or is late, and find who takes part in the next step."""
        for sequence in self._scheduler.sequences():
            deadline = sequence.request.deadline
            if sequence.stream.cancelled:
                self._end(sequence)
            elif deadline is not None and now >= deadline:
                self._fail(sequence, DeadlineExceeded("the deadline has passed"))
        works = self._scheduler.schedule(now)
        for sequence in self._scheduler.take_too_long():
            number = len(sequence.tokens)
            error = SequenceTooLong(f"the cache of keys and values has no room for {number} tokens")
            self._fail(sequence, error)
        return works

    def run(self, works: list[Work]) -> None:
        """Take a step."""
        started = time.monotonic()
        self.counters.steps += 1
        try:
            for work in works:
                if work.num_scores:
                    self._masks.fill(work.sequence)
            scores = self._runner.forward([_segment(work) for work in works])
        except Exception as error:
            self._masks.wait()
            self._step_failed(works, error)
            return
        results = self._draw(works, scores)
        for work in works:
            num_right = results[work.sequence].num_right
            work.sequence.num_computed += work.num_tokens + num_right
            self.counters.computed_tokens += work.num_tokens
            self._scheduler.guessed(work, num_right)
        seconds = time.monotonic() - started
        self.counters.busy_seconds += seconds
        self._scheduler.done(works, seconds)
        for work in works:
            self._cache.publish(work.sequence)
            self._settle(work.sequence, results[work.sequence])

    def fail(self, error: Exception) -> None:
        """End all sequences with an error."""
        for sequence in list(self._open):
            self._fail(sequence, error)

    def close(self) -> None:
        """End the thread of the grammars."""
        self._masks.close()

    # --- drawing ---

    def _draw(self, works: list[Work], scores: Scores) -> dict[Sequence, _Result]:
        """Draw after the last token of each sequence, and after each guess that came true."""
        results = {work.sequence: _Result() for work in works}
        drawing: list[tuple[Work, int]] = []
        row = 0
        for work in works:
            if work.num_scores:
                drawing.append((work, row))
                row += work.num_scores
        while drawing:
            rows = [SampleRow(work.sequence, self._mask(work, results)) for work, _ in drawing]
            drawn = self._sample(scores, [number for _, number in drawing], rows, results)
            right: list[tuple[Work, int]] = []
            for (work, number), token in zip(drawing, drawn, strict=True):
                result = results[work.sequence]
                if token is None:
                    continue
                guess = work.guesses[result.num_right : result.num_right + 1]
                _take(work.sequence, token, result)
                if [token.token] == guess:
                    result.num_right += 1
                    if not result.ended:
                        right.append((work, number + 1))
            drawing = right
        return results

    def _mask(self, work: Work, results: dict[Sequence, _Result]) -> Mask | None:
        mask = self._masks.get(work.sequence)
        if isinstance(mask, Exception):
            results[work.sequence].error = mask
            return None
        return mask

    def _sample(
        self,
        scores: Scores,
        numbers: list[int],
        rows: list[SampleRow],
        results: dict[Sequence, _Result],
    ) -> list[SampledToken | None]:
        """A token after each of these rows of scores; None and a result that says why if not."""
        good = [n for n, row in enumerate(rows) if results[row.sequence].error is None]
        drawn: list[SampledToken | None] = [None] * len(rows)
        try:
            picked = scores if len(good) == len(scores) else scores[[numbers[n] for n in good]]
            tokens = self._sampler.sample(picked, [rows[n] for n in good])
            for n, token in zip(good, tokens, strict=True):
                drawn[n] = token
        except Exception:
            # Which of them cannot be drawn shows when each is drawn alone.
            for n in good:
                try:
                    (drawn[n],) = self._sampler.sample(scores[[numbers[n]]], [rows[n]])
                except Exception as error:
                    _logger.exception("drawing failed")
                    results[rows[n].sequence].error = error
        return drawn

    # --- what becomes of sequences ---

    def _settle(self, sequence: Sequence, result: _Result) -> None:
        """Tell what a sequence got, and let go of it if it ended."""
        if result.tokens:
            forced = self._forced.pop(sequence, None)
            tokens = [*forced, *result.tokens] if forced else result.tokens
            self.counters.generated_tokens += len(tokens)
            output = TokenOutput(tuple(tokens), result.finish_reason)
            self._outbox.put(sequence.stream, output)
        if result.error is not None:
            self._fail(sequence, result.error)
        elif result.finish_reason is not None:
            self._end(sequence)

    def _step_failed(self, works: list[Work], error: Exception) -> None:
        _logger.error("step failed", exc_info=error, sequences=len(works))
        if not self._runner.rewinds:
            for work in works:
                work.sequence.state = None  # It may have taken in a part of the step.
        if _is_of_memory(error):
            self.counters.memory_errors += 1
            if not self._scheduler.shed(time.monotonic()):
                self._fail(works[0].sequence, error)
        elif len(works) == 1:
            self._fail(works[0].sequence, error)
        else:
            self._scheduler.suspect(works)
        if not self._runner.rewinds:
            self._scheduler.set_back(works)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        if sequence not in self._open:
            return
        self.counters.failures += 1
        self._outbox.put(sequence.stream, error)
        self._end(sequence)

    def _end(self, sequence: Sequence) -> None:
        self._open.remove(sequence)
        self.counters.ended += 1
        self.counters.ended_at.append(time.monotonic())
        self._masks.forget(sequence)
        self._forced.pop(sequence, None)
        self._scheduler.remove(sequence)
        self._outbox.let_go(sequence.stream)


def _segment(work: Work) -> Segment:
    sequence = work.sequence
    start = sequence.num_computed
    known = sequence.tokens[start : start + work.num_tokens]
    known.extend(work.guesses)
    return Segment(sequence, start, np.frombuffer(known, np.int32), work.num_scores)


def _take(sequence: Sequence, token: SampledToken, result: _Result) -> None:
    result.tokens.append(token)
    result.finish_reason = sequence.append(token.token)
    grammar = sequence.request.grammar
    if grammar is not None and result.finish_reason is None:

        def accept() -> None:
            grammar.accept(token.token)
            _jump(sequence, grammar, result)

        _guarded(result, accept)


def _jump(sequence: Sequence, grammar: Grammar, result: _Result) -> None:
    """Append what must come next without drawing it; the next step computes all of it at once."""
    while forced := grammar.forced_tokens():
        for token in forced:
            result.tokens.append(SampledToken(token))
            result.finish_reason = sequence.append(token)
            if result.finish_reason is not None:
                return
            grammar.accept(token)


def _guarded(result: _Result, act: Callable[[], None]) -> None:
    """What goes wrong with a grammar is its sequence's alone."""
    try:
        act()
    except Exception as error:
        _logger.exception("grammar failed")
        result.error = error


def _is_of_memory(error: Exception) -> bool:
    # torch has a class for the accelerator's memory and none for the host's.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )
