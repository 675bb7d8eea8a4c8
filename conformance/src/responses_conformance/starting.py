"""Starts the server under test, if the suite is to do that, and waits until it answers."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx

from responses_conformance.config import Config, ConfigError

_START_SECONDS = 600
_STOP_SECONDS = 20
_LINES = 5


@contextlib.contextmanager
def started(config: Config) -> Iterator[Config]:
    """Start the server that `config.start` names, and stop it at the end.

    `{port}` in the command and in `base_url` is a free port. Without a command nothing happens.
    Raises `ConfigError` if the server ends, or does not answer in time.
    """
    if config.start is None:
        yield config
        return
    port = str(_free_port())
    command = [part.replace("{port}", port) for part in shlex.split(config.start)]
    base_url = config.base_url.replace("{port}", port)
    ready = (config.ready_url or f"{base_url}/models").replace("{port}", port)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{command[0]}: {error}") from error
        try:
            if not _answers(process, ready):
                log.seek(0)
                last = "".join(log.readlines()[-_LINES:]).strip() or "it said nothing"
                code = process.poll()
                ended = "" if code is None else f", it ended with {code}"
                raise ConfigError(f"the server did not become ready{ended}: {last}")
            yield replace(config, base_url=base_url)
        finally:
            _stop(process)


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    with httpx.Client(trust_env=False) as http:
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if http.get(url).status_code < 500:
                    return True
            time.sleep(0.1)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
