"""Clients that want a response whatever happens to its servers, and remember all they were told."""

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx
import orjson
from scenes import TOOLS

_PAUSE_SECONDS = 0.03
_DONE = b"data: [DONE]"


class Unreachable(Exception):
    """A server is not there, or went away while it answered."""


class Reader:
    """Creates one stored response and reads it to its end, by way of whatever server is there.

    `seen` are all frames it got, by number, and `complaints` what no client should see. With a
    `key` it sends its request again where that was not answered; without, nobody may ever know of
    what came of it, and it is `lost`.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        servers: Callable[[], Sequence[str]],
        scene: str,
        key: str,
        *,
        background: bool,
    ) -> None:
        self.scene = scene
        self.id: str | None = None
        self.seen: dict[int, bytes] = {}
        self.complaints: list[str] = []
        self.num_resumed = 0
        self.lost = False
        self.done_at: float | None = None
        self._http = http
        self._servers = servers
        self._key = key
        self._background = background
        self._turn = 0

    async def run(self) -> None:
        """Read it to its end."""
        while self.done_at is None and not self.lost and not self.complaints:
            try:
                if self.id is None:
                    await self._create()
                else:
                    self.num_resumed += 1
                    await self._resume(self.id)
            except Unreachable:
                self._turn += 1
                self.lost = self.id is None and not self._key
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _create(self) -> None:
        body = {"input": self.scene, "tools": TOOLS, "stream": True}
        body["background"] = self._background
        headers = {"idempotency-key": self._key} if self._key else {}
        await self._read("POST", "/v1/responses", 0, json=body, headers=headers)

    async def _resume(self, response_id: str) -> None:
        number = max(self.seen)
        path = f"/v1/responses/{response_id}?stream=true&starting_after={number}"
        await self._read("GET", path, number + 1)

    async def _read(self, method: str, path: str, number: int, **options: object) -> None:
        servers = self._servers()
        url = servers[self._turn % len(servers)] + path
        try:
            async with self._http.stream(method, url, **options) as answer:  # type: ignore[arg-type]
                if answer.status_code != 200:
                    text = (await answer.aread()).decode()
                    self.complaints.append(f"{method} {path}: {answer.status_code} {text}")
                    return
                rest = b""
                async for data in answer.aiter_raw():
                    *frames, rest = (rest + data).split(b"\n\n")
                    for frame in frames:
                        if frame == _DONE:
                            self.done_at = time.monotonic()
                            return
                        self._take(number, frame)
                        number += 1
                raise Unreachable
        except httpx.TransportError as error:
            raise Unreachable from error

    def _take(self, number: int, frame: bytes) -> None:
        event = orjson.loads(frame[frame.index(b"\ndata: ") + 7 :])
        if event["sequence_number"] != number:
            self.complaints.append(f"{self.id}: number {event['sequence_number']} is not {number}")
        if self.seen.setdefault(number, frame) != frame:
            self.complaints.append(f"{self.id}: number {number} has changed")
        if number == 0:
            self.id = event["response"]["id"]
