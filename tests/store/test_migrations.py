"""Tables are made as the schema has them, by whichever process is first."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres import Postgres
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from antiphon.errors import StartError
from antiphon.principal import Principal
from antiphon.store.build import open_store
from antiphon.store.database import Database
from antiphon.store.migrations import FOLDER, HEAD, VERSION_TABLE
from antiphon.store.records import StoreLimits
from antiphon.store.schema import metadata
from antiphon.store.sealing import PlainSealer

Opened = Callable[[str], Database]


def differences(connection: Connection) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def test_the_tables_are_those_of_the_schema(store_url: str, opened: Opened):
    assert asyncio.run(opened(store_url).write(differences)) == []


def test_the_sql_of_the_tables_is_that_of_the_schema(opened: Opened):
    """SQLite keeps it, with what Alembic does not compare: keys, and options of tables."""

    def made(connection: Connection) -> dict[str, list[str]]:
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        # The order of constraints says nothing.
        return {name: sorted(line.strip(" \t,") for line in sql.splitlines()) for name, sql in rows}

    migrated = asyncio.run(opened("sqlite:///:memory:").write(made))
    del migrated[VERSION_TABLE]
    with create_engine("sqlite://").connect() as connection:
        metadata.create_all(connection)
        assert made(connection) == migrated


def test_the_newest_revision_is_named():
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_an_up_to_date_database_opens_fast_and_without_alembic(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Database.open(url).close()
    program = (
        "import sys, time\n"
        "from antiphon.store.database import Database\n"
        f"Database.open({url!r}).close()\n"
        "begun = time.process_time()\n"
        f"Database.open({url!r}).close()\n"
        "assert time.process_time() - begun < 0.03\n"
        "assert 'alembic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_processes_may_start_at_once_on_a_new_file(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'state' / 'a.db'}"
    program = (
        "import sys\n"
        "from antiphon.store.database import Database\n"
        "sys.stdin.readline()\n"
        f"Database.open({url!r}).close()\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * 4


def test_processes_may_start_at_once_on_a_new_postgres(postgres: Postgres):
    name = postgres.create()
    failures: list[BaseException] = []

    def start() -> None:
        try:
            Database.open(postgres.url(name)).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def engine_of(url: str) -> Engine:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)


def change(url: str, *statements: str) -> None:
    engine = engine_of(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_events_of_an_older_database_are_kept(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    from alembic import command

    url = f"sqlite:///{tmp_path / 'a.db'}"
    if kind == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.url(postgres.create())
    upgrade = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0001"))
        Database.open(url).close()
    change(
        url,
        "INSERT INTO owners (key, id, num_records, num_bytes) VALUES (1, 'me', 1, 1)",
        "INSERT INTO lines (key, owner, length) VALUES (1, 1, 0)",
        "INSERT INTO responses (key, id, owner, line, own_begin, input_end, output_end, depth,"
        " total_bytes, size, model, status, background, body, created_at, used_at, fence,"
        " cancel_requested, published, first_event, next_event, event_bytes, log_kept)"
        " VALUES (1, 'resp_1', 1, 1, 0, 0, 0, 0, 0, 1, 'm', 'completed', true, '', 0, 0, 1,"
        " false, true, 0, 2, 16, true)",
    )
    box = PlainSealer().box(None)
    frames = [b"event: a\n\n", b"event: b\n\n"]

    query = text("INSERT INTO events (response, number, frame) VALUES (1, :number, :frame)")
    with engine_of(url).begin() as connection:
        for number, frame in enumerate(frames):
            sealed = box.seal(frame, f"event:resp_1:{number}")
            connection.execute(query, {"number": number, "frame": sealed})
    store = open_store(url, limits=StoreLimits(), sealer=PlainSealer(), blobs=None)
    page = asyncio.run(store.responses.events(Principal("me"), "resp_1", 0))
    store.close()
    assert page.frames == frames


def test_a_newer_database_is_left_alone(shared_url: str):
    Database.open(shared_url).close()
    change(shared_url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StartError, match="newer antiphon"):
        Database.open(shared_url)


def test_somebody_elses_database_is_left_alone(tmp_path: Path, postgres: Postgres):
    name = postgres.create()
    for url in (f"sqlite:///{tmp_path / 'a.db'}", postgres.url(name)):
        change(url, "CREATE TABLE invoices (id INTEGER)")
        with pytest.raises(StartError, match="something else"):
            Database.open(url)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path):
    file = tmp_path / "a.db"
    file.write_bytes(b"no database " * 1000)
    with pytest.raises(StartError, match="not a database"):
        Database.open(f"sqlite:///{file}")
    assert file.read_bytes() == b"no database " * 1000


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from antiphon.store import migrations

    url = f"sqlite:///{tmp_path / 'a.db'}"
    upgrade = migrations._upgrade

    def breaks(connection: Connection) -> None:
        upgrade(connection)
        raise ZeroDivisionError

    monkeypatch.setattr(migrations, "_upgrade", breaks)
    with pytest.raises(ZeroDivisionError):
        Database.open(url)
    monkeypatch.undo()
    begun = time.monotonic()
    Database.open(url).close()
    assert time.monotonic() - begun < 10  # Nobody holds a lock.
