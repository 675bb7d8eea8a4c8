"""Waiting for changes, of this process and of others."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from postgres import Postgres

from antiphon.store.database import Database, notify
from antiphon.store.signals import SqlSignals

Open = Callable[[str], tuple[Database, SqlSignals]]


@pytest.fixture
def process() -> Iterator[Open]:
    """Opens databases with signals, each of which stands for a process."""
    with ExitStack() as stack:

        def open_one(url: str) -> tuple[Database, SqlSignals]:
            database = Database.open(url)
            stack.callback(database.close)
            signals = SqlSignals(database, poll_seconds=0.02)
            stack.callback(signals.close)
            return database, signals

        yield open_one


async def tell(database: Database, *topics: str) -> None:
    await database.write(lambda connection: notify(connection, *topics))


def test_a_commit_wakes_those_who_wait_for_its_topics(store_url: str, process: Open):
    database, signals = process(store_url)

    async def flow() -> None:
        first, second, other = (signals.waiter(topic) for topic in ("a", "a", "b"))
        await tell(database, "a")
        await asyncio.wait_for(asyncio.gather(first, second), 10)
        assert not other.done()

    asyncio.run(flow())


def test_several_event_loops_may_wait(store_url: str, process: Open):
    database, signals = process(store_url)

    async def wait(ready: asyncio.Event | None = None) -> None:
        waiter = signals.waiter("a")
        if ready is not None:
            ready.set()
        await asyncio.wait_for(waiter, 10)

    async def flow() -> None:
        elsewhere = asyncio.ensure_future(asyncio.to_thread(asyncio.run, wait()))
        here = asyncio.ensure_future(wait())
        while signals.num_waiters < 2:
            await asyncio.sleep(0)
        await tell(database, "a")
        await asyncio.gather(here, elsewhere)

    asyncio.run(flow())


def test_another_process_is_heard(shared_url: str, process: Open):
    _, signals = process(shared_url)
    other, _ = process(shared_url)

    async def flow() -> None:
        for _ in range(3):
            waiter = signals.waiter("a")
            # SQLite tells of what was written, not of what is said.
            await other.write(_write_and_tell)
            await asyncio.wait_for(waiter, 10)

    asyncio.run(flow())


def _write_and_tell(connection) -> None:
    connection.exec_driver_sql("UPDATE owners SET num_records = 0")
    connection.exec_driver_sql("DELETE FROM workers")
    connection.exec_driver_sql("INSERT INTO workers VALUES ('w', '[]', 0)")
    notify(connection, "a")


def test_postgres_tells_other_processes_fast(postgres: Postgres, process: Open):
    name = postgres.create()
    _, signals = process(postgres.url(name))
    other, _ = process(postgres.url(name))

    async def flow() -> list[float]:
        lags = []
        for _ in range(21):
            waiter = signals.waiter("resp_1")
            begun = time.perf_counter()
            await tell(other, "resp_1", "queue")
            await asyncio.wait_for(waiter, 10)
            lags.append(time.perf_counter() - begun)
        return sorted(lags)

    lags = asyncio.run(flow())
    assert lags[len(lags) // 2] < 0.05


def test_many_topics_are_told_in_several_parts(postgres: Postgres, process: Open):
    name = postgres.create()
    _, signals = process(postgres.url(name))
    other, _ = process(postgres.url(name))
    topics = [f"resp_{number:032}" for number in range(1000)]

    async def flow() -> None:
        waiters = [signals.waiter(topic) for topic in topics]
        await tell(other, *topics)
        await asyncio.wait_for(asyncio.gather(*waiters), 10)

    asyncio.run(flow())


def test_who_listens_again_after_a_break_wakes_everybody(postgres: Postgres, process: Open):
    name = postgres.create()
    _, signals = process(postgres.url(name))
    other, _ = process(postgres.url(name))

    async def flow() -> None:
        waiter = signals.waiter("a")
        assert await asyncio.to_thread(postgres.disconnect, name) >= 2
        await asyncio.wait_for(waiter, 10)
        waiter = signals.waiter("a")
        await tell(other, "a")
        await asyncio.wait_for(waiter, 10)

    asyncio.run(flow())


def test_forgotten_and_cancelled_waiters_leave_nothing(store_url: str, process: Open):
    _, signals = process(store_url)

    async def flow() -> None:
        for number in range(100):
            signals.waiter(f"topic {number}")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(signals.waiter("a"), 0)
        held = signals.waiter("b")
        gc.collect()
        assert signals.num_waiters == 1
        del held

    asyncio.run(flow())


def test_idle_waiters_cost_nothing(shared_url: str, process: Open):
    _, signals = process(shared_url)

    async def flow() -> float:
        waiters = [signals.waiter(f"resp_{number}") for number in range(500)]
        begun = time.process_time()
        await asyncio.wait(waiters, timeout=1.0)
        return time.process_time() - begun

    assert asyncio.run(flow()) < 0.1  # Polled fifty times as often as in a server.


def test_closing_wakes_whoever_waits(store_url: str):
    database = Database.open(store_url)
    signals = SqlSignals(database)

    async def flow() -> None:
        waiter = signals.waiter("a")
        await asyncio.to_thread(signals.close)
        await asyncio.wait_for(waiter, 10)

    asyncio.run(flow())
    database.close()
