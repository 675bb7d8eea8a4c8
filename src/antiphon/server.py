"""The process: a socket, the application on it, and an end that leaves no stream hanging."""

import asyncio
import gc
import ipaddress
import socket
import sys
from collections.abc import Callable

import uvicorn

from antiphon.app import Application
from antiphon.errors import StartError

# Once every run has ended, connections have this long to send what is left.
_LAST_WORDS_SECONDS = 5


class BindError(StartError):
    """The address cannot be listened on."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address, not listening yet. Port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BindError(
            f"cannot listen on {host} port {port}: {error.strerror}. "
            "Choose another with --host and --port."
        ) from error
    sock.set_inheritable(True)
    return sock


def keep_loop_responsive() -> None:
    """Set up the process so that the event loop never waits long. Call it once all is loaded."""
    # What is loaded now stays: without this, collecting garbage would walk all of it again and
    # again, and stop the event loop for a tenth of a second each time.
    gc.collect()
    gc.freeze()
    # How long a thread that computes may keep the interpreter's lock when the loop asks for it.
    sys.setswitchinterval(0.001)


class Server(uvicorn.Server):
    """Serves an application until it is told to stop, then lets its responses end.

    `on_start` is called once requests are taken.
    """

    def __init__(
        self, application: Application, *, grace_seconds: float, on_start: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application.asgi,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_LAST_WORDS_SECONDS,
            )
        )
        self._application = application
        #: Whether everything that was asked let go when the server was told to stop.
        self.let_go = True
        self._grace_seconds = grace_seconds
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        keep_loop_responsive()
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.create_task(self._application.drain(self._grace_seconds))
        # A second Ctrl-C ends the wait.
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=0.1)
        self.let_go = draining.done() and draining.result()
        await super().shutdown(sockets)
