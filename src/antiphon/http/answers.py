"""The two forms a run is answered in. Both stop the model when the client goes away."""

import asyncio
from collections.abc import Sequence

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antiphon.errors import GatewayTimeout
from antiphon.http.edge import body_send
from antiphon.responses.gate import Dropped
from antiphon.responses.log import DONE
from antiphon.responses.run import Run

_MAX_HEADER = 2048  # Bytes; proxies refuse much longer headers.


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
    """The response as one object, once it has ended.

    Raises `GatewayTimeout` after `timeout_seconds`, and the reason if the server is stopping.
    """

    def __init__(self, run: Run, headers: dict[str, str], *, timeout_seconds: float) -> None:
        super().__init__(media_type="application/json", headers=headers)
        self._run = run
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await self._run.wait(gone, timeout_seconds=self._timeout_seconds)
            if not self._run.ended:
                if gone.done():
                    return
                raise GatewayTimeout(
                    f"The response took longer than {self._timeout_seconds:g} seconds. "
                    "Ask for a stream instead."
                )
            if self._run.stop_reason is not None:
                raise self._run.stop_reason
            body = orjson.dumps(self._run.result())
        finally:
            gone.cancel()
            self._run.cancel()
        self.headers["content-length"] = str(len(body))
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body})


class EventStream(Response):
    """The response as server-sent events, one write for each."""

    def __init__(self, run: Run, headers: dict[str, str]) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={
                "cache-control": "no-cache, no-store, no-transform",
                "x-accel-buffering": "no",
                **headers,
            },
        )
        del self.headers["content-length"]
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._watch(receive))
        # In a task of its own, as waking this one for each event would go through every
        # middleware's frame: a tenth of all that an event costs.
        sender = asyncio.create_task(self._send_all(send, body_send(scope, send)))
        try:
            await sender
        finally:
            sender.cancel()
            watcher.cancel()
            self._run.cancel()

    async def _send_all(self, send_head: Send, send: Send) -> None:
        await send_head({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        log, sent = self._run.log, 0
        while frames := await log.frames_from(sent):
            for frame in frames:
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            sent += len(frames)
        await send({"type": "http.response.body", "body": DONE})

    async def _watch(self, receive: Receive) -> None:
        await _disconnected(receive)
        self._run.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
