"""What fuzzing finds becomes a case that fails as long as it is so."""

import json

import pytest
from made_server import Answer, answering

from responses_conformance.cases import load
from responses_conformance.config import Config
from responses_conformance.exchange import Exchange
from responses_conformance.fuzzing.found import CHECKS, Found, Made, Smallest, write
from responses_conformance.results import Verdict
from responses_conformance.runner import run

PARAM = {
    "error": {
        "message": "No.",
        "type": "invalid_request_error",
        "param": "a",
        "code": "invalid_value",
    }
}
REFUSED = Answer({"error": {**PARAM["error"], "param": None}}, 400)
COUNT = {"object": "response.input_tokens", "input_tokens": 3}
FRAME = b'event: response.completed\ndata: {"type": "response.completed", "response": {}}\n\n'
COUNTED = "/v1/responses/input_tokens"

#: Of each check: what was said, an answer that is wrong by it, and one that is not.
ANSWERS = {
    "no_server_error": ("answered with 500", Answer(PARAM, 500), REFUSED),
    "rules_hold": (
        "FAULT-3 at status 400: content-type text/html; FAULT-1 at status 400: {}",
        Answer({"detail": "no"}, 400),
        REFUSED,
    ),
    "param_exists": ("there is no a in the request", Answer(PARAM, 400), REFUSED),
    "frames_fit_content_schema": (
        "frame 0: wrong",
        Answer(FRAME, media="text/event-stream"),
        REFUSED,
    ),
    "status_code_conformance": ("Received: 201", Answer(COUNT, 201), REFUSED),
    "content_type_conformance": (
        "Received: text/plain",
        Answer(COUNT, media="text/plain"),
        Answer(COUNT),
    ),
    "response_schema_conformance": (
        "'input_tokens' is a required property",
        Answer({"object": "response.input_tokens"}),
        Answer(COUNT),
    ),
    "negative_data_rejection": ("Invalid data should be rejected", Answer(COUNT), REFUSED),
}


def exchange(answer=REFUSED, *, method="POST", path=COUNTED, body=b'{"input": 1}', **headers):
    media = {"content-type": "application/json", "user-agent": "schemathesis"}
    told = {"content-type": answer.media}
    sent = {**media, **headers}
    return Exchange(method, path, sent, body, answer.status, told, answer.raw)


def written(folder, *found):
    """The cases of what was found."""
    write(found, folder / "fuzz-fuzzing.yaml", phase="fuzzing", seed=7, base_path="/v1")
    return [case for case in load([folder]) if case.id.startswith("FOUND-")]


def outcome(cases, answer):
    """How a case comes out where requests are answered so."""
    with answering(answer) as url:
        config = Config(base_url=url, model="m", claims=("core", "exact"))
        result = run(config, cases).cases[0]
    return result.verdict, " ".join(result.reasons)


@pytest.mark.parametrize("check", ANSWERS)
def test_a_case_fails_on_what_was_found_and_passes_once_it_is_mended(check, tmp_path):
    message, wrong, right = ANSWERS[check]
    cases = written(tmp_path, Found(check, message, (exchange(wrong),)))
    assert [case.id for case in cases] == ["FOUND-FUZZING-1"]
    assert "seed 7" in cases[0].source[0] and message in cases[0].source[0]
    assert outcome(cases, lambda *_: wrong)[0] is Verdict.FAIL
    assert outcome(cases, lambda *_: right) == (Verdict.PASS, "")


def test_every_check_can_be_told_as_a_case(tmp_path):
    cases = written(tmp_path, *(Found(check, "wrong", (exchange(),)) for check in CHECKS))
    assert len(cases) == len(CHECKS)
    assert {case.requirement for case in cases} == set(CHECKS.values())


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": "\xc3\xa9 \\u0000"}',
        b"r2\xf0\x00",
        b'{"input": "{{prompt.text}}"}',
        b"\n\n  {",
        b'{"a": {"b": {}}}',
    ],
)
def test_a_body_is_sent_again_as_it_was(body, tmp_path):
    cases = written(tmp_path, Found("no_server_error", "500", (exchange(body=body),)))
    seen = []

    def answer(method, path, content):
        seen.append((method, path, content))
        return REFUSED

    outcome(cases, answer)
    assert seen[-1] == ("POST", COUNTED, body)


