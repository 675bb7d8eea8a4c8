"""What the benchmarks of stored responses share: figures, servers with a store, and streams read
with their times."""

import contextlib
import http.client
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import peers
from client import Chunk, read_events
from figure import Figure as Figure

from antiphon.app import build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.base import Model
from antiphon.settings import Settings
from antiphon.storage import open_storage


@contextlib.contextmanager
def new_folder(parent: Path | None) -> Iterator[Path]:
    """An empty folder in `parent`, gone with the block. It is where the disk is that counts."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-state-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgres_url() -> Iterator[str]:
    """A new database on a PostgreSQL server of its own, as the tests have."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    running_postgres = importlib.import_module("postgres").running_postgres
    with running_postgres() as server:
        yield server.url(server.create())


# --- servers ---


def stored_app(settings: Settings, models: Sequence[Model]) -> Any:
    """The application that `antiphon serve` serves, for `common.serving`."""
    keys = KeyRing(KeyFile(Path("/nonexistent")))
    return build(settings, models, keys, open_storage(settings)).asgi


def scripted_server(
    folder: Path, name: str, scenes: Mapping[str, Sequence[Mapping[str, Any]]], **settings: Any
) -> peers.Server:
    """`antiphon serve` with a scripted model: for `peers.running`.

    `scenes` has steps by what the last message must contain. Everything is stored in `folder`,
    unless the settings say otherwise.
    """
    config = folder / f"{name}.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    lines += [f"data_dir = {json.dumps(str(folder))}", "[models.scripted]", 'kind = "scripted"']
    for match, steps in scenes.items():
        inline = (
            "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in step.items()) + "}"
            for step in steps
        )
        lines += [
            "[[models.scripted.scenes]]",
            f"match = {json.dumps(match)}",
            f"steps = [{', '.join(inline)}]",
        ]
    config.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "{port}"]
    command += ["--config", str(config), "--log-level", "warning"]
    return peers.Server(name, "scripted", "", command)


# --- streams ---


@dataclass(frozen=True, slots=True)
class TimedStream:
    """A stream that was read. `events` have the time at which each arrived, of the monotonic clock
    that all processes share; `sent` and `ended` are of that clock too."""

    sent: float
    ended: float
    events: Sequence[tuple[float, dict[str, Any]]]

    def time_of(self, kind: str) -> float:
        """When the last event of a type arrived."""
        times: Iterator[float] = (
            clock for clock, event in reversed(self.events) if event["type"] == kind
        )
        return next(times)


@dataclass(slots=True)
class StreamReader:
    """Reads one stream; what has come so far is in `chunks`, also for other threads."""

    base_url: str
    chunks: list[Chunk]

    def read(self, path: str, body: Mapping[str, Any] | None = None) -> TimedStream:
        """The whole stream: of a `POST` if there is a body, else of a `GET`."""
        connection = connect(self.base_url)
        headers = {"content-type": "application/json"}
        method, data = ("GET", b"") if body is None else ("POST", orjson.dumps(body))
        sent = time.perf_counter()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:300]!r}")
        while data := answer.read1(1 << 20):
            self.chunks.append((time.perf_counter(), data))
        ended = time.perf_counter()
        connection.close()
        return TimedStream(sent, ended, list(read_events(self.chunks)))


def connect(base_url: str) -> http.client.HTTPConnection:
    """A connection to a server."""
    return http.client.HTTPConnection(base_url.removeprefix("http://"), timeout=600)


def read_stream(base_url: str, path: str, body: Mapping[str, Any] | None = None) -> TimedStream:
    """A whole stream, as `StreamReader` reads it."""
    return StreamReader(base_url, []).read(path, body)


def created(base_url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The response that a request makes, as one object."""
    connection = connect(base_url)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/responses", orjson.dumps(body), headers)
    answer = connection.getresponse()
    said: dict[str, Any] = orjson.loads(answer.read())
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} {said}")
    return said
