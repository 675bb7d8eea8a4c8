"""A replayed transcript is an upstream that clients can work with."""

import json

import httpx
import pytest
from replays import TRANSCRIPTS, replayed

from responses_conformance.findings import Findings
from responses_conformance.rules.bodies import judge_error
from responses_conformance.transcripts import load

TRANSCRIPT = load(TRANSCRIPTS / "valid/background.sse")
IDENTITY = TRANSCRIPT.retrieved["id"]


@pytest.fixture(scope="module")
def server():
    with replayed("valid/background") as url, httpx.Client(base_url=url, trust_env=False) as http:
        yield http


def test_what_was_recorded_is_sent_to_who_asks_for_a_stream(server):
    answer = server.post("/responses", json={"stream": True})
    assert answer.content == TRANSCRIPT.body
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_who_asks_for_no_stream_gets_the_response_at_its_end(server):
    assert server.post("/responses", json={}).json()["status"] == "completed"
    assert server.post("/responses").json()["id"] == IDENTITY


def test_a_response_is_retrieved_and_its_stream_resumed(server):
    assert server.get(f"/responses/{IDENTITY}").json() == TRANSCRIPT.retrieved
    for after in (*TRANSCRIPT.resumed, 0, 3):
        query = {"stream": "true", "starting_after": str(after)}
        body = server.get(f"/responses/{IDENTITY}", params=query).text
        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        assert events[0]["sequence_number"] == after + 1


def test_the_model_is_listed(server):
    assert [model["id"] for model in server.get("/models").json()["data"]] == ["scripted"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/responses", b"{", 400),
        ("POST", "/responses", b"[1]", 400),
        ("POST", "/responses", b"\xff", 400),
        ("GET", "/responses/none", b"", 404),
        ("GET", f"/responses/{IDENTITY}?stream=true&starting_after=x", b"", 400),
        ("GET", f"/responses/{IDENTITY}?stream=true&starting_after=-7", b"", 400),
    ],
)
def test_what_cannot_be_served_is_refused_as_the_api_refuses(server, method, path, body, status):
    answer = server.request(method, path, content=body)
    findings = Findings()
    judge_error(answer.status_code, answer.headers, answer.content, findings)
    assert answer.status_code == status
    assert findings.found == []
