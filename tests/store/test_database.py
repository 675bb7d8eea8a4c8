"""Transactions, on every database."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text

from antiphon.errors import StartError
from antiphon.store.base import StoreUnavailable
from antiphon.store.database import Database, notify
from antiphon.store.schema import workers

Opened = Callable[[str], Database]


def put(connection: Connection, name: str) -> None:
    connection.execute(insert(workers).values(id=name, models="[]", seen_at=0.0))


def names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(workers.c.id).order_by(workers.c.id)))


def test_what_was_written_is_read(store_url: str, opened: Opened):
    database = opened(store_url)

    async def flow() -> list[str]:
        await database.write(lambda connection: put(connection, "a"))
        await database.write(lambda connection: put(connection, "b"), durable=True)
        return await database.read(names)

    assert asyncio.run(flow()) == ["a", "b"]


def test_what_raises_writes_nothing_and_the_next_does(store_url: str, opened: Opened):
    database = opened(store_url)

    def half(connection: Connection) -> None:
        put(connection, "half")
        raise ZeroDivisionError

    async def flow() -> list[str]:
        with pytest.raises(ZeroDivisionError):
            await database.write(half)
        await database.write(lambda connection: put(connection, "whole"))
        return await database.read(names)

    assert asyncio.run(flow()) == ["whole"]


def test_the_event_loop_does_no_sql(store_url: str, opened: Opened):
    database = opened(store_url)

    async def flow() -> list[str]:
        return [
            await database.write(lambda connection: threading.current_thread().name),
            await database.read(lambda connection: threading.current_thread().name),
        ]

    assert asyncio.run(flow()) == ["store", "store"]


def test_topics_are_told_after_the_commit_and_only_then(store_url: str, opened: Opened):
    database = opened(store_url)
    told: list[set[str]] = []
    database.on_commit(lambda topics: told.append(set(topics)))

    def fails(connection: Connection) -> None:
        notify(connection, "never")
        raise ZeroDivisionError

    async def flow() -> None:
        await database.write(lambda connection: notify(connection, "a", "b"))
        with pytest.raises(ZeroDivisionError):
            await database.write(fails)
        await database.write(lambda connection: notify(connection, "c"))

    asyncio.run(flow())
    assert told == [{"a", "b"}, {"c"}]


def test_a_reader_sees_one_moment(shared_url: str, opened: Opened):
    database = opened(shared_url)
    looked, wrote = threading.Event(), threading.Event()

    def twice(connection: Connection) -> list[list[str]]:
        first = names(connection)
        looked.set()
        assert wrote.wait(10)
        return [first, names(connection)]

    async def flow() -> list[list[str]]:
        reading = asyncio.ensure_future(database.read(twice))
        await asyncio.to_thread(looked.wait, 10)
        await database.write(lambda connection: put(connection, "new"))
        wrote.set()
        return await reading

    assert asyncio.run(flow()) == [[], []]


def test_who_stops_waiting_leaves_no_half(store_url: str, opened: Opened):
    database = opened(store_url)
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        put(connection, "slow")
        begun.set()
        assert go_on.wait(10)

    async def flow() -> list[str]:
        writing = asyncio.ensure_future(database.write(slow))
        await asyncio.to_thread(begun.wait, 10)
        writing.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await database.write(lambda connection: put(connection, "z"))
        return await database.read(names)

    assert "z" in asyncio.run(flow())


def test_a_closed_database_is_unavailable(store_url: str):
    database = Database.open(store_url)
    database.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(database.read(names))


def test_a_file_and_its_folder_are_private(tmp_path: Path, opened: Opened):
    file = tmp_path / "deep" / "state" / "antiphon.db"
    database = opened(f"sqlite:///{file}")
    asyncio.run(database.write(lambda connection: put(connection, "a")))
    assert file.parent.stat().st_mode & 0o777 == 0o700
    for written in file.parent.iterdir():
        assert written.stat().st_mode & 0o777 == 0o600, written.name
    assert len(list(file.parent.iterdir())) == 3  # With its write-ahead log.


def test_sqlite_syncs_what_must_be_durable(tmp_path: Path, opened: Opened):
    database = opened(f"sqlite:///{tmp_path / 'a.db'}")

    def level(connection: Connection) -> int:
        return int(connection.execute(text("PRAGMA synchronous")).scalar_one())

    async def flow() -> list[int]:
        return [await database.write(level, durable=durable) for durable in (True, False, True)]

    assert asyncio.run(flow()) == [2, 1, 2]


@pytest.mark.parametrize("url", ["nonsense", "mysql://me@host/db", "sqlite:////proc/no/such.db"])
def test_a_url_that_cannot_be_used_stops_the_start(url: str):
    with pytest.raises(StartError):
        Database.open(url)


def test_a_server_that_is_not_there_stops_the_start_and_no_password_is_told(tmp_path: Path):
    with pytest.raises(StartError) as raised:
        Database.open(f"postgresql://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(raised.value)
