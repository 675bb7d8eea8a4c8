"""Logs that are stored: what they take in is committed before any reader gets it.

The events of all runs of this process that are there at one moment are committed together. What
comes after some quiet is committed at once, and so are ends. Otherwise a pause that nobody sees is
between two commits, as one costs about a tenth of what a small model needs for a token.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from antiphon.errors import ServerError
from antiphon.responses.log import EventLog, read_frame
from antiphon.spec import Contract
from antiphon.spec.types import Response, StreamEvent
from antiphon.store.base import Runs
from antiphon.store.failures import LeaseLost, StoreError, StoreUnavailable
from antiphon.store.records import Append, Lease

_logger = structlog.get_logger("antiphon.responses")

#: They tell of a state only: a run that wrote no others can be begun again.
_STATES = {"response.created", "response.queued", "response.in_progress"}


class Journal:
    """Commits what the logs of this process take in.

    A log keeps about as many events and bytes as the store does, in memory while its run goes on.
    `contract` checks the events. `pause_seconds` are from one commit to the next, unless that has
    an end.
    """

    def __init__(
        self,
        runs: Runs,
        contract: Contract,
        *,
        events_per_run: int,
        event_bytes_per_run: int,
        pause_seconds: float = 0.02,
    ) -> None:
        self._runs = runs
        self.contract = contract
        self.events_per_run = events_per_run
        self.event_bytes_per_run = event_bytes_per_run
        self._pause_seconds = pause_seconds
        self._dirty: dict[StoredLog, None] = {}
        self._writer: asyncio.Task[None] | None = None
        #: Ends the pause.
        self._pause: asyncio.Future[None] | None = None

    def new_log(self) -> "StoredLog":
        """A log of a response that is not stored yet. Its events wait until it is `attach`ed."""
        return StoredLog(self)

    def resumed_log(self, lease: Lease, first: int, frames: Sequence[bytes]) -> "StoredLog":
        """The log of a response that another worker began."""
        log = StoredLog(self)
        log.resume(lease, first, frames)
        return log

    def wrote(self, log: "StoredLog", *, at_once: bool = False) -> None:
        """Note that a log has something to be committed. For logs."""
        self._dirty[log] = None
        if at_once:
            self._hurry()
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._dirty:
            logs = {log: log.take() for log in self._dirty}
            self._dirty.clear()
            try:
                lost = set(await self._runs.append(list(logs.values())))
            except Exception as error:
                if not isinstance(error, StoreError):
                    _logger.exception("events not committed")
                for log in logs:
                    log.failed(StoreUnavailable(str(error)))
                continue
            for log, append in logs.items():
                if append.lease in lost:
                    log.failed(LeaseLost(append.lease.response_id))
                else:
                    log.committed(append)
            if not any(log.ends for log in self._dirty):
                await self._rest()

    async def _rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._pause = loop.create_future()
        timer = loop.call_later(self._pause_seconds, self._hurry)
        try:
            await self._pause
        finally:
            timer.cancel()

    def _hurry(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)


def unheard(_: Exception) -> None:
    """For a log whose failure is nobody's concern."""


class StoredLog(EventLog):
    """A log whose readers get what is committed, and nothing else.

    If that fails, or another process has taken the run over, `on_failure` is called, once. After
    `detach` what is appended is told to readers all the same, without being stored: it is how they
    learn that it failed.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal.contract)
        self._journal = journal
        self._lease: Lease | None = None
        self._num_taken = 0
        self._num_bytes = 0
        self._end: Response | None = None
        #: Done once the end is committed.
        self._ending: asyncio.Future[None] | None = None
        self._detached = False
        self._has_output = False
        self._failure: Exception | None = None
        self.on_failure: Callable[[Exception], None] = unheard

    @property
    def lease(self) -> Lease:
        """The right to write it. It is there once the response is stored."""
        assert self._lease is not None
        return self._lease

    @property
    def has_output(self) -> bool:
        """Whether output was written, so that the run cannot be begun again."""
        return self._has_output

    @property
    def ends(self) -> bool:
        """Whether its end is still to be committed."""
        return self._end is not None

    @property
    def told_end(self) -> bool:
        """Whether readers know how it ended, be it stored or not."""
        return self._detached or (self._ending is not None and self._failure is None)

    @property
    def frames(self) -> Sequence[bytes]:
        """The frames that are kept, committed or not."""
        return self._frames

    def attach(self, lease: Lease) -> None:
        """The response was stored with the events so far."""
        self._lease = lease
        self._num_taken = self.next_number
        self._publish(self.next_number)

    def resume(self, lease: Lease, first: int, frames: Sequence[bytes]) -> None:
        """Begin behind events that another process has stored."""
        self._first = first
        self._frames = list(frames)
        self._events = [read_frame(frame) for frame in frames]
        self._num_bytes = sum(map(len, frames))
        self._has_output = any(event["type"] not in _STATES for event in self._events)
        self.attach(lease)

    async def end(self, response: Response) -> None:
        """Commit what is left and the final response, output included.

        Raises `StoreUnavailable` or `LeaseLost`; then readers were not told that it ended.
        """
        if self._failure is not None:
            raise self._failure
        self._end = response
        self._ending = asyncio.get_running_loop().create_future()
        self._journal.wrote(self, at_once=True)
        await asyncio.shield(self._ending)

    def detach(self) -> None:
        """Take back what could not be committed, and store nothing any more."""
        self._detached = True
        kept = self._num_published - self._first
        del self._frames[kept:], self._events[kept:]

    def take(self) -> Append:
        """What is to be committed now. For the journal, as are the next two."""
        first, self._num_taken = self._num_taken, self.next_number
        frames = self._frames[first - self._first :]
        events = self._events[first - self._first :]
        end, self._end = self._end, None
        return Append(
            self.lease,
            first,
            frames,
            published=self._has_output,
            durable=end is not None
            or any(event["type"] == "response.output_item.done" for event in events),
            end=end,
        )

    def committed(self, append: Append) -> None:
        """Let readers have what was committed."""
        self._publish(append.first + len(append.frames))
        self._trim(append.first)
        if append.end is not None and self._ending is not None:
            self._ending.set_result(None)

    def failed(self, error: Exception) -> None:
        """Nothing of this log is committed any more."""
        if self._ending is not None and not self._ending.done():
            self._ending.set_exception(error)
        if self._failure is None:
            self._failure = error
            self.on_failure(error)

    def _admit(self, event: StreamEvent, frame: bytes) -> None:
        if len(frame) > self._journal.event_bytes_per_run:
            raise ServerError(
                f"An event of {len(frame)} bytes cannot be kept: "
                f"the limit is {self._journal.event_bytes_per_run}."
            )
        self._num_bytes += len(frame)

    def _appended(self, event: StreamEvent) -> None:
        self._has_output = self._has_output or event["type"] not in _STATES
        if self._detached:
            self._publish(self.next_number)
        elif self._lease is not None and self._failure is None:
            self._journal.wrote(self)

    def _trim(self, before: int) -> None:
        """Forget the oldest events, some at a time, once there are too many. Those from number
        `before` on stay, as even the quickest reader has not got them yet."""
        limits = self._journal
        slack = 17 / 16
        if (
            len(self._frames) <= limits.events_per_run * slack
            and self._num_bytes <= limits.event_bytes_per_run * slack
        ):
            return
        number = 0
        while number < before - self._first and (
            len(self._frames) - number > limits.events_per_run
            or self._num_bytes > limits.event_bytes_per_run
        ):
            self._num_bytes -= len(self._frames[number])
            number += 1
        del self._frames[:number], self._events[:number]
        self._first += number