def test_the_path_its_query_and_special_headers_are_sent_again(tmp_path):
    path = "/v1/responses/resp_%00?limit=-1&x=%7B%7Ba"
    sent = exchange(method="GET", path=path, body=b"", **{"x-odd": "1", "authorization": "secret"})
    [case] = written(tmp_path, Found("no_server_error", "500", (sent,)))
    seen = []

    def answer(method, asked, content):
        seen.append((method, asked, content))
        return REFUSED

    outcome([case], answer)
    assert seen[-1] == ("GET", path, b"")
    assert case.steps[0]["headers"] == {"x-odd": "1"}


def test_an_id_of_an_earlier_answer_is_taken_from_that_answer_again(tmp_path):
    created = Answer({"id": "conv_1", "object": "conversation"})
    first = exchange(created, path="/v1/conversations", body=b"{}")
    then = exchange(path="/v1/conversations/conv_1/items", body=b'{"of": "conv_1"}')
    cases = written(tmp_path, Found("no_server_error", "500", (first, then)))
    seen = []

    def answer(method, path, content):
        seen.append((path, content))
        return Answer({"id": "conv_2"}) if path == "/v1/conversations" else REFUSED

    assert outcome(cases, answer)[0] is Verdict.PASS
    assert seen[-1] == ("/v1/conversations/conv_2/items", b'{"of": "conv_2"}')


def test_what_made_what_a_request_names_comes_before_it(tmp_path):
    conversation = Answer({"id": "conv_1111", "object": "conversation"})
    items = Answer({"object": "list", "data": [{"id": "msg_2222"}]})
    path = "/v1/conversations/conv_1111/items"
    makers = [
        exchange(conversation, path="/v1/conversations", body=b"{}"),
        exchange(items, path=path, body=b'{"items": []}'),
        exchange(Answer({"id": "conv_3333"}), path="/v1/conversations", body=b'{"other": 1}'),
    ]
    made = Made()
    for maker in makers:
        made.add(maker)
    failing = exchange(method="GET", path=f"{path}/msg_2222", body=b"")
    assert made.before((failing,)) == (*makers[:2], failing)
    assert made.before((makers[0], failing)) == (*makers[:2], failing)
    [case] = written(tmp_path, Found("no_server_error", "500", made.before((failing,))))
    assert case.steps[2]["request"].endswith("/{{step1.id}}/items/{{step2.data[0].id}}")


def test_of_what_was_made_the_latest_is_remembered():
    made = Made(most=2)
    for number in range(3):
        made.add(exchange(Answer({"id": f"conv_000{number}"}), path="/v1/conversations"))
    asked = [exchange(path=f"/v1/conversations/conv_000{number}") for number in range(3)]
    assert [len(made.before((one,))) for one in asked] == [1, 2, 2]


def test_the_smallest_of_each_kind_is_kept():
    smallest = Smallest()
    for body in (b'{"input": 12}', b"{}", b'{"input": 1}'):
        smallest.add(Found("no_server_error", "500", (exchange(body=body),)))
    smallest.add(Found("no_server_error", "500", (exchange(), exchange(body=b""))))
    smallest.add(Found("rules_hold", "FAULT-1 at x", (exchange(),)))
    smallest.add(Found("rules_hold", "FAULT-3 at x", (exchange(),)))
    smallest.add(Found("rules_hold", "FAULT-3 at y", (exchange(),)))
    kept = [(found.check, found.exchanges[0].request) for found in smallest]
    assert kept[0] == ("no_server_error", b"{}")
    assert [check for check, _ in kept] == ["no_server_error", "rules_hold", "rules_hold"]


def test_one_operation_is_one_kind_whatever_its_ids_are():
    paths = ("/v1/responses/resp_1a", "/v1/responses/resp_2b", "/v1/responses/resp_1a/cancel")
    found = [Found("no_server_error", "500", (exchange(path=path),)) for path in paths]
    assert found[0].key == found[1].key != found[2].key


def test_what_is_written_is_yaml_that_people_can_read(tmp_path):
    written(tmp_path, Found("no_server_error", "answered with 500", (exchange(),)))
    text = (tmp_path / "fuzz-fuzzing.yaml").read_text(encoding="utf-8")
    assert "request: POST /responses/input_tokens" in text
    assert json.dumps({"input": 1}) in text
