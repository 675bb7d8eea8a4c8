"""What the benchmarks share: servers in processes of their own, and the CPU time those take."""

import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Peer:
    """A server under measurement."""

    base_url: str
    process: BaseProcess

    def cpu_seconds(self) -> float:
        """CPU time of the process so far, all its threads, user and system."""
        assert self.process.pid is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def serving(make_app: Callable[..., Any], *arguments: Any) -> Iterator[Peer]:
    """Serve `make_app(*arguments)` in another process, as `antiphon serve` would."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_serve, args=(make_app, arguments, sock), daemon=True)
    process.start()
    try:
        base_url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{base_url}/health")
                break
            time.sleep(0.1)
        yield Peer(base_url, process)
    finally:
        process.terminate()
        process.join()


def _serve(make_app: Callable[..., Any], arguments: tuple[Any, ...], sock: socket.socket) -> None:
    import sys

    import uvicorn

    from antiphon import logs
    from antiphon.server import keep_loop_responsive

    # Logging is part of the cost; reading it is not.
    sys.stderr = open(os.devnull, "w")
    logs.configure("info", "json")
    app = make_app(*arguments)
    keep_loop_responsive()
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="on")
    uvicorn.Server(config).run(sockets=[sock])
