"""Models by their names on a hub: one on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from llama_shapes import new_module, save

from antiphon.engine.checkpoints import hub
from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.loader import read

NAME = "someone/tiny-llama"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def nothing(*_: object) -> None:
    """Progress that nobody looks at."""


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@dataclass
class Hub:
    """A hub of one model. `sent` are the files that were asked for whole."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    broken: bool = False
    gated: bool = False

    def tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
            for name, content in self.files.items()
        ]


@pytest.fixture
def served() -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            prefix = f"/{NAME}/resolve/{COMMIT}/"
            if endpoint.broken:
                self._send(503, b"{}", body)
            elif endpoint.gated:
                self._send(403, b"{}", body, error="GatedRepo")
            elif path.startswith(f"/api/models/{NAME}/revision/"):
                siblings = [{"rfilename": name} for name in endpoint.files]
                about = {"id": NAME, "sha": COMMIT, "siblings": siblings}
                self._send(200, json.dumps(about).encode(), body, "application/json")
            elif path == f"/api/models/{NAME}/tree/{COMMIT}":
                self._send(200, json.dumps(endpoint.tree()).encode(), body, "application/json")
            elif path.removeprefix(prefix) in endpoint.files:
                name = path.removeprefix(prefix)
                if body:
                    endpoint.sent.append(name)
                self._send(200, endpoint.files[name], body)
            else:
                self._send(404, b"{}", body, error="RepoNotFound")

        def _send(
            self, status: int, content: bytes, body: bool, kind: str = "text/plain", error: str = ""
        ) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.send_header("etag", f'"{_digest(content)}"')
            self.send_header("x-repo-commit", COMMIT)
            if error:
                self.send_header("x-error-code", error)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield endpoint
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, served: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves the library nothing of this machine's settings, and only this hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@pytest.fixture
def model(tmp_path: Path, served: Hub) -> Hub:
    """The hub with a whole model on it, and much that is of no use."""
    folder = tmp_path / "made"
    folder.mkdir()
    save(folder, new_module())
    served.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    served.files |= {"README.md": b"# Tiny", "model.onnx": b"onnx", "pytorch_model.bin": b"bin"}
    return served


def test_a_model_is_fetched_and_read(model):
    told: list[str] = []
    checkpoint = read(NAME, lambda text, *_: told.append(text))
    assert checkpoint.model_type == "llama"
    assert "model.embed_tokens.weight" in checkpoint.tensors
    assert checkpoint.tokenizer is not None
    assert told == ["Fetching the model", "Reading the files"]


def test_only_what_is_of_use_is_fetched_and_only_once(model):
    hub.fetch(NAME, nothing)
    assert "model.safetensors" in model.sent and "tokenizer.json" in model.sent
    assert not {"README.md", "model.onnx", "pytorch_model.bin"} & set(model.sent)
    assert len(model.sent) == len(set(model.sent))
    model.sent.clear()
    hub.fetch(NAME, nothing)
    assert model.sent == []


def test_weights_in_the_old_form_are_fetched_where_there_are_no_others(model):
    del model.files["model.safetensors"]
    folder = hub.fetch(NAME, nothing)
    assert (folder / "pytorch_model.bin").read_bytes() == b"bin"


@pytest.mark.parametrize("broken", [True, False])
def test_a_model_that_was_fetched_needs_no_hub_any_more(model, monkeypatch, broken):
    folder = hub.fetch(NAME, nothing)
    if broken:
        model.broken = True
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert hub.fetch(NAME, nothing) == folder


def test_a_name_that_the_hub_does_not_know_is_said_to_be_nowhere(served):
    with pytest.raises(LoadError) as caught:
        hub.fetch("someone/else", nothing)
    assert "someone/else is no folder and no file here" in str(caught.value)
    assert "the hub knows no model of that name" in str(caught.value)


def test_a_hub_that_cannot_be_reached_is_said_so(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(LoadError) as caught:
        hub.fetch(NAME, nothing)
    assert f"{NAME} is not here, and the hub cannot be reached" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hub_that_is_broken_is_said_so(served):
    served.broken = True
    with pytest.raises(LoadError, match=NAME):
        hub.fetch(NAME, nothing)


def test_a_model_that_is_not_for_everybody_is_said_to_be_so(model):
    model.gated = True
    with pytest.raises(LoadError, match=r"only for those whom its owner lets .* HF_TOKEN"):
        hub.fetch(NAME, nothing)


def test_a_name_that_none_can_have_is_refused():
    with pytest.raises(LoadError, match="cannot be a hub's name"):
        hub.fetch("some one/else?", nothing)
