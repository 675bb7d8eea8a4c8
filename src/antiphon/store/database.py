"""Transactions on threads of the store's own, on SQLite and PostgreSQL.

SQL is written as plain functions of a connection, and the event loop does none of it. SQLite has
one writer and a few readers, which its write-ahead log lets go on side by side; in memory one
connection does both. PostgreSQL has a few of each.
"""

import os
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    StaticPool,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from antiphon.errors import StartError
from antiphon.store.migrations import bring_up_to_date
from antiphon.store.session import PostgresSession, Session, SqliteSession, notify
from antiphon.store.threads import Threads
from antiphon.store.wal_sync import WalSync

__all__ = ["Database", "notify"]

T = TypeVar("T")
Told = Callable[[Collection[str]], None]

_KINDS = "Write sqlite:///path or postgresql://user:password@host/database."
_SQLITE_READERS = 2
_POSTGRES_WRITERS = 4
_POSTGRES_READERS = 4
#: Seconds that SQLite waits for another process's transaction.
_BUSY_SECONDS = 10.0
#: Of the write-ahead log, once it was copied into the database.
_LOG_BYTES = 16 * 2**20
#: What libpq does unless the URL says otherwise: a server that is gone is noticed.
_POSTGRES_OPTIONS = {
    "application_name": "antiphon",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "options": "-c synchronous_commit=off -c statement_timeout=60s -c lock_timeout=10s"
    " -c idle_in_transaction_session_timeout=60s",
}


class Database:
    """A database that has the tables of `schema`. Made by `Database.open`; close it, or its threads
    stay."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listeners: list[Told] = []
        #: Tells this process from others that use the database.
        self.name = secrets.token_hex(8)
        file = _file_of(engine.url) if self.dialect == "sqlite" else None
        self._wal_sync = None if file is None else WalSync(file)
        if self.dialect == "postgresql":
            reading = engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._writers = self._threads(_POSTGRES_WRITERS, engine.connect)
            self._readers = self._threads(_POSTGRES_READERS, reading.connect)
        else:
            self._writers = self._threads(1, engine.connect)
            self._readers = self._writers
            if self.shared:
                self._readers = self._threads(_SQLITE_READERS, engine.connect)

    @classmethod
    def open(cls, url: str) -> "Database":
        """Open `sqlite:///path`, `sqlite:///:memory:` or `postgresql://...` and bring it up to
        date; a SQLite file is made where there is none. Raises `StartError`."""
        try:
            parsed = make_url(url)
        except ArgumentError:
            # The message may not repeat it: there may be a password in it.
            raise StartError(f"This is no database URL. {_KINDS}") from None
        shown = parsed.render_as_string(hide_password=True)
        backend = parsed.get_backend_name()
        if backend == "sqlite":
            engine = _sqlite_engine(parsed, shown)
        elif backend in ("postgresql", "postgres"):
            engine = _postgres_engine(parsed)
        else:
            raise StartError(f"{shown} is no database that antiphon can use. {_KINDS}")
        try:
            with engine.connect() as connection:
                bring_up_to_date(connection, shown)
        except (DBAPIError, OSError) as error:
            reason = str(getattr(error, "orig", error)).strip().partition("\n")[0]
            raise StartError(
                f"The database {shown} cannot be used: {reason}. "
                "See that it is there and lets antiphon in, or choose another."
            ) from error
        return cls(engine)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def url(self) -> URL:
        """Where it is, password included."""
        return self._engine.url

    @property
    def shared(self) -> bool:
        """Whether other processes may use it too: it is not in memory."""
        return self.dialect != "sqlite" or _file_of(self._engine.url) is not None

    async def write(self, work: Callable[[Connection], T], *, durable: bool = False) -> T:
        """The result of `work(connection)`, done in one transaction.

        When it returns, the transaction is safe from the death of this process; with `durable` it
        is on disk. `work` may be called several times, for instance where another process was
        quicker. Raises what it raises, and then nothing was written; `StoreUnavailable`; `Corrupt`.
        """
        return await self._writers.run(
            lambda session: session.transact(work, write=True, durable=durable)
        )

    async def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work(connection)`, which sees the database at one moment and must not
        write. Raises what it raises, `StoreUnavailable`, or `Corrupt`."""
        return await self._readers.run(
            lambda session: session.transact(work, write=False, durable=False)
        )

    async def checkpoint(self) -> None:
        """Empty the write-ahead log of a SQLite file into it, so that nothing that was deleted is
        left there, unless somebody is reading. PostgreSQL does that by itself."""

        def checkpoint(session: Session) -> None:
            if isinstance(session, SqliteSession):
                session.checkpoint()

        await self._writers.run(checkpoint)

    def on_commit(self, told: Told) -> None:
        """Have `told` called, on one of the threads, with the topics of each transaction that this
        process commits."""
        self._listeners.append(told)

    def if_changed_elsewhere(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, on one of the threads, if another process has written to a SQLite
        file since the last call."""

        def look(session: Session) -> None:
            if isinstance(session, SqliteSession) and session.changed_elsewhere():
                changed()

        self._writers.post(look)

    def close(self) -> None:
        """Do what waits, and let go of the database."""
        self._writers.close()
        if self._readers is not self._writers:
            self._readers.close()
        if self._wal_sync is not None:
            self._wal_sync.close()
        self._engine.dispose()

    def _threads(self, number: int, connect: Callable[[], Connection]) -> Threads[Session]:
        if self.dialect == "postgresql":
            return Threads(
                *(PostgresSession(connect, self._told, self.name) for _ in range(number))
            )
        return Threads(*(SqliteSession(connect, self._told, self._wal_sync) for _ in range(number)))

    def _told(self, topics: Collection[str]) -> None:
        for told in self._listeners:
            told(topics)


def _file_of(url: URL) -> str | None:
    return None if url.database in (None, "", ":memory:") else url.database


def _sqlite_engine(url: URL, shown: str) -> Engine:
    file = _file_of(url)
    if file:
        try:
            _make_private(Path(file))
        except OSError as error:
            raise StartError(
                f"The database {shown} cannot be made: {error.strerror}. Choose another place."
            ) from error
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        poolclass=NullPool if file else StaticPool,
        # Transactions are begun by the sessions, whose threads are not where they were made.
        connect_args={"isolation_level": None, "check_same_thread": False},
        pool_reset_on_return=None,
    )
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    for pragma in (
        f"busy_timeout = {int(_BUSY_SECONDS * 1000)}",
        "journal_mode = WAL",
        f"journal_size_limit = {_LOG_BYTES}",
        "foreign_keys = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _make_private(file: Path) -> None:
    """Make a file that others cannot read, and the folder if there is none."""
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _postgres_engine(url: URL) -> Engine:
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            connect_args={k: v for k, v in _POSTGRES_OPTIONS.items() if k not in url.query},
        )
    except ModuleNotFoundError as error:
        raise StartError(
            "PostgreSQL needs a driver that is not installed: pip install 'antiphon[postgres]'."
        ) from error
