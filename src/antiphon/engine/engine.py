"""The engine's loop: a thread that takes all running sequences further, step by step."""

import asyncio
import queue
import threading

import structlog

from antiphon.engine.model_runner import ModelRunner
from antiphon.engine.sequence import (
    EngineStream,
    Sequence,
    SequenceRequest,
    TokenOutput,
)

_logger = structlog.get_logger("antiphon.engine")


class EngineClosed(Exception):
    """The engine stopped before the sequence was done."""


class Engine:
    """Runs up to `max_running` sequences at once; more wait in the order they came.

    One pass of one sequence is a step. Between steps the loop looks for new sequences and drops
    cancelled ones. A step that fails ends its sequence and no other.
    """

    def __init__(self, runner: ModelRunner, *, max_running: int) -> None:
        self._runner = runner
        self._max_running = max_running
        self._submitted: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._closing = False
        self._num_steps = 0
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_steps(self) -> int:
        """Passes so far."""
        return self._num_steps

    def submit(self, request: SequenceRequest) -> EngineStream:
        """Begin a sequence. Call it on the event loop that will read the stream."""
        stream = EngineStream(asyncio.get_running_loop())
        self._submitted.put(Sequence(request, stream))
        if self._closing:
            # The thread may have looked for the last time.
            stream.publish(EngineClosed("the engine was stopped"))
        return stream

    def close(self) -> None:
        """Drop everything and wait for the thread."""
        self._closing = True
        self._submitted.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while not self._closing:
            self._admit()
            for sequence in self._scheduled():
                if not self._closing:
                    self._step(sequence)
        while not self._submitted.empty():
            self._admit()
        for sequence in [*self._running, *self._waiting]:
            sequence.stream.publish(EngineClosed("the engine was stopped"))

    def _scheduled(self) -> list[Sequence]:
        """Who takes a step now: all that are speaking, and one whose prompt is being computed, so
        that long prompts do not hold up the others."""
        speaking = [s for s in self._running if s.prefilled]
        return speaking + [s for s in self._running if not s.prefilled][:1]

    def _admit(self) -> None:
        """Take in what was submitted, waiting for it if there is nothing else to do."""
        while True:
            idle = not self._running and not self._waiting
            try:
                sequence = self._submitted.get(block=idle)
            except queue.Empty:
                break
            if sequence is None:
                return
            self._waiting.append(sequence)
        self._waiting = [s for s in self._waiting if not s.stream.cancelled]
        while self._waiting and len(self._running) < self._max_running:
            self._running.append(self._waiting.pop(0))

    def _step(self, sequence: Sequence) -> None:
        if sequence.stream.cancelled:
            self._running.remove(sequence)
            return
        self._num_steps += 1
        try:
            sampled = self._runner.run(sequence)
        except Exception as error:
            _logger.exception("step failed")
            self._running.remove(sequence)
            sequence.stream.publish(error)
            return
        if sampled is None:
            return
        finish_reason = sequence.append(sampled.token)
        if finish_reason is not None:
            self._running.remove(sequence)
        sequence.stream.publish(TokenOutput((sampled,), finish_reason))
