"""Recorded requests are sent again with the ids of the server at hand, and judged."""

from dataclasses import replace

import pytest
from answering import MESSAGE, answering, call, error, recorded, response
from socket_server import sockets

from responses_conformance.recorded.refusals import Refusal
from responses_conformance.recorded.reports import as_json, markdown
from responses_conformance.recorded.resending import Fate, resend

ASKED = {"model": "theirs", "input": "Hi"}
SEARCHED = {"type": "item_reference", "id": "msg_00000001"}
OUTPUT = {"type": "function_call_output", "call_id": "call_00000001", "output": "3"}
REASONING = {
    "type": "reasoning",
    "id": "rs_real",
    "summary": [],
    "encrypted_content": "sealed-here",
    "status": "completed",
}


def sent(answers, *flow, **options):
    """What a server was sent, and what became of it."""
    with answering(*answers) as (config, server):
        report = resend(replace(config, **options), [flow])
    return server.received, report.results


def bodies(answers, *flow):
    received, results = sent(answers, *flow)
    assert [result.fate for result in results] == [Fate.ACCEPTED] * len(flow), results
    return [body for _, _, _, body in received]


def follow(**fields):
    return recorded({"model": "theirs", "input": "Go on", **fields}, number=2)


def test_a_request_goes_out_as_it_was_but_for_the_model_the_key_and_the_host():
    received, results = sent([response()], recorded(ASKED))
    ((method, path, headers, body),) = received
    told = {name.lower(): value for name, value in headers.items()}
    assert (method, path, body) == ("POST", "/v1/responses", {**ASKED, "model": "m"})
    assert (told["x-mark"], told["authorization"]) == ("1", "Bearer k")
    assert told["host"] != "gone"
    assert [(result.fate, result.status) for result in results] == [(Fate.ACCEPTED, 200)]


def test_the_model_may_be_named_after_the_request():
    received, _ = sent([response()], recorded(ASKED), model="of {request}")
    assert received[0][3]["model"] == "of client/01-a"


def test_a_response_that_is_continued_is_the_one_that_the_server_made():
    two = [response("resp_x"), response("resp_y"), response("resp_z")]
    _, second, third = bodies(
        two,
        recorded(ASKED),
        follow(previous_response_id="resp_00000007"),
        follow(previous_response_id="resp_00000008"),
    )
    assert second["previous_response_id"] == "resp_x"
    assert third["previous_response_id"] == "resp_y"


def test_paths_hold_the_server_s_ids_and_no_body_is_none():
    path = "/responses/resp_00000001?starting_after=3"
    received, _ = sent([response("resp_x"), response("resp_x")], recorded(ASKED), recorded(
        None, "GET", path, number=2))  # fmt: skip
    assert received[1][:2] == ("GET", "/v1/responses/resp_x?starting_after=3")
    assert received[1][3] is None


def test_a_conversation_and_its_items_are_the_server_s():
    conversation = {"id": "conv_x", "object": "conversation", "created_at": 1, "metadata": {}}
    items = {"object": "list", "data": [MESSAGE], "first_id": "msg_1", "last_id": "msg_1"}
    received, results = sent(
        [conversation, {**items, "has_more": False}, response()],
        recorded({"items": []}, path="/conversations"),
        recorded(None, "GET", "/conversations/conv_00000001/items", number=2),
        recorded({"input": [SEARCHED], "conversation": "conv_00000001"}, number=3),
    )
    assert received[1][1] == "/v1/conversations/conv_x/items"
    assert received[2][3]["conversation"] == "conv_x"
    assert received[2][3]["input"] == [{**SEARCHED, "id": MESSAGE["id"]}]
    assert {result.fate for result in results} == {Fate.ACCEPTED}


