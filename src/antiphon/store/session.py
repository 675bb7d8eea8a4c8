"""One connection, and transactions on it that are tried again where that may help."""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from antiphon.store.failures import Corrupt, StoreUnavailable
from antiphon.store.prepared import raw
from antiphon.store.wal_sync import WalSync

T = TypeVar("T")

#: Where a connection keeps what its transaction tells of.
_TOPICS = "antiphon topics"
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.01
#: A transaction that lost against another: it may well win the next time. The last two are races
#: for a unique value, and with the deletion of what is referred to.
_RACES = {"40001", "40P01", "23505", "23503"}
#: PostgreSQL takes 8000 bytes.
_MAX_PAYLOAD = 7900


def notify(connection: Connection, *topics: str) -> None:
    """Tell those who wait for these topics once the transaction is committed, in all processes."""
    connection.info.setdefault(_TOPICS, set()).update(topics)


class Session(ABC):
    """Transactions on a connection made by `connect` when it is first needed, or lost.

    `told` is called with the topics of a transaction that was committed, on the session's thread.
    """

    def __init__(
        self, connect: Callable[[], Connection], told: Callable[[Collection[str]], None]
    ) -> None:
        self._connect = connect
        self._told = told
        self._connection: Connection | None = None
        self._committing = False

    def connected(self) -> Connection:
        """The connection."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def transact(self, work: Callable[[Connection], T], *, write: bool, durable: bool) -> T:
        """The result of `work`, committed. It may be called several times, so all it does must be
        in the transaction. Raises what it raises, `StoreUnavailable`, or `Corrupt`."""
        attempt = 0
        while True:
            attempt += 1
            try:
                result, topics = self._once(work, write, durable)
            except Exception as error:
                if not self._again(error, attempt):
                    raise
                time.sleep(_PAUSE_SECONDS * attempt * random.random())
            else:
                if topics:
                    self._told(topics)
                return result

    def close(self) -> None:
        """Give the connection up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _once(
        self, work: Callable[[Connection], T], write: bool, durable: bool
    ) -> tuple[T, Collection[str]]:
        self._committing = False
        connection = self.connected()
        connection.info.pop(_TOPICS, None)
        self._before_begin(connection, write, durable)
        transaction = connection.begin()
        try:
            self._after_begin(connection, write, durable)
            result = work(connection)
            topics: Collection[str] = connection.info.pop(_TOPICS, ())
            if topics:
                self._before_commit(connection, topics)
        except BaseException:
            with suppress(Exception):
                transaction.rollback()
            raise
        self._committing = True
        try:
            transaction.commit()
        except BaseException:
            self.close()  # Whatever state it is in.
            raise
        return result, topics

    def _again(self, error: Exception, attempt: int) -> bool:
        """Whether to try once more; else raises what the caller is to see, or does nothing if that
        is the error itself."""
        driver = self._driver_error(error)
        if driver is None:
            return False
        lost = self._is_lost(driver)
        if lost:
            self.close()
        if lost and not self._committing and attempt == 1:
            return True  # A server that was restarted; one that is away is not waited for.
        if getattr(driver, "sqlstate", None) in _RACES and attempt < _ATTEMPTS:
            return True
        if self._is_damage(driver):
            raise Corrupt(f"the database is damaged: {driver}") from error
        if lost or self._is_trouble(driver):
            raise StoreUnavailable(f"the database failed: {_first_line(driver)}") from error
        return False

    @staticmethod
    def _driver_error(error: Exception) -> Exception | None:
        """What the driver raised, if it did."""
        if isinstance(error, DBAPIError):
            return error.orig if isinstance(error.orig, Exception) else error
        return error if type(error).__module__.partition(".")[0] in ("psycopg", "sqlite3") else None

    @staticmethod
    def _is_trouble(driver: Exception) -> bool:
        """Whether the database is at fault and not what was asked of it."""
        return type(driver).__name__ == "InterfaceError" or any(
            kind.__name__ in ("OperationalError", "InternalError") for kind in type(driver).__mro__
        )

    @abstractmethod
    def _is_lost(self, driver: Exception) -> bool:
        """Whether the connection cannot be used any more."""

    @abstractmethod
    def _is_damage(self, driver: Exception) -> bool:
        """Whether the database's own file is damaged."""

    @abstractmethod
    def _before_begin(self, connection: Connection, write: bool, durable: bool) -> None: ...
    @abstractmethod
    def _after_begin(self, connection: Connection, write: bool, durable: bool) -> None: ...
    @abstractmethod
    def _before_commit(self, connection: Connection, topics: Collection[str]) -> None: ...


class SqliteSession(Session):
    """On SQLite. The driver begins nothing by itself. `wal_sync` is for a file."""

    _durable: bool | None = None
    _version: int | None = None

    def __init__(
        self,
        connect: Callable[[], Connection],
        told: Callable[[Collection[str]], None],
        wal_sync: WalSync | None = None,
    ) -> None:
        super().__init__(connect, told)
        self._wal_sync = wal_sync

    def changed_elsewhere(self) -> bool:
        """Whether another connection has committed since the last call."""
        try:
            (version,) = raw(self.connected()).execute("PRAGMA data_version").fetchone()
        except Exception:
            return True  # Whoever looks finds out.
        known, self._version = self._version, version
        return known is not None and known != version

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database and empty it."""
        raw(self.connected()).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _is_lost(self, driver: Exception) -> bool:
        return False

    def _is_damage(self, driver: Exception) -> bool:
        return type(driver).__name__ == "DatabaseError"

    def _before_begin(self, connection: Connection, write: bool, durable: bool) -> None:
        execute = raw(connection).execute
        if write and durable is not self._durable:
            execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        if write and not durable and self._wal_sync is not None:
            self._wal_sync.committing()
        execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def _after_begin(self, connection: Connection, write: bool, durable: bool) -> None:
        pass

    def _before_commit(self, connection: Connection, topics: Collection[str]) -> None:
        pass


class PostgresSession(Session):
    """On PostgreSQL. Topics are told on the channel `antiphon`, after the name of who tells them,
    so that it need not listen to itself."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        told: Callable[[Collection[str]], None],
        name: str,
    ) -> None:
        super().__init__(connect, told)
        self._name = name

    def _is_lost(self, driver: Exception) -> bool:
        # Also where the server is being shut down, and says so before it closes the connection.
        state = getattr(driver, "sqlstate", None) or ""
        return self._connection is None or bool(
            self._connection.closed
            or self._connection.invalidated
            or raw(self._connection).closed
            or state.startswith(("08", "57P"))
        )

    def _is_damage(self, driver: Exception) -> bool:
        return getattr(driver, "sqlstate", None) in ("XX001", "XX002")

    def _before_begin(self, connection: Connection, write: bool, durable: bool) -> None:
        pass

    def _after_begin(self, connection: Connection, write: bool, durable: bool) -> None:
        if write and durable:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")

    def _before_commit(self, connection: Connection, topics: Collection[str]) -> None:
        payload = self._name
        for topic in topics:
            if len(payload) + len(topic) >= _MAX_PAYLOAD:
                self._tell(connection, payload)
                payload = self._name
            payload += f" {topic}"
        self._tell(connection, payload)

    def _tell(self, connection: Connection, payload: str) -> None:
        # The driver itself: it is done for nearly every token.
        raw(connection).execute("SELECT pg_notify('antiphon', %s)", (payload,))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
