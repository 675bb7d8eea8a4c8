"""Workers, known to all processes."""

import asyncio
from collections.abc import Callable

from antiphon.store.database import Database
from antiphon.store.records import WorkerInfo
from antiphon.store.workers import SqlWorkers

Opened = Callable[[str], Database]
MODELS = [{"name": "Größe\0", "created": 1, "context_window": None, "temperature": 0.5}]


def test_workers_are_listed_while_they_are_seen(store_url: str, opened: Opened):
    now = 100.0
    workers = SqlWorkers(opened(store_url), lambda: now)

    async def flow() -> None:
        nonlocal now
        first, second = WorkerInfo("w1", MODELS), WorkerInfo("w2", [])
        await workers.announce(second)
        await workers.announce(first)
        assert await workers.live(10) == [first, second]
        now = 109.0
        assert await workers.seen("w1")
        now = 111.0
        assert await workers.live(10) == [first]
        await workers.announce(WorkerInfo("w1", []))
        assert await workers.live(10) == [WorkerInfo("w1", [])]

    asyncio.run(flow())


def test_a_worker_that_was_removed_must_announce_itself(store_url: str, opened: Opened):
    workers = SqlWorkers(opened(store_url), lambda: 100.0)

    async def flow() -> None:
        assert not await workers.seen("w1")
        await workers.announce(WorkerInfo("w1", MODELS))
        await workers.remove("w1")
        assert await workers.live(10) == []
        assert not await workers.seen("w1")

    asyncio.run(flow())


def test_other_processes_see_them(shared_url: str, opened: Opened):
    here, there = (SqlWorkers(opened(shared_url), lambda: 100.0) for _ in range(2))

    async def flow() -> None:
        info = WorkerInfo("w1", MODELS)
        await asyncio.gather(here.announce(info), there.announce(info))
        assert await there.live(10) == [info]

    asyncio.run(flow())
