"""The events of one response, in order, as they are sent.

Events are checked against the document and serialised once, when they are appended; any number of
readers then send the same bytes. Everything happens on the event loop's thread.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Protocol, cast

import orjson

from antiphon.errors import APIError
from antiphon.spec import Contract
from antiphon.spec.types import StreamEvent

#: Ends every stream. It is no event and has no number.
DONE = b"data: [DONE]\n\n"

# Line separators to some readers though not to SSE. In JSON they stand only inside strings, where
# the escape means the same.
_SEPARATORS = {
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
    "\x85".encode(): b"\\u0085",
}


class InvalidEvent(Exception):
    """An event does not fit the document: a fault of the server, whatever the request."""


class EventsGone(Exception):
    """The events that a reader wants are not kept any more; those from `first` on are."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


class Tail(Protocol):
    """The events of a response, wherever they are written."""

    async def frames_from(self, number: int) -> Sequence[bytes]:
        """The frames of the events from `number` on, at least one; none once all are read.

        Call it again with the number after the last one that was read. Raises `EventsGone`, or an
        `APIError` if they cannot be had any more.
        """
        ...


class EventLog:
    """Appended to by one builder, read by any number of readers, closed by its run."""

    def __init__(self, contract: Contract) -> None:
        self._accepts = contract.accepts_event
        self._first = 0
        self._events: list[StreamEvent] = []
        self._frames: list[bytes] = []
        self._num_published = 0
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def next_number(self) -> int:
        """The `sequence_number` that the next event must have."""
        return self._first + len(self._frames)

    @property
    def events(self) -> Sequence[StreamEvent]:
        """All events so far, as far as they are kept."""
        return self._events

    @property
    def closed(self) -> bool:
        """Whether no event will follow."""
        return self._closed

    def append(self, event: StreamEvent) -> None:
        """Check, serialise and publish an event. Raises `InvalidEvent` and then appends nothing."""
        if self._closed:
            raise InvalidEvent(f"{event['type']} after the log was closed")
        if event["sequence_number"] != self.next_number:
            raise InvalidEvent(f"{event['type']} is number {event['sequence_number']}")
        if not self._accepts(event):
            raise InvalidEvent(f"{event['type']} does not fit the document")
        frame = _frame(event)
        self._admit(event, frame)
        self._frames.append(frame)
        self._events.append(event)
        self._appended(event)

    def close(self) -> None:
        """Let readers end."""
        self._closed = True
        self._wake()

    async def frames_from(self, number: int) -> Sequence[bytes]:
        """As `Tail` has it."""
        while number >= self._num_published and not self._closed:
            # A future of its own, as cancelling a reader cancels what it waits for.
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        if number < self._first:
            raise EventsGone(self._first)
        return self._frames[number - self._first : self._num_published - self._first]

    def _admit(self, event: StreamEvent, frame: bytes) -> None:
        """Refuse an event that cannot be kept. Raises whatever its run is to fail with."""

    def _appended(self, event: StreamEvent) -> None:
        """See to it that readers get it, sooner or later."""
        self._publish(self.next_number)

    def _publish(self, end: int) -> None:
        """Let readers have the events before number `end`."""
        self._num_published = end
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()


def read_frame(frame: bytes) -> StreamEvent:
    """The event of a frame that a log wrote."""
    return cast(StreamEvent, orjson.loads(frame[frame.index(b"\ndata: ") + 7 :]))


def error_frame(number: int, error: APIError) -> bytes:
    """The frame that ends one reader's stream, as its event `number`, and stands in no log."""
    event = {
        "type": "error",
        "sequence_number": number,
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "error": error.detail(),
    }
    return _frame(cast(StreamEvent, event))


def _frame(event: StreamEvent) -> bytes:
    data = orjson.dumps(event)
    if not data.isascii():
        for raw, escaped in _SEPARATORS.items():
            data = data.replace(raw, escaped)
    return b"".join((_head(event["type"]), data, b"\n\n"))


@cache
def _head(kind: str) -> bytes:
    """The beginning of an event's frame."""
    return f"event: {kind}\ndata: ".encode()
