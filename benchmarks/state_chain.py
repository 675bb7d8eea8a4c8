"""What a turn costs the store late in a long chain of responses, beside an early one."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers
from sqlalchemy import func, select
from state_common import Figure, created, new_folder, scripted_server

from antiphon.principal import Principal
from antiphon.store import schema
from antiphon.store.build import SqlStore, open_store
from antiphon.store.records import Append, NewResponse, StoreLimits
from antiphon.store.sealing import PlainSealer

_TURNS = 1000
_EARLY = 10
_ROUNDS = 25
_ME = Principal("me")
_TEXT = "The keeper climbed the stairs and lit the lamp before the fog came in. " * 4
#: As many as an answer of some sentences has, committed in four transactions.
_FRAMES = [b"event: response.output_text.delta\ndata: " + b"x" * 200 + b"\n\n"] * 64


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a turn took of the store: seconds, and processor seconds of the whole process."""

    response_id: str
    seconds: float
    cpu_seconds: float


def _said(role: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(16)}",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": [{"type": kind, "text": _TEXT}],
    }


def _response(previous: str | None) -> Any:
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "status": "in_progress",
        "model": "toy",
        "background": False,
        "previous_response_id": previous,
        "output": [],
        "metadata": {},
    }


async def _turn(store: SqlStore, previous: str | None) -> _Turn:
    """A turn as a server makes it: history, acceptance, events, end."""
    response = _response(previous)
    question, answer = _said("user", "input_text"), _said("assistant", "output_text")
    began, cpu = time.perf_counter(), time.process_time()
    if previous is not None:
        await store.responses.history_bytes(_ME, previous)
        await store.responses.history(_ME, previous)
    accepted = await store.responses.create(
        _ME, NewResponse(response, [question], {}, "worker", frames=_FRAMES[:2])
    )
    assert accepted.lease is not None
    for first in range(2, len(_FRAMES), 16):
        frames = _FRAMES[first : first + 16]
        await store.runs.append([Append(accepted.lease, first, frames, published=True)])
    end: Any = {**response, "status": "completed", "output": [answer]}
    await store.runs.append(
        [Append(accepted.lease, len(_FRAMES), _FRAMES[:4], published=True, durable=True, end=end)]
    )
    return _Turn(response["id"], time.perf_counter() - began, time.process_time() - cpu)


async def _chain(store: SqlStore, turns: int) -> str:
    """The last response of a new chain."""
    last: str | None = None
    for _ in range(turns):
        last = (await _turn(store, last)).response_id
    assert last is not None
    return last


async def _compared(store: SqlStore, rounds: int) -> tuple[list[_Turn], list[_Turn]]:
    """Turns around the 1,000th of one chain, and 10th turns of new ones, in turn."""
    last = await _chain(store, _TURNS - rounds // 2 - 1)
    late: list[_Turn] = []
    early: list[_Turn] = []
    for _ in range(rounds):
        tenth = await _chain(store, _EARLY - 1)
        for is_late in (True, False) if len(late) % 2 else (False, True):
            if is_late:
                late.append(await _turn(store, last))
                last = late[-1].response_id
            else:
                early.append(await _turn(store, tenth))
    return late, early


async def _stored(store: SqlStore) -> tuple[int, int, int]:
    """Responses, items and places in lines."""
    tables = (schema.responses, schema.items, schema.line_items)

    def count(connection: Any) -> list[int]:
        return [connection.scalar(select(func.count()).select_from(table)) for table in tables]

    responses, items, places = await store.shared.db.read(count)
    return responses, items, places


def chain(parent: Path | None, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """Through the methods of a store on a SQLite file, and once over HTTP."""
    for name, cache in (("", 32 * 2**20), (", history never in memory", 0)):
        with new_folder(parent) as folder:
            store = open_store(
                f"sqlite:///{folder}/antiphon.db",
                limits=StoreLimits(),
                sealer=PlainSealer(),
                blobs=None,
                history_cache_bytes=cache,
            )
            try:
                late, early = asyncio.run(_compared(store, rounds))
                responses, items, places = asyncio.run(_stored(store))
            finally:
                store.close()
            limit = None if name else 1.5
            yield Figure(f"turn {_EARLY}{name}", 1000 * _median(early), "ms")
            yield Figure(f"turn {_TURNS}{name}", 1000 * _median(late), "ms")
            yield Figure(
                f"turn {_TURNS} in parts of turn {_EARLY}{name}", _ratio(late, early), "", limit
            )
            cpu = statistics.median(t.cpu_seconds for t in late) / statistics.median(
                t.cpu_seconds for t in early
            )
            yield Figure(f"the same, of processor time{name}", cpu, "", limit)
            if not name:
                yield Figure("rows of items for each item said", items / (2 * responses), "", 1)
                yield Figure("references for each item said", places / (2 * responses), "", 1)
                size = sum(file.stat().st_size for file in folder.iterdir())
                yield Figure("bytes on disk for each turn", size / responses, "B")
    yield from _over_http(parent, rounds)


def _over_http(parent: Path | None, rounds: int) -> Iterator[Figure]:
    """Whole requests, with all that a server does with the history."""
    with new_folder(parent) as folder:
        server = scripted_server(
            folder, "chain", {"": [{"text": _TEXT, "pieces": 8}]}, log_level="warning"
        )
        with peers.running(server) as served:

            def turn(previous: str | None) -> tuple[str, float]:
                body = {"input": _TEXT, "store": True}
                body |= {} if previous is None else {"previous_response_id": previous}
                began = time.perf_counter()
                said = created(served.base_url, body)
                return said["id"], time.perf_counter() - began

            def grown(turns: int) -> str | None:
                last: str | None = None
                for _ in range(turns):
                    last, _seconds = turn(last)
                return last

            last = grown(_TURNS - rounds // 2 - 1)
            late, early = [], []
            for _ in range(rounds):
                tenth = grown(_EARLY - 1)
                last, seconds = turn(last)
                late.append(seconds)
                early.append(turn(tenth)[1])
    yield Figure(f"turn {_EARLY}, over HTTP", 1000 * statistics.median(early), "ms")
    yield Figure(f"turn {_TURNS}, over HTTP", 1000 * statistics.median(late), "ms")


def _median(turns: Sequence[_Turn]) -> float:
    return statistics.median(turn.seconds for turn in turns)


def _ratio(late: Sequence[_Turn], early: Sequence[_Turn]) -> float:
    return statistics.median(a.seconds / b.seconds for a, b in zip(late, early, strict=True))