def test_calls_in_a_history_have_the_ids_of_those_that_the_model_made():
    theirs = {"type": "function_call", "id": "fc_00000001", "call_id": "call_00000001"}
    said = {"name": "f", "arguments": '{"a":1}'}
    first = response(output=[call(name="g"), call("fc_2", "call_2")])
    _, second = bodies([first, response()], recorded(ASKED), follow(
        input=[{**theirs, **said}, OUTPUT]))  # fmt: skip
    assert second["input"][0] == {**theirs, **said, "id": "fc_2", "call_id": "call_2"}
    assert second["input"][1] == {**OUTPUT, "call_id": "call_2"}


def test_an_output_alone_answers_a_call_of_the_response_that_is_continued():
    answers = [
        response("resp_x", [call("fc_1", "call_1")]),
        response("resp_y", [call("fc_2", "call_2")]),
        response("resp_z"),
    ]
    flow = recorded(ASKED), follow(), follow(input=[OUTPUT], previous_response_id="resp_00000001")
    assert bodies(answers, *flow)[2]["input"] == [{**OUTPUT, "call_id": "call_2"}]


def test_an_output_answers_the_call_that_is_referred_to():
    reference = {"type": "item_reference", "id": "fc_00000001"}
    answers = [response(output=[call("fc_1", "call_1"), call("fc_2", "call_2")]), response()]
    _, second = bodies(answers, recorded(ASKED), follow(input=[reference, OUTPUT]))
    assert [second["input"][0]["id"], second["input"][1]["call_id"]] == ["fc_1", "call_1"]


def test_calls_that_the_client_brings_itself_stay_as_they_are():
    theirs = {"type": "function_call", "call_id": "call_00000001", "name": "f", "arguments": "{}"}
    body = {"model": "m", "input": [theirs, OUTPUT]}
    assert bodies([response()], recorded(body)) == [body]


def test_reasoning_is_sealed_by_this_server():
    theirs = {"type": "reasoning", "id": "rs_00000001", "summary": [], "encrypted_content": "x"}
    answers = [response(output=[REASONING, MESSAGE]), response()]
    _, second = bodies(answers, recorded(ASKED), follow(input=[theirs]))
    assert second["input"] == [{**theirs, "id": "rs_real", "encrypted_content": "sealed-here"}]


def test_sealed_reasoning_without_an_id_goes_by_its_place():
    theirs = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    other = {**REASONING, "id": "rs_other", "encrypted_content": "sealed-too"}
    answers = [response(output=[REASONING]), response("resp_2", output=[other]), response("resp_3")]
    said = {"role": "user", "content": "On."}
    flow = recorded(ASKED), follow(input=[theirs]), follow(input=[theirs, said, {**theirs}])
    _, second, third = bodies(answers, *flow)
    assert [item["encrypted_content"] for item in second["input"]] == ["sealed-here"]
    assert [item.get("encrypted_content") for item in third["input"]] == [
        "sealed-here",
        None,
        "sealed-too",
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"previous_response_id": "resp_00000001"}, "a response that nothing before it made"),
        ({"conversation": {"id": "conv_00000001"}}, "a conversation that nothing before it made"),
        ({"input": [SEARCHED]}, "names a message that was not made"),
        ({"input": [OUTPUT]}, "a call that the model did not make"),
        (
            {"input": [{**REASONING, "id": "rs_00000001"}]},
            "reasoning that this server did not seal",
        ),
    ],
)
def test_what_relies_on_something_that_did_not_happen_is_not_sent(body, why):
    received, (result,) = sent([], recorded({"model": "m", "input": "x", **body}))
    assert received == []
    assert result.fate is Fate.UNMET and why in result.why


