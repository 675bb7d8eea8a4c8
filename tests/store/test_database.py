"""Transactions, on every database."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from postgres import Postgres
from sqlalchemy import Connection, delete, insert, select, text
from sqlalchemy.exc import IntegrityError

from antiphon.errors import StartError
from antiphon.store.database import Database, notify
from antiphon.store.failures import Corrupt, StoreUnavailable
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


def test_a_race_for_a_value_is_run_again(postgres: Postgres, opened: Opened):
    name = postgres.create()
    here, there = (opened(postgres.url(name)) for _ in range(2))
    tries = 0

    def put_if_missing(connection: Connection) -> list[str]:
        nonlocal tries
        tries += 1
        if "a" not in names(connection):
            if tries == 1:  # Another process is quicker.
                asyncio.run(there.write(lambda other: put(other, "a")))
            put(connection, "a")
        return names(connection)

    assert asyncio.run(here.write(put_if_missing)) == ["a"]
    assert tries == 2


def test_a_value_that_is_always_there_is_an_error(store_url: str, opened: Opened):
    database = opened(store_url)

    async def flow() -> None:
        await database.write(lambda connection: put(connection, "a"))
        with pytest.raises(IntegrityError):
            await database.write(lambda connection: put(connection, "a"))

    asyncio.run(flow())


def test_a_lost_connection_is_made_again(postgres: Postgres, opened: Opened):
    name = postgres.create()
    database = opened(postgres.url(name))

    async def flow() -> list[str]:
        await database.write(lambda connection: put(connection, "a"))
        assert postgres.disconnect(name) >= 1
        await database.write(lambda connection: put(connection, "b"))
        return await database.read(names)

    assert asyncio.run(flow()) == ["a", "b"]


def test_a_connection_lost_on_the_way_repeats_the_transaction(postgres: Postgres, opened: Opened):
    name = postgres.create()
    database = opened(postgres.url(name))
    tries = 0

    def interrupted(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        put(connection, "a")
        if tries == 1:
            postgres.disconnect(name)
        put(connection, "b")

    async def flow() -> list[str]:
        await database.write(interrupted)
        return await database.read(names)

    assert asyncio.run(flow()) == ["a", "b"]
    assert tries == 2


def test_a_database_that_is_gone_is_unavailable(postgres: Postgres, opened: Opened):
    name = postgres.create()
    database = opened(postgres.url(name))

    async def flow() -> None:
        await database.write(lambda connection: put(connection, "a"))
        postgres.drop(name)
        with pytest.raises(StoreUnavailable):
            await database.read(names)
        with pytest.raises(StoreUnavailable):
            await database.write(lambda connection: put(connection, "b"))

    asyncio.run(flow())


def test_postgres_waits_for_the_disk_only_where_it_must(postgres: Postgres, opened: Opened):
    name = postgres.create()
    database = opened(postgres.url(name))

    def setting(connection: Connection) -> str:
        return str(connection.execute(text("SHOW synchronous_commit")).scalar_one())

    async def flow() -> list[str]:
        return [await database.write(setting, durable=durable) for durable in (True, False)]

    assert asyncio.run(flow()) == ["on", "off"]


def test_reading_never_writes_on_postgres(postgres: Postgres, opened: Opened):
    name = postgres.create()
    database = opened(postgres.url(name))
    with pytest.raises(StoreUnavailable, match="read-only"):
        asyncio.run(database.read(lambda connection: put(connection, "a")))


def test_a_full_disk_is_told_and_nothing_is_written(tmp_path: Path, opened: Opened):
    database = opened(f"sqlite:///{tmp_path / 'a.db'}")

    def too_much(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # No smaller than it is.
        put(connection, "x" * 1_000_000)

    async def flow() -> list[str]:
        with pytest.raises(StoreUnavailable, match="full"):
            await database.write(too_much)
        return await database.read(names)

    assert asyncio.run(flow()) == []


def test_a_file_that_another_process_holds_for_too_long_is_unavailable(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("antiphon.store.database._BUSY_SECONDS", 0.05)
    file = tmp_path / "a.db"
    database = opened(f"sqlite:///{file}")
    other = sqlite3.connect(file)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        asyncio.run(database.write(lambda connection: put(connection, "a")))
    other.close()
    asyncio.run(database.write(lambda connection: put(connection, "a")))
    assert asyncio.run(database.read(names)) == ["a"]


def test_a_damaged_file_is_corrupt(tmp_path: Path):
    file = tmp_path / "a.db"
    database = Database.open(f"sqlite:///{file}")
    asyncio.run(database.write(lambda connection: put(connection, "x" * 100_000)))
    database.close()
    whole = file.read_bytes()
    database = Database.open(f"sqlite:///{file}")
    file.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    with pytest.raises(Corrupt):
        asyncio.run(database.read(names))
    database.close()


def test_what_was_deleted_leaves_no_byte_after_a_checkpoint(tmp_path: Path, opened: Opened):
    database = opened(f"sqlite:///{tmp_path / 'a.db'}")

    async def flow() -> None:
        await database.write(lambda connection: put(connection, "secret " * 1000))
        await database.write(lambda connection: connection.execute(delete(workers)).close())
        await database.checkpoint()

    asyncio.run(flow())
    assert not any(b"secret" in file.read_bytes() for file in tmp_path.iterdir())


def test_closing_does_what_waits(tmp_path: Path, opened: Opened):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    database = Database.open(url)
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        begun.set()
        assert go_on.wait(10)

    async def flow() -> None:
        first = asyncio.ensure_future(database.write(slow))
        second = asyncio.ensure_future(database.write(lambda connection: put(connection, "a")))
        await asyncio.to_thread(begun.wait, 10)
        closing = asyncio.ensure_future(asyncio.to_thread(database.close))
        go_on.set()
        await asyncio.gather(first, second, closing)

    asyncio.run(flow())
    assert asyncio.run(opened(url).read(names)) == ["a"]
