"""A model of this process behind the server: full, slow, and with prefixes that it has seen."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Served, serve
from tiny_models import CHATML, ScriptedRunner, byte_level_tokenizer, engine

from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.formats.family import Family
from antiphon.formats.template import ChatTemplate
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.base import ModelDefaults
from antiphon.models.local import LocalModel, LocalOptions

HUB = byte_level_tokenizer()
HELLO = HUB.encode("hello").ids
STATUS = "#/components/schemas/ServerStatus"


class Runner(ScriptedRunner):
    def stats(self) -> dict[str, Any]:
        return {"weights": "none at all"}


class Gate:
    """Holds up the steps of a runner until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, sequence: int, step: int) -> None:
        self.reached.set()
        assert self.opened.wait(30)


@contextmanager
def served(
    runner: Any = None,
    keys: KeyRing | None = None,
    local: LocalOptions | None = None,
    **options: Any,
) -> Iterator[Served]:
    """A server of a model that says "hello" for ever."""
    tokenizer = PromptTokenizer(byte_level_tokenizer())
    controls = list(tokenizer.controls.values())
    family = Family(ChatTemplate(CHATML, variables={}, controls=controls))
    with engine(runner or Runner(HELLO), **options) as started:
        model = LocalModel(
            "tiny",
            started,
            tokenizer,
            family,
            context_window=512,
            stop_tokens=frozenset(),
            defaults=ModelDefaults(),
            options=local,
        )
        with serve(model, keys=keys) as server:
            yield server


def status_of(server: Served) -> dict[str, Any]:
    engine_status: dict[str, Any] = server.http.get("/v1/status").json()["models"][0]["engine"]
    return engine_status


# --- status ---


def test_an_engine_is_told_as_the_document_has_it(contract):
    with served(num_blocks=99) as server:
        server.create({"input": "x" * 100, "max_output_tokens": 16})
        status = server.http.get("/v1/status").json()
        assert contract.accepts(STATUS, status)
        told = status["models"][0]["engine"]
    assert (told["path"], told["reason"]) == ("universal", "It is told what to say.")
    assert told["weights"] == "none at all"
    assert (told["healthy"], told["running"], told["waiting"]) == (True, 0, 0)
    assert told["steps"] >= 16
    assert told["cache"]["total_blocks"] == 99
    assert told["cache"]["missed_tokens"] > 100
    assert told["speculation"] == {"proposed_tokens": 0, "accepted_tokens": 0}


# --- full ---

BODY = {"input": "hi", "max_output_tokens": 16}


@contextmanager
def full(gate: Gate, **options: Any) -> Iterator[Served]:
    """A server whose only place is taken until the gate is opened."""
    runner = Runner(HELLO, before_step=gate)
    with served(runner, max_running=1, max_waiting=0, **options) as server:
        first: list[Any] = []
        thread = threading.Thread(target=lambda: first.append(server.create(BODY)))
        thread.start()
        try:
            assert gate.reached.wait(30)
            yield server
        finally:
            gate.opened.set()
            thread.join()
        assert first[0]["status"] == "incomplete"


def test_a_request_beyond_the_limit_is_told_when_to_come_back(contract):
    gate = Gate()
    with full(gate) as server:
        answer = server.post(BODY)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-request-id"]
        assert answer.json() == {
            "error": {
                "message": "The model has as many requests waiting as it may. "
                "Try again in 1 second.",
                "type": "rate_limit_error",
                "param": None,
                "code": "rate_limit_exceeded",
            }
        }
        assert contract.accepts("#/components/schemas/Error", answer.json())
        gate.opened.set()


def test_a_stream_beyond_the_limit_is_refused_before_it_begins():
    with full(Gate()) as server:
        answer = server.post({**BODY, "stream": True})
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"


def test_a_request_that_was_refused_is_not_counted_as_begun():
    gate = Gate()
    with full(gate) as server:
        server.post(BODY)
        text = server.http.get("/metrics").text
        assert server.http.get("/ready").status_code == 200
    (line,) = [one for one in text.splitlines() if one.startswith("antiphon_responses_running")]
    assert line.endswith(" 1.0")


