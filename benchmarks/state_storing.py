"""What storing adds to a streamed answer of the embedded model, and to its end."""

import multiprocessing
import statistics
from collections.abc import AsyncGenerator, Iterator
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from time import perf_counter
from typing import Any

from common import serving
from state_common import Figure, new_folder, read_stream, stored_app

from antiphon.models.base import Generation, Model
from antiphon.models.build import build_models
from antiphon.settings import Settings
from antiphon.turn import Delta, Finish, Turn

_ROUNDS = 15
_TOKENS = 256
_BODY = {
    "input": "Write a very long story about a lighthouse keeper, with many chapters.",
    "stream": True,
    "temperature": 0,
    "max_output_tokens": _TOKENS,
}


class _NotingGeneration:
    """Notes when the model said how it ended."""

    def __init__(self, inner: Generation, finished: "Synchronized[float]") -> None:
        self._inner = inner
        self._finished = finished

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        async for delta in self._inner.deltas():
            if isinstance(delta, Finish):
                self._finished.value = perf_counter()
            yield delta

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _NotingModel:
    """A model whose answers note when they ended, by the clock that all processes share."""

    def __init__(self, inner: Model, finished: "Synchronized[float]") -> None:
        self._inner = inner
        self._finished = finished

    async def prepare(self, turn: Turn) -> Any:
        return _NotingGeneration(await self._inner.prepare(turn), self._finished)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _make_app(folder: Path, finished: "Synchronized[float]") -> Any:
    settings = Settings(data_dir=folder)
    model: Any = _NotingModel(build_models(settings, lambda *_: None)[0], finished)
    return stored_app(settings, [model])


def storing(parent: Path | None, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """The same answer stored and not, in turn, on a SQLite file."""
    finished = multiprocessing.Value("d", 0.0)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    to_end: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    with new_folder(parent) as folder, serving(_make_app, folder, finished) as peer:
        for number in range(-1, rounds):
            for store in (True, False) if number % 2 else (False, True):
                before = peer.cpu_seconds()
                stream = read_stream(peer.base_url, "/v1/responses", {**_BODY, "store": store})
                terminal, event = stream.events[-1]
                if event["response"]["usage"]["output_tokens"] != _TOKENS:
                    raise RuntimeError("the model ended early")
                if number >= 0:  # The first fills the cache of prefixes.
                    seconds[store].append(stream.ended - stream.sent)
                    to_end[store].append((terminal - finished.value) * 1000)
                    cpu[store].append(peer.cpu_seconds() - before)
    ratios = [a / b for a, b in zip(seconds[True], seconds[False], strict=True)]
    ends = [a - b for a, b in zip(to_end[True], to_end[False], strict=True)]
    yield Figure(f"{_TOKENS} tokens, not stored", statistics.median(seconds[False]), "s")
    yield Figure(f"{_TOKENS} tokens, stored", statistics.median(seconds[True]), "s")
    yield Figure("storing adds", 100 * (statistics.median(ratios) - 1), "% of the time", 5)
    cpus = [a / b for a, b in zip(cpu[True], cpu[False], strict=True)]
    yield Figure("storing adds", 100 * (statistics.median(cpus) - 1), "% of the server's CPU")
    yield Figure(
        "model's end to terminal event, not stored", statistics.median(to_end[False]), "ms"
    )
    yield Figure("model's end to terminal event, stored", statistics.median(to_end[True]), "ms")
    yield Figure("storing adds to the terminal event", statistics.median(ends), "ms", 2)
