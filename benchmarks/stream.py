"""Server CPU for each event of a stream, from the model's delta to the socket.

    python benchmarks/stream.py

Streams scripted answers of 1,000 deltas to 1 and to 50 clients at once. Every event is built,
checked against the document, serialised and written. Beside it, in the same rounds, a bare
Starlette application that writes ready-made frames of the same size. Limit: 20 µs an event at 50
streams.
"""

import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from common import Peer, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from antiphon.app import build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings, Settings, StepSettings

_ROUNDS = 9
_DELTAS = 1000
_REQUEST = (
    b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b'content-length: 28\r\n\r\n{"input":"hi","stream":true}'
)

_END = b"data: [DONE]\n\n\r\n0\r\n\r\n"


def antiphon_app() -> Any:
    steps = (StepSettings(text="word " * _DELTAS, pieces=5),)
    model = ScriptedModel("scripted", [SceneSettings(steps=steps)])
    return build(Settings(), [model], KeyRing(KeyFile(Path("/nonexistent")))).asgi


def starlette_app() -> Any:
    frame = b"event: response.output_text.delta\ndata: " + b"x" * 190 + b"\n\n"

    async def create(request: Request) -> Response:
        await request.body()

        async def frames() -> AsyncIterator[bytes]:
            for number in range(_DELTAS):
                if number % 16 == 0:
                    await asyncio.sleep(0)
                yield frame
            yield b"data: [DONE]\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/responses", create, methods=["POST"])])


def read_streams(port: int, streams: int) -> int:
    """Number of events in so many streams, read at once.

    Reads now and then, a lot at a time: a reader that wakes for every event would take its half of
    the two threads that share a core, and be measured along with the server.
    """
    socks = []
    for _ in range(streams):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(_REQUEST)
        sock.setblocking(False)
        socks.append(sock)
    read = {sock: bytearray() for sock in socks}
    while socks:
        time.sleep(0.005)
        for sock in list(socks):
            with contextlib.suppress(BlockingIOError):
                read[sock] += sock.recv(1 << 20)
            if read[sock].endswith(_END):
                socks.remove(sock)
                sock.close()
    return sum(stream.count(b"event: ") for stream in read.values())


def cpu_us(peer: Peer, streams: int, repeats: int) -> float:
    """CPU microseconds an event."""
    port = int(peer.base_url.rpartition(":")[2])
    before = peer.cpu_seconds()
    events = sum(read_streams(port, streams) for _ in range(repeats))
    return (peer.cpu_seconds() - before) * 1e6 / events


def main() -> None:
    print("CPU µs an event: median (least–most) of rounds in turn, and the median of their ratios")
    with serving(antiphon_app) as ours, serving(starlette_app) as bare:
        for streams, repeats in ((1, 100), (50, 2)):
            cpu_us(ours, streams, 1), cpu_us(bare, streams, 1)
            pairs = [
                (cpu_us(ours, streams, repeats), cpu_us(bare, streams, repeats))
                for _ in range(_ROUNDS)
            ]
            mine, theirs = zip(*pairs, strict=True)
            print(
                f"{streams:>3} streams  antiphon {shown(mine)}  bare starlette {shown(theirs)}"
                f"  ratio {statistics.median(a / b for a, b in pairs):.2f}"
            )


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


if __name__ == "__main__":
    main()