def test_flows_have_ids_of_their_own():
    with answering(response("resp_x"), response("resp_y")) as (config, server):
        report = resend(
            config, [(recorded(ASKED),), (follow(previous_response_id="resp_00000001"),)]
        )
    assert [result.fate for result in report.results] == [Fate.ACCEPTED, Fate.UNMET]
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("answer", "fate", "why"),
    [
        ((400, error()), Fate.REFUSED, "No."),
        ((500, error()), Fate.FAILED, "answered with 500"),
        ((400, {"detail": "no"}), Fate.FAILED, "FAULT-1"),
        (response(status="completed", output=[{"type": "message"}]), Fate.FAILED, "SHAPE-1"),
        (
            response(status="failed", output=[], error={"code": "server_error", "message": "Oh."}),
            Fate.FAILED,
            "the response failed",
        ),
    ],
)
def test_what_is_refused_or_wrong_is_told(answer, fate, why):
    _, (result,) = sent([answer], recorded(ASKED))
    assert result.fate is fate
    assert why in result.why


def test_a_server_that_does_not_answer_fails():
    with answering() as (config, server):
        server.server_close()
        (result,) = resend(config, [(recorded(ASKED),)]).results
    assert result.fate is Fate.FAILED and "Error" in result.why


def test_a_refusal_that_is_documented_is_told_by_its_name_and_must_be_met():
    pictures = Refusal("pictures", "Text only.", {"code": "no_pictures", "param": r"^input\[\d"})
    sound = Refusal("sound", "Text only.", {"status": 415})
    with answering((400, error("no_pictures", "input[0]")), response()) as (config, _):
        report = resend(config, [(recorded(ASKED), follow())], [sound, pictures])
    assert [result.fate for result in report.results] == [Fate.DOCUMENTED, Fate.ACCEPTED]
    assert report.results[0].refusal == "pictures"
    assert report.unused == [sound] and report.failed
    table = markdown(report)
    assert "| client | 1.0 | 2 | 1 | 1 | pictures (1) |" in table
    assert "- *sound*: Text only." in table
    assert '"refusal": "pictures"' in as_json(report)


@pytest.mark.parametrize(
    ("marks", "fits"),
    [
        ({"status": 400}, True),
        ({"status": 404}, False),
        ({"code": "invalid_value"}, True),
        ({"code": "invalid"}, False),
        ({"param": r"\.type$"}, True),
        ({"param": "^type"}, False),
        ({"message": "Pictures"}, True),
        ({"path": "/responses$"}, True),
        ({"status": 400, "path": "/conversations"}, False),
    ],
)
def test_a_refusal_is_told_by_all_its_marks(marks, fits):
    answer = (400, error(param="input[0].type", message="Pictures? No."))
    with answering(answer) as (config, _):
        report = resend(config, [(recorded(ASKED),)], [Refusal("a", "b", marks)])
    assert report.results[0].fate is (Fate.DOCUMENTED if fits else Fate.REFUSED)


FRAME = {"type": "response.create", "model": "theirs", "input": "Say hello.", "store": False}
SOCKET = (
    recorded(None, "GET", transport="websocket-handshake"),
    recorded(FRAME, "WS", number=2, transport="websocket-frame"),
    recorded(
        {**FRAME, "previous_response_id": "resp_00000001"},
        "WS",
        number=3,
        transport="websocket-frame",
    ),
)


def test_sockets_are_left_alone_where_they_are_not_claimed():
    received, results = sent([], *SOCKET)
    assert received == []
    assert [result.fate for result in results] == [Fate.UNSENT] * 3


def test_an_upgrade_that_is_refused_is_judged_and_leaves_no_socket():
    _, results = sent([(426, error("upgrade_required"))], *SOCKET, claims=("core", "websocket"))
    assert [result.fate for result in results] == [Fate.REFUSED, Fate.UNMET, Fate.UNMET]


@pytest.mark.antiphon
def test_turns_over_a_socket_are_sent_where_they_are_claimed(antiphon):
    with sockets(antiphon.base_url, antiphon.api_key) as url:
        config = replace(antiphon, base_url=url, claims=("core", "websocket"))
        report = resend(config, [SOCKET])
    assert [result.fate for result in report.results] == [Fate.ACCEPTED] * 3
