"""Whether memory, threads, files and the database come back to where they began."""

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import orjson
from common import serving
from state_common import Figure, connect, new_folder

from antiphon.app import build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings, Settings, StepSettings
from antiphon.storage import open_storage

_RESPONSES = 10_000
_WARM_UP = 500
_STEP = 500
_CLIENTS = 4
#: How many responses continue one another.
_CHAIN = 5
_KEPT_SECONDS = 1.0


class _Weighed:
    """Wraps an application: `POST /weigh` sweeps its store and tells what the process has."""

    def __init__(self, folder: Path) -> None:
        steps = (StepSettings(text="word " * 50, pieces=5),)
        settings = Settings(
            data_dir=folder, retention_seconds=_KEPT_SECONDS, event_log_seconds=_KEPT_SECONDS
        )
        self._store = open_storage(settings)
        model = ScriptedModel("scripted", [SceneSettings(steps=steps)])
        keys = KeyRing(KeyFile(Path("/nonexistent")))
        self._app = build(settings, [model], keys, self._store).asgi

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/weigh":
            await self._app(scope, receive, send)
            return
        body = orjson.dumps(await self._weigh())
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _weigh(self) -> dict[str, float]:
        assert self._store is not None
        await asyncio.sleep(1.5 * _KEPT_SECONDS)
        await self._store.sweeper.sweep()
        gc.collect()
        stats = await self._store.stats()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "memory": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd")),
            "kept": stats.responses + stats.items + stats.events,
        }


def memory(parent: Path | None, responses: int = _RESPONSES) -> Iterator[Figure]:
    """Before and after 10,000 responses, all stored, streamed or not, in chains, and expired."""
    with new_folder(parent) as folder, serving(_Weighed, folder) as peer:
        _make(peer.base_url, _WARM_UP)
        before = _weighed(peer.base_url, folder)
        most = before
        for _ in range(0, responses, _STEP):
            _make(peer.base_url, _STEP)
            after = _weighed(peer.base_url, folder)
            most = {name: max(most[name], after[name]) for name in most}
    yield Figure("memory at the beginning", before["memory"], "MB")
    yield Figure("memory grew by", after["memory"] - before["memory"], "MB", 20)
    yield Figure("at most in between, by", most["memory"] - before["memory"], "MB")
    yield Figure("rows of responses, items and events left", after["kept"], "", 0)
    yield Figure("database at the beginning", before["disk"], "MB")
    yield Figure("database grew by", after["disk"] - before["disk"], "MB", 2)
    for name in ("tasks", "threads", "files"):
        yield Figure(f"{name} more", after[name] - before[name], "", 0)


def _weighed(base_url: str, folder: Path) -> dict[str, float]:
    connection = connect(base_url)
    connection.request("POST", "/weigh")
    figures: dict[str, float] = orjson.loads(connection.getresponse().read())
    connection.close()
    figures["files"] -= 1  # This connection.
    figures["disk"] = sum(file.stat().st_size for file in folder.glob("antiphon.db*")) / 1e6
    return figures


def _make(base_url: str, responses: int) -> None:
    """So many stored responses, every other one streamed, by a few clients at once."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        share = responses // _CLIENTS
        for done in [pool.submit(_ask, base_url, share) for _ in range(_CLIENTS)]:
            done.result()


def _ask(base_url: str, responses: int) -> None:
    connection = connect(base_url)
    previous: str | None = None
    for number in range(responses):
        body: dict[str, Any] = {"input": f"Question {number}", "stream": number % 2 == 1}
        if previous is not None:
            body["previous_response_id"] = previous
        said = _answer(connection, body)
        begin = said.index(b'"id":"resp_') + 6
        id = said[begin : said.index(b'"', begin)].decode()
        previous = None if number % _CHAIN == _CHAIN - 1 else id
    connection.close()


def _answer(connection: HTTPConnection, body: dict[str, Any]) -> bytes:
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/responses", orjson.dumps(body), headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200 or (body["stream"] and b"response.completed" not in said):
        raise RuntimeError(f"{answer.status} {said[-300:]!r}")
    return said
