"""One response being made."""

import asyncio
from contextlib import aclosing

import structlog

from antiphon.errors import APIError, ServerError
from antiphon.models.base import Generation
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.fold import fold
from antiphon.responses.log import EventLog
from antiphon.spec.types import Response
from antiphon.turn import Finish, TokenUsage

_logger = structlog.get_logger("antiphon.responses")


class Run:
    """Reads a model's deltas and has their events written, in a task of its own.

    Readers tail `log`. The run ends with the log closed: after a terminal event, or without one if
    it was cancelled because nobody will read it. `stop_reason` is why `stop` was called, if it was.
    """

    def __init__(
        self,
        generation: Generation,
        builder: ResponseBuilder,
        log: EventLog,
        *,
        keep_alive_seconds: float,
    ) -> None:
        self.log = log
        self._generation = generation
        self._builder = builder
        self._keep_alive_seconds = keep_alive_seconds
        self._task: asyncio.Task[None] | None = None
        self._concluding = False
        self.stop_reason: APIError | None = None

    @property
    def usage(self) -> TokenUsage:
        """The tokens so far."""
        return self._generation.usage

    @property
    def task(self) -> asyncio.Task[None]:
        """What makes it. It never raises but when it is cancelled."""
        assert self._task is not None
        return self._task

    def start(self) -> asyncio.Task[None]:
        """Announce the response and begin; the generation was started."""
        self._builder.start()
        return self.go()

    def go(self) -> asyncio.Task[None]:
        """Begin with a response that was announced."""
        self._task = asyncio.create_task(self._work())
        self._task.add_done_callback(self._ended)
        return self._task

    @property
    def outcome(self) -> str:
        """How it ended: `completed`, `incomplete`, `failed`, or `cancelled` if nobody was told."""
        last = self.log.events[-1]["type"].removeprefix("response.") if self.log.events else ""
        return last if last in ("completed", "incomplete", "failed") else "cancelled"

    @property
    def ended(self) -> bool:
        """Whether no event will follow."""
        return self.log.closed

    def result(self) -> Response:
        """The response, as far as it is made."""
        return fold(self.log.events)

    def cancel(self) -> None:
        """Stop the model. For a response that nobody reads any more."""
        # What is whole already is not thrown away.
        if self._task is not None and not self._concluding:
            self._task.cancel()

    def stop(self, reason: APIError) -> None:
        """Stop the model and end the response as failed, for readers that are still there."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.cancel()

    def _ended(self, _: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step never comes to doing this itself.
        self._generation.cancel()
        self.log.close()

    async def _work(self) -> None:
        ticker = _Ticker(self._keep_alive_seconds, self.log, self)
        try:
            try:
                finish = await self._generate()
                self._builder.finish(finish, self.usage)
            except asyncio.CancelledError:
                if self.stop_reason is None:
                    raise
                await self._stopped(self.stop_reason)
            except APIError as error:
                self._fail(error)
            except Exception:
                _logger.exception("run failed")
                self._fail(ServerError("The model failed while it answered."))
            ticker.stop()
            self._concluding = True
            await self._conclude()
        finally:
            ticker.stop()
            self.log.close()

    async def _generate(self) -> Finish:
        async with aclosing(self._generation.deltas()) as deltas:
            async for delta in deltas:
                if isinstance(delta, Finish):
                    return delta
                self._builder.feed(delta)
        raise RuntimeError("the model ended without saying how")

    async def _stopped(self, reason: APIError) -> None:
        """End the response after its model was stopped."""
        self._fail(reason)

    async def _conclude(self) -> None:
        """See to it that the end is known."""

    def keep_alive(self) -> None:
        """Say something for readers that would give up on silence."""
        self._builder.keep_alive()

    def _fail(self, error: APIError) -> None:
        try:
            self._builder.fail(error, self.usage)
        except Exception:
            # Without a terminal event, but it still ends.
            _logger.exception("run could not be ended properly")


class _Ticker:
    """Has a run say something whenever nothing was said for `seconds`."""

    def __init__(self, seconds: float, log: EventLog, run: Run) -> None:
        self._seconds = seconds
        self._log = log
        self._run = run
        self._seen = log.next_number
        self._schedule()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(self._seconds, self._tick)

    def _tick(self) -> None:
        if self._log.next_number == self._seen:
            self._run.keep_alive()
        self._seen = self._log.next_number
        self._schedule()

    def stop(self) -> None:
        self._handle.cancel()
