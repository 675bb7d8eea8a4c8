"""The engine: a thread that takes all running sequences further, step by step."""

import asyncio
import math
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from antiphon.engine.cache import SequenceCache
from antiphon.engine.core import EngineCore
from antiphon.engine.outbox import Outbox
from antiphon.engine.runners.base import ModelRunner
from antiphon.engine.sampler import Sampler
from antiphon.engine.scheduler import DeadlineExceeded, Scheduler, SequenceTooLong
from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest
from antiphon.engine.speculation import Speculator
from antiphon.engine.step_costs import StepCosts

__all__ = [
    "DeadlineExceeded",
    "Engine",
    "EngineClosed",
    "EngineOptions",
    "QueueFull",
    "SequenceTooLong",
    "StepStuck",
]

_logger = structlog.get_logger("antiphon.engine")

#: Nobody is told to come back later than this.
_LONGEST_RETRY = 60


class EngineClosed(Exception):
    """The engine stopped before the sequence was done."""


class StepStuck(Exception):
    """A step of the sequence did not come to its end in time."""


class QueueFull(Exception):
    """As many sequences wait as may. Try again after `retry_after_seconds`, at least 1."""

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"too many sequences wait; try again in {retry_after_seconds} s")
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """At most `max_running` sequences are computed at once and `max_waiting` more wait.

    `max_chunk` is how many tokens of prompts one step computes at most. With `speculate`, tokens
    are guessed ahead where that pays. A step that takes longer than `step_timeout_seconds` fails
    its sequences; None for no limit.
    """

    max_running: int = 16
    max_waiting: int = 256
    max_chunk: int = 256
    speculate: bool = True
    step_timeout_seconds: float | None = 120.0


