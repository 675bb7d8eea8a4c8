"""Each check that is held against what schemathesis sends catches its fault, and nothing else."""

import json

import pytest
from made import life, message, whole, written

pytest.importorskip("schemathesis", reason="the extra fuzz is not installed")

import requests
from schemathesis.core.transport import Response

from responses_conformance.fuzzing import checks
from responses_conformance.transcripts import load

BODY = {"model": "m", "input": [{"role": "user", "content": "hi"}]}
ERROR = {"message": "No.", "type": "invalid_request_error", "param": None, "code": "invalid_value"}


def answer(status, content, media="application/json", *, path="/v1/responses", body=BODY):
    """What schemathesis hands to a check: an answer, which knows its request."""
    sent = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    request = requests.Request("POST", f"http://server.test{path}", headers, data=sent).prepare()
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(
        status_code=status,
        headers={"Content-Type": [media]},
        content=raw,
        request=request,
        elapsed=0.1,
        verify=False,
    )


def refused(status=400, **fields):
    return answer(status, {"error": {**ERROR, **fields}})


def streamed(events):
    return answer(200, written(events).encode(), "text/event-stream")


def holds(check, response):
    """Whether a check is content."""
    try:
        check(None, response, None)
    except AssertionError as error:
        assert str(error)
        return False
    return True


@pytest.fixture(scope="module")
def recorded(request):
    """A stream that antiphon sent."""
    folder = request.path.parent.parent / "transcripts" / "valid"
    return load(folder / "text.sse").body


@pytest.mark.parametrize("status", [500, 501, 502, 505, 599])
def test_no_request_is_answered_with_a_5xx(status):
    assert not holds(checks.no_server_error, refused(status))


@pytest.mark.parametrize("status", [200, 400, 404, 429, 503, 504])
def test_any_other_status_is_no_server_error(status):
    assert holds(checks.no_server_error, refused(status))


@pytest.mark.parametrize(
    "response",
    [
        answer(400, {"detail": "no"}),
        answer(404, b"<html>", "text/html"),
        answer(400, b"", "application/json"),
        refused(429),
        refused(code="a code that no document knows"),
        answer(200, {"object": "response", "id": "resp_1"}),
        answer(200, b"null"),
    ],
)
def test_an_answer_that_breaks_a_rule_is_told(response):
    assert not holds(checks.rules_hold, response)


def test_a_sound_refusal_and_a_sound_stream_break_no_rule(recorded):
    assert holds(checks.rules_hold, refused())
    assert holds(checks.rules_hold, answer(200, recorded, "text/event-stream"))


def test_a_stream_without_its_end_breaks_a_rule(recorded):
    cut = recorded[: recorded.rindex(b"event: response.completed")]
    assert not holds(checks.rules_hold, answer(200, cut, "text/event-stream"))


def test_a_frame_that_does_not_fit_its_schema_is_told(recorded):
    events = whole(message(0, ["Hi"]))
    del events[4]["item_id"]
    assert not holds(checks.frames_fit_content_schema, streamed(events))
    assert holds(checks.frames_fit_content_schema, answer(200, recorded, "text/event-stream"))


def test_frames_are_held_to_the_exact_schemas():
    events = [{**life("created"), "undeclared": 1}]
    assert not holds(checks.frames_fit_content_schema, streamed(events))


def test_what_is_no_stream_has_no_frames():
    assert holds(checks.frames_fit_content_schema, answer(200, {"object": "nothing"}))


@pytest.mark.parametrize(
    "param",
    [
        "input[7]",
        "input[0].content[2].text",
        "tools[0].name",
        "input[0].content.text.x",
        "metadata.a.b",
        "nonsense",
        "input[0].nonsense",
        "input.role",
        "input[0]role",
    ],
)
def test_a_param_that_leads_nowhere_is_told(param):
    assert not holds(checks.param_exists, refused(param=param))


@pytest.mark.parametrize(
    "param",
    [None, "", "input", "input[0]", "input[0].content", "input[0].type", "temperature", "body"],
)
def test_a_param_of_the_request_or_of_what_it_lacks_exists(param):
    assert holds(checks.param_exists, refused(param=param))


@pytest.mark.parametrize("param", ["metadata.a.b", "metadata.a.b[0]", "metadata.", "metadata.x y"])
def test_a_param_may_hold_any_name_that_the_request_has(param):
    body = {"metadata": {"a.b": ["c"], "": 1, "x y": 2}}
    wrong = {"error": {**ERROR, "param": param}}
    assert holds(checks.param_exists, answer(400, wrong, body=body))


def test_a_param_may_be_in_the_path():
    wrong = {"error": {**ERROR, "param": "response_id"}}
    assert holds(checks.param_exists, answer(404, wrong, path="/v1/responses/x/cancel"))


def test_a_param_may_be_in_the_query():
    wrong = {"error": {**ERROR, "param": "include[1]"}}
    asked = "/v1/responses?include%5B%5D=a&include%5B%5D=b"
    assert holds(checks.param_exists, answer(400, wrong, path=asked))
    assert not holds(checks.param_exists, answer(400, wrong, path="/v1/responses"))


@pytest.mark.parametrize("body", [b"\xff", "{", None, "[1]", "[" * 5000])
def test_a_param_of_a_body_that_cannot_be_read_leads_nowhere(body):
    wrong = {"error": {**ERROR, "param": "input[0].id"}}
    assert not holds(checks.param_exists, answer(400, wrong, body=body))


def test_an_answer_without_an_error_has_no_param():
    assert holds(checks.param_exists, answer(400, b"<html>", "text/html"))
    assert holds(checks.param_exists, answer(200, {"error": {**ERROR, "param": "x[1]"}}))
