"""`Idempotency-Key`: the same request sent again makes nothing new."""

import threading
import time

import pytest
from asked import AskedModel
from gated import GatedModel
from serving import parse_stream, scripted

from antiphon.turn import Finish, TextDelta

KEY = {"headers": {"idempotency-key": "once"}}


@pytest.fixture
def model():
    return AskedModel(("", [{"text": "hello", "pieces": 1}]))


def test_the_same_request_is_answered_with_the_same_response(every_state, server, model):
    served = server(model, **every_state)
    body = {"input": "x", "metadata": {"a": "1", "b": "2"}}
    first = served.create(body, **KEY)
    again = {"metadata": {"b": "2", "a": "1"}, "input": "x"}  # In another order.
    assert served.create(again, **KEY) == first
    assert served.http.get("/v1/status").json()["store"]["counts"]["responses"] == 1


@pytest.mark.parametrize("mode", [{}, {"background": True}])
def test_the_same_stream_is_sent_again(state, server, model, mode):
    served = server(model, **state)
    first = served.stream({"input": "x", **mode}, **KEY)
    again = served.stream({"input": "x", **mode}, **KEY)
    assert [e.raw for e in again.events] == [e.raw for e in first.events]
    assert again.done


@pytest.mark.parametrize(
    "other",
    [{"input": "y"}, {"input": "x", "stream": True}, {"input": "x", "temperature": 0}],
)
def test_another_request_with_the_key_is_refused(every_state, server, model, other):
    served = server(model, **every_state)
    served.create({"input": "x"}, **KEY)
    error = served.error(other, 422, **KEY)
    assert error["code"] == "idempotency_key_reused"
    assert served.create(other if "stream" not in other else {"input": "z"})["id"]


def test_a_failed_response_is_the_answer_too(state, server):
    served = server(scripted({"text": "a"}, {"fail": "x"}), **state)
    first = served.create({"input": "x"}, **KEY)
    assert first["status"] == "failed"
    assert served.create({"input": "x"}, **KEY) == first


def test_a_refused_request_does_not_use_its_key_up(state, server, model):
    served = server(model, **state)
    served.error({"input": "x", "previous_response_id": "resp_none"}, **KEY)
    assert served.create({"input": "x"}, **KEY)["status"] == "completed"


def test_who_asks_again_meanwhile_gets_the_running_stream(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    answers = []
    body = {"input": "x", "stream": True}

    def ask():
        answers.append(parse_stream(served.post(body, **KEY)))

    with served.http.stream("POST", "/v1/responses", json=body, **KEY) as live:
        chunks = live.iter_raw()
        seen = next(chunks)
        thread = threading.Thread(target=ask)
        thread.start()
        model.say(TextDelta("hello"))
        model.say(Finish("stop"))
        seen += b"".join(chunks)
        thread.join()
    assert b"".join(e.raw + b"\n\n" for e in answers[0].events) + b"data: [DONE]\n\n" == seen
    assert model.steps == 2


def test_who_asks_again_meanwhile_waits_for_the_same_response(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(served.create({"input": "x"}, **KEY)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    model.say(TextDelta("hello"), Finish("stop"))
    for thread in threads:
        thread.join()
    assert len({answer["id"] for answer in answers}) == 1
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["status"] == "completed"
    assert model.steps == 2


def test_a_background_response_is_answered_as_it_stands(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    body = {"input": "x", "background": True}
    first = served.create(body, **KEY)
    assert model.started.wait(10)
    running = served.create(body, **KEY)
    assert running["id"] == first["id"]
    assert running["status"] in ("queued", "in_progress")
    model.say(Finish("stop"))
    served.replay(first["id"])
    assert served.create(body, **KEY) == served.stored(first["id"])


@pytest.mark.parametrize("mode", [{}, {"stream": True}])
def test_a_turn_of_a_conversation_is_taken_once(state, server, mode):
    model = GatedModel()
    served = server(model, **state)
    conversation = served.post({}, "/v1/conversations").json()["id"]
    body = {"input": "x", "conversation": conversation, **mode}
    answers = []

    def ask():
        answers.append(served.post(body, **KEY))

    one, two = threading.Thread(target=ask), threading.Thread(target=ask)
    one.start()
    assert model.started.wait(10)
    two.start()
    model.say(TextDelta("hello"), Finish("stop"))
    one.join()
    two.join()
    ask()
    assert [answer.status_code for answer in answers] == [200] * 3
    whole = [answer.content if mode else answer.json() for answer in answers]
    assert whole == whole[:1] * 3
    items = served.http.get(f"/v1/conversations/{conversation}/items").json()["data"]
    assert len(items) == 2


def test_what_was_continued_may_be_deleted_meanwhile(state, server, model):
    served = server(model, **state)
    first = served.create({"input": "x"})
    body = {"input": "y", "previous_response_id": first["id"]}
    second = served.create(body, **KEY)
    served.http.delete(f"/v1/responses/{first['id']}")
    assert served.create(body, **KEY) == second


def test_a_key_is_forgotten_after_a_day_and_with_its_response(every_state, server, model):
    now = [0.0]
    served = server(model, clock=lambda: time.time() + now[0], **every_state)
    first = served.create({"input": "x"}, **KEY)
    now[0] = 86000
    assert served.create({"input": "x"}, **KEY)["id"] == first["id"]
    now[0] = 87000
    second = served.create({"input": "x"}, **KEY)
    assert second["id"] != first["id"]
    assert served.stored(first["id"]) == first
    served.http.delete(f"/v1/responses/{second['id']}")
    third = served.create({"input": "other"}, **KEY)
    assert third["id"] not in (first["id"], second["id"])


def test_a_stream_whose_events_are_not_kept_cannot_be_sent_again(state, server, model):
    now = [0.0]
    served = server(model, clock=lambda: time.time() + now[0], **state)
    for mode in ({}, {"background": True}):
        headers = {"headers": {"idempotency-key": f"once-{bool(mode)}"}}
        now[0] = 0
        first = served.stream({"input": "x", **mode}, **headers)
        now[0] = 1000
        error = served.error({"input": "x", "stream": True, **mode}, 409, **headers)
        assert error["code"] == "event_log_expired"
        assert served.stored(first.response["id"]) == first.response
    status = served.http.get("/v1/status").json()["store"]
    assert status["readers"] == 0


def test_for_what_is_not_stored_a_key_means_nothing_and_that_is_said(state, server, model):
    served = server(model, **state)
    made = []
    for _ in range(2):
        answer = served.post({"input": "x", "store": False}, **KEY)
        assert answer.headers["antiphon-dropped"] == "idempotency-key"
        made.append(answer.json()["id"])
    assert len(set(made)) == 2
    assert len(model.turns) == 2
    # Nor does it keep the key from being used.
    assert "antiphon-dropped" not in served.post({"input": "x"}, **KEY).headers
