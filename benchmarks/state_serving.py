"""What stored streams cost those who serve them: replays, idle tails, tails of another process."""

import concurrent.futures
import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import Peer, serving
from openai import OpenAI
from state_common import (
    Figure,
    StreamReader,
    created,
    new_folder,
    postgres_url,
    read_stream,
    stored_app,
)

from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings, Settings, StepSettings

_EVENTS = 10_000
_TAILS = 500
_IDLE_SECONDS = 20.0


def _scene(match: str, *steps: dict[str, Any]) -> SceneSettings:
    return SceneSettings(match=match, steps=tuple(StepSettings(**step) for step in steps))


def _make_app(settings: dict[str, Any], *scenes: SceneSettings) -> Any:
    return stored_app(Settings(**settings), [ScriptedModel("scripted", list(scenes))])


def _states(folder: Path, stack: contextlib.ExitStack) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings of each kind of storage there is here."""
    yield "SQLite", {"data_dir": folder}
    try:
        url = stack.enter_context(postgres_url())
    except Exception as error:
        print(f"  PostgreSQL left out: {error}")
        return
    yield "PostgreSQL", {"data_dir": folder, "state": "postgres", "database_url": url}


def replay(parent: Path | None) -> Iterator[Figure]:
    """Many events of an ended response, read by the official client."""
    scene = _scene("", {"text": "x" * _EVENTS, "pieces": 1})
    limits = {"max_events": 2 * _EVENTS, "max_event_bytes": 64 * 2**20}
    with new_folder(parent) as folder, contextlib.ExitStack() as stack:
        for name, settings in _states(folder, stack):
            with serving(_make_app, {**settings, **limits}, scene) as peer:
                response = created(peer.base_url, {"input": "hi"})
                client = OpenAI(base_url=f"{peer.base_url}/v1", api_key="none")
                costs = []
                for _ in range(5):
                    before = peer.cpu_seconds()
                    with client.responses.retrieve(response["id"], stream=True) as stream:
                        number = sum(1 for _ in stream)
                    costs.append(peer.cpu_seconds() - before)
                    if number < _EVENTS:
                        raise RuntimeError(f"{number} events")
                cost = statistics.median(costs)
                yield Figure(f"{_EVENTS:,} events replayed, {name}", cost, "s of CPU", 1)


def idle(parent: Path | None) -> Iterator[Figure]:
    """Readers of responses that say nothing."""
    scene = _scene("", {"text": "Wait.", "pieces": 1}, {"delay": 600.0})
    limits = {"max_readers": 1000, "max_readers_per_key": 1000, "keep_alive_seconds": 600}
    with new_folder(parent) as folder, contextlib.ExitStack() as stack:
        for name, settings in _states(folder, stack):
            with serving(_make_app, {**settings, **limits}, scene) as peer:
                started = StreamReader(peer.base_url, [])
                body = {"input": "hi", "stream": True}
                _in_background(lambda: started.read("/v1/responses", body))  # noqa: B023
                response_id = _id_of(started)
                before = peer.cpu_seconds()
                time.sleep(_IDLE_SECONDS)
                alone = peer.cpu_seconds() - before
                readers = [StreamReader(peer.base_url, []) for _ in range(_TAILS)]
                path = f"/v1/responses/{response_id}?stream=true"
                for reader in readers:
                    _in_background(lambda reader=reader: reader.read(path))  # noqa: B023
                while not all(reader.chunks for reader in readers):
                    time.sleep(0.1)
                time.sleep(1)
                before = peer.cpu_seconds()
                time.sleep(_IDLE_SECONDS)
                share = 100 * (peer.cpu_seconds() - before - alone) / _IDLE_SECONDS
                yield Figure(f"{_TAILS} idle tails, {name}", share, "% of a core", 1)


def lag(_: Path | None) -> Iterator[Figure]:
    """A response that one process makes, read from it and from another."""
    pause = [step for number in range(100) for step in ({"text": f"{number} "}, {"delay": 0.02})]
    scene = _scene("", *pause)
    try:
        with postgres_url() as url:
            settings = {"state": "postgres", "database_url": url, "data_dir": Path("/nonexistent")}
            settings["blob_url"] = "memory:"
            with serving(_make_app, settings, scene) as one, serving(_make_app, settings) as two:
                yield from _lag(one, two)
    except ModuleNotFoundError as error:
        print(f"  left out: {error}")


def _lag(one: Peer, two: Peer) -> Iterator[Figure]:
    here = StreamReader(one.base_url, [])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        reading = pool.submit(here.read, "/v1/responses", {"input": "hi", "stream": True})
        path = f"/v1/responses/{_id_of(here)}?stream=true"
        there = pool.submit(read_stream, two.base_url, path)
        first, second = reading.result(), there.result()
    if [event for _, event in first.events] != [event for _, event in second.events]:
        raise RuntimeError("the streams differ")
    # What was there before the second reader came is no lag.
    behind = [
        1000 * (there - here)
        for (here, event), (there, _) in zip(first.events, second.events, strict=True)
        if event["sequence_number"] > 20
    ]
    yield Figure("a tail on another process lags", statistics.median(behind), "ms", 50)
    yield Figure("the longest lag", max(behind), "ms")


def _in_background(work: Any) -> None:
    threading.Thread(target=lambda: _quietly(work), daemon=True).start()


def _quietly(work: Any) -> None:
    with contextlib.suppress(Exception):  # The server goes away under it.
        work()


def _id_of(reader: StreamReader) -> str:
    """The id of the response that a reader reads, once it is there."""
    while not reader.chunks:
        time.sleep(0.001)
    text = reader.chunks[0][1].decode()
    start = text.index('"resp_') + 1
    return text[start : text.index('"', start)]
