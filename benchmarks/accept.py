"""Server CPU for accepting a request, up to the hand-over to tokenising.

    python benchmarks/accept.py

Measures whole-process CPU of a server whose model refuses every turn where it would begin to
tokenise it, for histories of 10 and of 2,000 items, beside a bare Starlette application that reads
the same body and answers as much. Limits: 2,000 items (1.1 MB) at most 25 ms; 10 items at most
1.5 ms more than bare Starlette. The third column is a whole response of one word, for comparison.
"""

import statistics
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import orjson
from common import Peer, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from antiphon.app import build
from antiphon.errors import ContextLengthExceeded
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.base import ModelDefaults
from antiphon.settings import Settings
from antiphon.spec.types import ModelStatus
from antiphon.turn import Delta, Effort, Finish, TextDelta, TokenUsage, Turn

_ROUNDS = 5


class EmptyModel:
    """Answers one word without looking at the prompt, or refuses if told to."""

    name = "empty"
    created = 0
    context_window = None
    family = "test"
    defaults = ModelDefaults()
    usage = TokenUsage(1)

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "loaded", "engine": None}

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked

    async def prepare(self, turn: Turn) -> "EmptyModel":
        if self._refuses:
            raise ContextLengthExceeded("refused", param="input")
        return self

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    async def released(self) -> None:
        pass

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        yield TextDelta("ok")
        yield Finish("stop")

    async def close(self) -> None:
        pass


def antiphon_app(refuses: bool) -> Any:
    keys = KeyRing(KeyFile(Path("/nonexistent")))
    return build(Settings(), [EmptyModel(refuses=refuses)], keys).asgi


def starlette_app() -> Any:
    answer = orjson.dumps({"error": {"message": "refused", "type": "", "param": "", "code": ""}})

    async def create(request: Request) -> Response:
        await request.body()
        return Response(answer, media_type="application/json")

    return Starlette(routes=[Route("/v1/responses", create, methods=["POST"])])


def history(items: int, characters: int) -> bytes:
    """A conversation in the shapes that clients send, ending with a user message."""
    made: list[dict[str, Any]] = []
    for number in range(items):
        text = (f"{number} " + "a few words " * characters)[:characters]
        made.append(
            {"role": "user", "content": text}
            if number % 2 == 0
            else {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        )
    return orjson.dumps({"model": "empty", "input": made, "temperature": 0.5, "store": False})


def cpu_ms(peer: Peer, body: bytes, requests: int) -> list[float]:
    """CPU milliseconds a request, for each round."""
    results = []
    with httpx.Client(base_url=peer.base_url) as client:
        for _ in range(_ROUNDS):
            before = peer.cpu_seconds()
            for _ in range(requests):
                answer = client.post(
                    "/v1/responses", content=body, headers={"content-type": "application/json"}
                )
                assert answer.status_code in (200, 400), answer.text
            results.append((peer.cpu_seconds() - before) * 1000 / requests)
    return results


def main() -> None:
    print("CPU ms a request: median (least–most of five rounds)")
    print(f"{'body':<24}{'accepted':>22}{'bare starlette':>22}{'answered':>22}")
    for items, characters, requests in ((10, 500, 400), (2000, 460, 60)):
        body = history(items, characters)
        shown = f"{f'{items} items, {len(body) / 1000:.0f} kB':<24}"
        for make, *arguments in ((antiphon_app, True), (starlette_app,), (antiphon_app, False)):
            with serving(make, *arguments) as peer:
                cpu_ms(peer, body, 20)
                rounds = cpu_ms(peer, body, requests)
            figure = f"{statistics.median(rounds):.2f} ({min(rounds):.2f}–{max(rounds):.2f})"
            shown += f"{figure:>22}"
        print(shown)


if __name__ == "__main__":
    main()
