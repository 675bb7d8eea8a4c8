"""Hears what other processes tell over PostgreSQL."""

import random
import select
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from sqlalchemy import URL

from antiphon.errors import StartError

if TYPE_CHECKING:
    from psycopg import Connection

_logger = structlog.get_logger("antiphon.store")

_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 5.0
#: A connection that says nothing for so long is asked whether it still lives.
_PING_SECONDS = 30.0


class Wakes(Protocol):
    """Whom it tells."""

    def wake(self, topics: Collection[str]) -> None: ...
    def wake_all(self) -> None: ...


class Listener:
    """Listens on the channel `antiphon`, on a thread of its own, and tells `signals` what others
    than `name` say. Whenever it was deaf for a while it wakes everybody. Raises `StartError`."""

    def __init__(self, url: URL, name: str, signals: Wakes) -> None:
        import psycopg

        self._errors = psycopg.Error
        self._url = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._name = name
        self._signals = signals
        self._closing = False
        #: A byte to `_bell` ends what the thread waits for.
        self._bell, self._heard = socket.socketpair()
        try:
            connection = self._connected()
        except psycopg.Error as error:
            raise StartError(f"PostgreSQL lets nobody listen: {error}") from error
        self._thread = threading.Thread(
            target=self._loop, args=(connection,), name="store signals", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._closing = True
        self._bell.send(b".")
        self._thread.join()
        self._bell.close()
        self._heard.close()

    def _connected(self) -> "Connection[Any]":
        import psycopg

        connection = psycopg.connect(
            self._url,
            autocommit=True,
            application_name="antiphon signals",
            connect_timeout=10,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
        connection.execute("LISTEN antiphon")
        return connection

    def _loop(self, connection: "Connection[Any] | None") -> None:
        pause = _MIN_PAUSE_SECONDS
        while not self._closing:
            try:
                if connection is None:
                    connection = self._connected()
                    self._signals.wake_all()
                    pause = _MIN_PAUSE_SECONDS
                self._listen(connection)
            except self._errors as error:
                _logger.warning("signals lost", reason=str(error).partition("\n")[0])
                if connection is not None:
                    with suppress(self._errors):
                        connection.close()
                connection = None
                select.select([self._heard], [], [], pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        if connection is not None:
            connection.close()

    def _listen(self, connection: "Connection[Any]") -> None:
        """Pass on what is heard until it is closed."""
        heard: list[Any] = [connection, self._heard]
        while not self._closing:
            for said in connection.notifies(timeout=0):
                name, *topics = said.payload.split(" ")
                if name != self._name:
                    self._signals.wake(topics)
            ready, _, _ = select.select(heard, [], [], _PING_SECONDS)
            if not ready:
                connection.execute("SELECT 1")
