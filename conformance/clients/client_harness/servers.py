"""Starts antiphon, with the script or with the embedded model."""

import hashlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_harness.clients import ROOT

#: The key that servers ask for, so that every client shows that it sends one.
KEY = "sk-antiphon-clients"
_START_SECONDS = 180


@contextmanager
def server(port: int, log: Path, *, real: bool) -> Iterator[str]:
    """Serve until the block ends; yields the base URL. Raises `RuntimeError` if nothing starts."""
    config = () if real else ("--config", str(ROOT / "script.toml"))
    environment = {
        **os.environ,
        "ANTIPHON_API_KEYS": f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}",
        "ANTIPHON_STATE": "memory",
        "ANTIPHON_LOG_FORMAT": "json",
        "ANTIPHON_PORT": str(port),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", *config],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        _wait(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"antiphon did not start; see {log}")