class Engine:
    """Runs sequences on a thread of its own, which owns `runner`, `cache` and `sampler`.

    Between steps it takes in new sequences and drops cancelled ones. What a step made is handed to
    the event loops that wait for it after the step. Close it, or its thread stays.
    """

    def __init__(
        self,
        runner: ModelRunner,
        cache: SequenceCache,
        sampler: Sampler,
        options: EngineOptions,
    ) -> None:
        costs = StepCosts()
        self._speculator = Speculator(costs) if options.speculate and runner.rewinds else None
        self._scheduler = Scheduler(
            cache,
            costs,
            self._speculator,
            max_running=options.max_running,
            max_chunk=options.max_chunk,
        )
        self._outbox = Outbox()
        self._core = EngineCore(runner, cache, sampler, self._scheduler, self._outbox)
        self._runner = runner
        self._cache = cache
        self._options = options
        self._about_runner = runner.stats()
        self._about_cache = cache.stats()
        self._submitted: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._num_submitted = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._closed = False
        self._watchdog = _Watchdog(options.step_timeout_seconds)
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    @property
    def vocab_size(self) -> int:
        """Tokens that the model gives scores to."""
        return self._runner.vocab_size

    @property
    def num_steps(self) -> int:
        """Forward passes so far."""
        return self._core.counters.steps

    def submit(self, request: SequenceRequest) -> EngineStream:
        """Begin a sequence. Call it on the event loop that will read the stream.

        Raises `QueueFull`, `SequenceTooLong` if even its prompt has no room in the cache, and
        `EngineClosed`.
        """
        if self._closing.is_set():
            raise EngineClosed("the engine was stopped")
        if not self._cache.fits(len(request.tokens)):
            number = len(request.tokens)
            raise SequenceTooLong(f"the cache of keys and values has no room for {number} tokens")
        with self._lock:
            num_open = self._num_submitted - self._core.counters.ended
            if num_open >= self._options.max_running + self._options.max_waiting:
                raise QueueFull(self._retry_after_seconds())
            self._num_submitted += 1
        stream = EngineStream(asyncio.get_running_loop())
        self._submitted.put(Sequence(request, stream))
        if self._closing.is_set():
            # The thread may have looked for the last time.
            stream.publish(EngineClosed("the engine was stopped"))
        return stream

    def close(self) -> None:
        """Drop everything, wait for the thread and close the cache and the runner.

        A thread that is stuck in a step is left behind, and the runner with it.
        """
        self._closing.set()
        self._submitted.put(None)
        while self._thread.is_alive() and not self._watchdog.stuck:
            self._thread.join(0.5)
        self._watchdog.close()
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._cache.close()
        if self._thread.is_alive():
            for sequence in self._scheduler.sequences():
                sequence.stream.publish(EngineClosed("the engine was stopped"))
        else:
            self._runner.close()

    def stats(self) -> dict[str, Any]:
        """How it fares, for `GET /v1/status` and the metrics. For any thread."""
        counters = self._core.counters
        speculator = self._speculator
        return {
            "path": self._runner.path,
            "reason": self._runner.reason,
            "healthy": not self._watchdog.stuck,
            "running": self._scheduler.num_running,
            "waiting": self._scheduler.num_waiting + self._submitted.qsize(),
            "steps": counters.steps,
            "preemptions": self._scheduler.num_preempted,
            "cache": self._about_cache,
            "speculation": {
                "proposed_tokens": speculator.num_proposed if speculator else 0,
                "accepted_tokens": speculator.num_accepted if speculator else 0,
            },
            "computed_tokens": counters.computed_tokens,
            "generated_tokens": counters.generated_tokens,
            "busy_seconds": counters.busy_seconds,
            "failures": counters.failures,
            "memory_errors": counters.memory_errors,
            "runner": self._about_runner,
        }

    def _retry_after_seconds(self) -> int:
        """Until a tenth of those that wait have been served, going by the last that were."""
        ended_at = list(self._core.counters.ended_at)
        if len(ended_at) < 2:
            return 1
        seconds_each = (time.monotonic() - ended_at[0]) / len(ended_at)
        wanted = math.ceil(seconds_each * self._options.max_waiting / 10)
        return min(max(1, wanted), _LONGEST_RETRY)

    # --- on the engine's thread ---

    def _loop(self) -> None:
        try:
            while not self._closing.is_set():
                self._take_in()
                if not self._closing.is_set():
                    self._step()
        finally:
            # Also when a fault of ours ends the thread: nobody may wait for what will not come.
            self._closing.set()
            while not self._submitted.empty():
                self._take_in()
            self._core.fail(EngineClosed("the engine was stopped"))
            self._core.close()
            self._outbox.flush()

    def _take_in(self) -> None:
        """Take what was submitted, waiting for it if there is nothing else to do."""
        while True:
            idle = not self._scheduler.num_running and not self._scheduler.num_waiting
            if idle:
                self._outbox.flush()  # A sequence may end without a step.
            try:
                sequence = self._submitted.get(block=idle)
            except queue.Empty:
                return
            if sequence is None:
                return
            self._core.add(sequence)

    def _step(self) -> None:
        try:
            works = self._core.plan(time.monotonic())
            if works:
                self._watchdog.begin(work.sequence.stream for work in works)
                self._core.run(works)
        except Exception as error:
            # A fault of ours, not the model's: what is noted of sequences and blocks may be wrong.
            _logger.exception("engine failed")
            self._core.fail(error)
        finally:
            self._watchdog.end()
        self._about_cache = self._cache.stats()
        self._outbox.flush()


class _Watchdog:
    """Tells the streams of a step that takes too long, as the thread in it cannot be stopped."""

    def __init__(self, timeout_seconds: float | None) -> None:
        self._timeout = timeout_seconds
        self._step: tuple[float, list[EngineStream]] | None = None
        self._closing = threading.Event()
        self.stuck = False
        self._thread: threading.Thread | None = None
        if timeout_seconds is not None:
            self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)
            self._thread.start()

    def begin(self, streams: Iterable[EngineStream]) -> None:
        self._step = (time.monotonic(), list(streams))

    def end(self) -> None:
        self._step = None
        self.stuck = False

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        assert self._timeout is not None
        told = None
        while not self._closing.wait(self._timeout / 4):
            step = self._step
            if step is None or step is told or time.monotonic() - step[0] < self._timeout:
                continue
            told = step
            self.stuck = True
            _logger.error("step stuck", sequences=len(step[1]), seconds=self._timeout)
            for stream in step[1]:
                stream.publish(StepStuck("a step of the model did not come to its end"))
                stream.cancel()  # What the step may yet make of it is of no use to anybody.
            if self._step is not step:
                self.stuck = False  # It has just come to its end after all.