def test_there_is_room_again_once_the_first_is_done():
    gate = Gate()
    with full(gate) as server:
        assert server.post(BODY).status_code == 429
        gate.opened.set()
        client = server.sdk(max_retries=5)
        assert client.responses.create(**BODY).output_text


def test_the_official_client_comes_back_by_itself():
    gate = Gate()
    refused = threading.Event()

    def seen(answer: httpx.Response) -> None:
        if answer.status_code == 429:
            refused.set()
            gate.opened.set()

    with full(gate) as server:
        client = server.sdk(
            max_retries=5, http_client=httpx.Client(event_hooks={"response": [seen]}, timeout=30)
        )
        assert client.responses.create(**BODY).output_text.startswith("hello")
    assert refused.is_set()


# --- slow ---


def test_an_answer_that_takes_too_long_fails_as_one_that_timed_out():
    gate = Gate()
    runner = Runner(HELLO, before_step=lambda sequence, step: step < 3 or gate(0, 0))
    local = LocalOptions(timeout_seconds=0.5)
    with served(runner, local=local) as server:
        timer = threading.Timer(0.7, gate.opened.set)
        timer.start()
        stream = server.stream(BODY)
        timer.join()
    assert stream.types[-1] == "response.failed"
    (error,) = stream.of("error")
    assert error["code"] == "gateway_timeout"
    assert error["message"] == "The answer took longer than the server allows."
    assert stream.response["status"] == "failed"
    # A response's own error knows fewer codes.
    assert stream.response["error"]["code"] == "server_error"
    assert stream.response["error"]["message"] == error["message"]
    assert stream.text().startswith("hello")


# --- prefixes ---

LONG = "hello world " * 60


def cached(server: Served, body: dict[str, Any], **options: Any) -> int:
    usage = server.create({"max_output_tokens": 16, **body}, **options)["usage"]
    number: int = usage["input_tokens_details"]["cached_tokens"]
    assert usage["input_tokens"] > number
    return number


def test_the_second_of_two_long_prompts_is_cached_but_for_its_end():
    with served() as server:
        assert cached(server, {"input": LONG}) == 0
        prompt = server.create({"input": LONG, "max_output_tokens": 16})["usage"]["input_tokens"]
        assert cached(server, {"input": LONG}) == (prompt - 1) // 16 * 16
        assert cached(server, {"input": f"{LONG} and more"}) > 100
        assert cached(server, {"input": f"other {LONG}"}) < 32
        assert status_of(server)["cache"]["hit_tokens"] > 300


def test_the_end_of_a_stream_tells_what_was_cached():
    with served() as server:
        server.create({"input": LONG, "max_output_tokens": 16})
        usage = server.stream({"input": LONG, "max_output_tokens": 16}).response["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] > 100


def test_short_prompts_are_never_cached():
    with served() as server:
        assert [cached(server, {"input": "a"}) for _ in range(2)] == [0, 0]


@pytest.fixture
def two_keys(tmp_path: Path) -> tuple[KeyRing, list[dict[str, str]]]:
    file = KeyFile(tmp_path / "keys.toml")
    headers = [{"authorization": f"Bearer {file.add(name)}"} for name in ("one", "two")]
    return KeyRing(file), headers


def test_keys_share_no_prefixes(two_keys):
    keys, (one, two) = two_keys
    with served(keys=keys) as server:
        assert cached(server, {"input": LONG}, headers=one) == 0
        assert cached(server, {"input": LONG}, headers=two) == 0
        assert cached(server, {"input": LONG}, headers=one) > 100
        assert cached(server, {"input": LONG}, headers=two) > 100


@pytest.mark.parametrize("isolated", [False, True])
def test_cache_keys_share_no_prefixes_where_they_are_isolated(isolated):
    with served(local=LocalOptions(isolate_cache_keys=isolated)) as server:
        assert cached(server, {"input": LONG, "prompt_cache_key": "a"}) == 0
        assert (cached(server, {"input": LONG, "prompt_cache_key": "b"}) == 0) == isolated
        assert cached(server, {"input": LONG, "prompt_cache_key": "a"}) > 100
