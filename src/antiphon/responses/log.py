"""The events of one response, in order, as they are sent.

Events are checked against the document and serialised once, when they are appended; any number of
readers then send the same bytes. Everything happens on the event loop's thread.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson

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


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event and the frame it is sent in."""

    event: StreamEvent
    frame: bytes


class EventLog:
    """Appended to by one builder, read by any number of readers, closed by its run."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._events: list[LoggedEvent] = []
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def next_number(self) -> int:
        """The `sequence_number` that the next event must have."""
        return len(self._events)

    @property
    def events(self) -> list[StreamEvent]:
        """All events so far."""
        return [logged.event for logged in self._events]

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
        if not self._contract.accepts_event(event):
            raise InvalidEvent(f"{event['type']} does not fit the document")
        self._events.append(LoggedEvent(event, _frame(event)))
        self._wake()

    def close(self) -> None:
        """Let readers end."""
        self._closed = True
        self._wake()

    async def tail(self, start: int = 0) -> AsyncIterator[LoggedEvent]:
        """Every event from number `start` on, past and to come, until the log is closed."""
        position = start
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self._closed:
                return
            # A future of its own, as cancelling a reader cancels what it waits for.
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()


def _frame(event: StreamEvent) -> bytes:
    data = orjson.dumps(event)
    if not data.isascii():
        for raw, escaped in _SEPARATORS.items():
            data = data.replace(raw, escaped)
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data)
