"""The second opinion catches what a faulty server does, and agrees with a sound one."""

import json

import pytest
from replays import TRANSCRIPTS

from responses_conformance.exchange import Exchange
from responses_conformance.findings import Findings
from responses_conformance.frames import blocks
from responses_conformance.judging import Judge
from responses_conformance.schemas import Schemas
from responses_conformance.second import SecondOpinion, SecondUnavailable
from responses_conformance.transcripts import load

pytest.importorskip("openapi_core", reason="the extra second is not installed")

STREAM = "text/event-stream"
RECORDED = load(TRANSCRIPTS / "valid/text.sse")
TERMINAL = RECORDED.retrieved
REFUSED = {
    "error": {
        "message": "No.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_value",
    }
}


@pytest.fixture(scope="module")
def second():
    return SecondOpinion()


def exchange(
    content=TERMINAL,
    *,
    status=200,
    media="application/json",
    method="POST",
    path="/v1/responses",
    asked=None,
    left=False,
):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    body = {"model": "m", "input": "hi"} if asked is None else asked
    request = json.dumps(body).encode() if method == "POST" and body is not False else b""
    headers = {"content-type": media, "x-request-id": "req_1"}
    sent = {"content-type": "application/json"} if request else {}
    return Exchange(method, path, sent, request, status, headers, raw, left=left)


def found(second, one):
    findings = Findings()
    second.judge(one, findings)
    assert {finding.rule for finding in findings} <= {"SHAPE-3"}
    return [(finding.where, finding.seen) for finding in findings]


def frames(change=lambda event: event):
    """The recorded stream with its events changed."""
    body = b""
    for block in blocks(RECORDED.body):
        if block.event is not None:
            event = change(json.loads(block.text))
            body += f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    return body + b"data: [DONE]\n\n"


def without(name, field):
    """A change that takes a field from the events of a type."""
    return lambda event: (
        {k: v for k, v in event.items() if k != field} if event["type"] == name else event
    )


@pytest.mark.parametrize(
    "one",
    [
        exchange(),
        exchange(frames(), media=STREAM, asked={"model": "m", "input": "hi", "stream": True}),
        exchange(REFUSED, status=400),
        exchange(method="GET", path="/v1/responses/resp_1"),
        exchange(path="/api/v1/responses"),
        exchange(path="/responses"),
        exchange({"object": "list", "data": []}, method="GET", path="/v1/models"),
    ],
    ids=["body", "stream", "refusal", "retrieved", "base", "no base", "models"],
)
def test_what_is_sound_is_agreed_to(second, one):
    assert found(second, one) == []


@pytest.mark.parametrize("field", ["id", "status", "output", "usage", "created_at"])
def test_an_answer_without_a_field_is_told(second, field):
    [(where, seen)] = found(second, exchange({k: v for k, v in TERMINAL.items() if k != field}))
    assert where == "the answer" and field in seen


@pytest.mark.parametrize(
    "wrong",
    [
        {**TERMINAL, "status": "finished"},
        {**TERMINAL, "undeclared": 1},
        {**TERMINAL, "usage": {"input_tokens": "many"}},
        [],
        None,
    ],
)
def test_an_answer_of_another_shape_is_told(second, wrong):
    assert [where for where, _ in found(second, exchange(wrong))] == ["the answer"]


def test_an_answer_that_is_no_json_is_told(second):
    assert found(second, exchange(b"<html></html>"))


@pytest.mark.parametrize("status", [418, 301, 507])
def test_a_status_that_the_document_does_not_know_is_told(second, status):
    [(_, seen)] = found(second, exchange(REFUSED, status=status))
    assert str(status) in seen


def test_a_content_type_that_the_document_does_not_know_is_told(second):
    [(_, seen)] = found(second, exchange(media="text/html"))
    assert "text/html" in seen


@pytest.mark.parametrize(
    "asked",
    [{"model": 5}, {"model": "m", "temperature": "hot"}, {"model": "m", "input": [{"a": 1}]}],
)
def test_a_request_that_the_document_refuses_but_the_server_accepted_is_told(second, asked):
    assert "the request" in [where for where, _ in found(second, exchange(asked=asked))]
    refused = exchange(REFUSED, status=400, asked=asked)
    assert found(second, refused) == []


def test_a_query_that_the_document_refuses_but_the_server_accepted_is_told(second):
    one = exchange({}, method="GET", path="/v1/responses/resp_1?starting_after=now")
    assert "the request" in [where for where, _ in found(second, one)]


@pytest.mark.parametrize(
    "change",
    [
        without("response.output_text.delta", "item_id"),
        without("response.completed", "response"),
        lambda event: {**event, "undeclared": 1},
        lambda event: {**event, "sequence_number": "1"},
    ],
)
def test_a_frame_that_does_not_fit_its_schema_is_told_once(second, change):
    asked = {"model": "m", "input": "hi", "stream": True}
    told = found(second, exchange(frames(change), media=STREAM, asked=asked))
    assert [where for where, _ in told] == ["the answer"]


def test_what_the_document_does_not_know_is_no_matter_of_it(second):
    assert found(second, exchange({"any": 1}, path="/v1/nowhere")) == []


def test_of_what_the_suite_left_nothing_is_said_of_the_end(second):
    assert found(second, exchange(b'{"id": "re', left=True)) == []
    body = frames()[:-100]
    assert found(second, exchange(body, media=STREAM, left=True)) == []


def test_a_judge_notes_that_it_asked(second):
    judge = Judge(Schemas(), second)
    assert "SHAPE-3" in judge.judge(exchange()).checked
    broken = judge.judge(exchange({k: v for k, v in TERMINAL.items() if k != "store"}))
    assert {finding.rule for finding in broken.findings} == {"SHAPE-3"}


def test_without_openapi_core_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openapi_core", None)
    with pytest.raises(SecondUnavailable, match="second"):
        SecondOpinion()
