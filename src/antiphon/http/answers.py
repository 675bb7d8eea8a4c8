"""The two forms a response is answered in. Both tell it when the client goes away."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antiphon.errors import APIError, GatewayTimeout
from antiphon.http.edge import body_send
from antiphon.responses.answers import Answer
from antiphon.responses.gate import Dropped
from antiphon.responses.log import DONE, EventsGone, Tail, error_frame
from antiphon.responses.stored import events_expired

_MAX_HEADER = 2048  # Bytes; proxies refuse much longer headers.
#: Of events that are written together. They fit in one packet, as there are readers that lose what
#: comes in two.
_PACKET_BYTES = 1300


def dropped_headers(dropped: Sequence[Dropped]) -> dict[str, str]:
    """The header that names what was left out, if anything was."""
    if not dropped:
        return {}
    named: list[str] = []
    size = 0
    for entry in dropped:
        # Names of unknown fields are the client's own.
        path = entry.path.encode("ascii", "backslashreplace").decode()[:64]
        path = "".join(char if char.isprintable() and char != "," else "?" for char in path)
        size += len(path) + 2
        if size > _MAX_HEADER:
            named.append(f"and {len(dropped) - len(named)} more")
            break
        named.append(path)
    return {"antiphon-dropped": ", ".join(named)}


class JsonAnswer(Response):
    """The response as one object, once it can be given.

    Raises `GatewayTimeout` after `timeout_seconds`, and whatever keeps it from being given.
    """

    def __init__(self, answer: Answer, headers: dict[str, str], *, timeout_seconds: float) -> None:
        super().__init__(media_type="application/json", headers=headers)
        self._answer = answer
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        result = asyncio.create_task(self._answer.result())
        try:
            await asyncio.wait(
                (result, gone),
                timeout=self._timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not result.done():
                if gone.done():
                    return
                raise GatewayTimeout(
                    f"The response took longer than {self._timeout_seconds:g} seconds. "
                    "Ask for a stream instead."
                )
            body = orjson.dumps(result.result())
        finally:
            gone.cancel()
            result.cancel()
            self._answer.leave()
        self.headers["content-length"] = str(len(body))
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body})


class EventStream(Response):
    """Events from number `first` on as server-sent events; small ones that are there together are
    written together.

    `leave` is called when the client has all or is gone; a client that takes nothing for
    `write_timeout_seconds` counts as gone, None for never.
    """

    def __init__(
        self,
        tail: Tail,
        leave: Callable[[], None],
        headers: dict[str, str],
        *,
        first: int = 0,
        write_timeout_seconds: float | None = None,
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={
                "cache-control": "no-cache, no-store, no-transform",
                "x-accel-buffering": "no",
                **headers,
            },
        )
        del self.headers["content-length"]
        self._tail = tail
        self._leave = leave
        self._next = first
        self._write_timeout_seconds = write_timeout_seconds
        #: The number being written, None between writes.
        self._writing: int | None = None
        #: Looks after writes; none while nothing is written, so that idle streams cost nothing.
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # In a task of its own, as waking this one for each event would go through every
        # middleware's frame: a tenth of all that an event costs.
        sender = asyncio.create_task(self._send_all(send, body_send(scope, send)))
        watcher = asyncio.create_task(self._watch_client(receive, sender))
        try:
            await asyncio.wait({sender})
            if not sender.cancelled():
                sender.result()
        finally:
            sender.cancel()
            watcher.cancel()
            if self._timer is not None:
                self._timer.cancel()
            self._leave()

    async def _send_all(self, send_head: Send, send: Send) -> None:
        sender = asyncio.current_task()
        assert sender is not None
        await send_head({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            while frames := await self._tail.frames_from(self._next):
                if self._timer is None:
                    self._watch_writes(sender, self._next)
                for some in _writes(frames):
                    self._writing = self._next
                    body = b"".join(some)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    self._next += len(some)
                self._writing = None
        except (EventsGone, APIError) as error:
            told = events_expired(error.first) if isinstance(error, EventsGone) else error
            frame = error_frame(self._next, told)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": DONE})

    async def _watch_client(self, receive: Receive, sender: "asyncio.Task[None]") -> None:
        await _disconnected(receive)
        sender.cancel()

    def _watch_writes(self, sender: "asyncio.Task[Any]", number: int) -> None:
        """Look in a while whether event `number` is still being written."""
        if self._write_timeout_seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._write_timeout_seconds, self._look, sender, number)

    def _look(self, sender: "asyncio.Task[Any]", number: int) -> None:
        self._timer = None
        if self._writing == number:
            sender.cancel()
        elif self._writing is not None:
            self._watch_writes(sender, self._writing)


def _writes(frames: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Frames by what is written at once: each in one piece."""
    begin = num_bytes = 0
    for place, frame in enumerate(frames):
        if begin < place and num_bytes + len(frame) > _PACKET_BYTES:
            yield frames[begin:place]
            begin, num_bytes = place, 0
        num_bytes += len(frame)
    yield frames[begin:]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
