"""Background responses: their states, cancelling, limits. (STA-08)"""

import json
import time

import openai
import pytest
from asked import AskedModel
from gated import GatedModel
from serving import scripted

from antiphon.keys import KeyFile, KeyRing
from antiphon.turn import Finish, TextDelta

BACKGROUND = {"input": "x", "background": True}


def until(served, response_id, *states):
    """The response once it is in one of some states."""
    for _ in range(2000):
        response = served.stored(response_id)
        if response["status"] in states:
            return response
    raise AssertionError(f"it stayed {response['status']}")


@pytest.mark.parametrize("stream", [False, True])
def test_sta_08_a_response_goes_through_its_states_and_never_back(every_state, server, stream):
    model = GatedModel()
    served = server(model, **every_state)
    client = served.sdk()
    if stream:
        with served.http.stream("POST", "/v1/responses", json={**BACKGROUND, "stream": True}) as s:
            first = json.loads(next(line for line in s.iter_lines() if "data:" in line)[5:])
        made = first["response"]
    else:
        made = served.create(BACKGROUND)
    assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
    running = until(served, made["id"], "in_progress")
    model.say(TextDelta("a"))
    for body in (made, running, served.stored(made["id"])):
        assert (body["usage"], body["completed_at"], body["error"]) == (None, None, None)
        assert body["incomplete_details"] is None
    assert client.responses.retrieve(made["id"]).status == "in_progress"  # It validates.
    model.say(Finish("stop"))
    events = served.replay(made["id"])
    assert events.types[:3] == ["response.created", "response.queued", "response.in_progress"]
    states = [
        event.data["response"]["status"] for event in events.events if "response" in event.data
    ]
    assert states == ["queued", "queued", "in_progress", "completed"]
    done = served.stored(made["id"])
    assert done == events.response
    assert done["usage"]["output_tokens"] == 2
    assert done["completed_at"] >= done["created_at"]
    assert {**done, **{k: made[k] for k in ("status", "output", "usage", "completed_at")}} == made


@pytest.mark.parametrize(
    ("steps", "body", "status"),
    [
        ([{"text": "ok"}], {}, "completed"),
        ([{"text": "word " * 30, "pieces": 5}], {"max_output_tokens": 16}, "incomplete"),
        ([{"text": "a"}, {"finish": "content_filter"}], {}, "incomplete"),
        ([{"text": "word " * 5, "pieces": 5}, {"fail": "x"}], {}, "failed"),
        ([{"fail": "x"}], {}, "failed"),
    ],
)
def test_sta_08_it_ends_in_the_right_state(state, server, steps, body, status):
    served = server(scripted(*steps), **state)
    made = served.create({**BACKGROUND, **body})
    last = served.replay(made["id"]).response
    done = served.sdk().responses.retrieve(made["id"])
    assert last["status"] == done.status == status
    assert (done.error is not None) is (status == "failed")
    assert (done.incomplete_details is not None) is (status == "incomplete")
    # The foreground answers in the same way.
    foreground = served.create({"input": "x", **body})
    same = ("status", "incomplete_details", "usage")
    assert {name: foreground[name] for name in same} == {name: last[name] for name in same}
    assert (foreground["error"] or {}).get("code") == (last["error"] or {}).get("code")


def test_err_04_what_does_not_fit_is_refused_before_it_is_accepted(state, server):
    served = server(AskedModel(("", []), context_window=20), **state)
    error = served.error({**BACKGROUND, "input": "word " * 50})
    assert error["code"] == "context_length_exceeded"
    assert served.http.get("/v1/status").json()["store"]["counts"]["responses"] == 0


def test_a_background_turn_is_history_like_any_other(every_state, server):
    model = AskedModel(("", [{"echo": True}]))
    served = server(model, **every_state)
    conversation = served.post({}, "/v1/conversations").json()["id"]
    first = served.create({**BACKGROUND, "input": "one", "conversation": conversation})
    served.replay(first["id"])
    second = served.create({**BACKGROUND, "input": "two", "previous_response_id": first["id"]})
    served.replay(second["id"])
    assert [text for _, text in model.last] == ["one", "one", "two"]
    served.create({"input": "three", "conversation": conversation})
    assert [text for _, text in model.last] == ["one", "one", "three"]


def test_a_running_response_cannot_be_continued_or_deleted(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    made = served.create(BACKGROUND)
    assert model.started.wait(10)
    error = served.error({"input": "y", "previous_response_id": made["id"]}, 409)
    assert (error["code"], error["param"]) == ("response_in_progress", "previous_response_id")
    answer = served.http.delete(f"/v1/responses/{made['id']}")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "response_in_progress"
    page = served.http.get(f"/v1/responses/{made['id']}/input_items").json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["x"]
    model.say(Finish("stop"))
    served.replay(made["id"])
    assert served.http.delete(f"/v1/responses/{made['id']}").status_code == 200


# Cancelling


@pytest.mark.parametrize(
    "request_options",
    [
        {},
        {"content": b""},
        {"content": b"", "headers": {"content-type": "application/json"}},
        {"json": {}},
    ],
)
def test_a_cancel_call_needs_no_body(plain, request_options):
    made = plain.create({"input": "x"})
    answer = plain.http.post(f"/v1/responses/{made['id']}/cancel", **request_options)
    assert answer.status_code == 200, answer.text
    assert answer.json() == made


def test_cancelling_is_final_and_may_be_repeated(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    client = served.sdk()
    made = served.create(BACKGROUND)
    model.say(TextDelta("some"))
    assert model.started.wait(10)
    cancelled = client.responses.cancel(made["id"])
    assert cancelled.status == "cancelled"
    assert model.stopped.is_set()
    assert client.responses.cancel(made["id"]) == cancelled
    assert client.responses.retrieve(made["id"]) == cancelled
    error = served.error({"input": "y", "previous_response_id": made["id"]})
    assert (error["code"], error["param"]) == (
        "previous_response_not_found",
        "previous_response_id",
    )
    assert served.replay(made["id"]).types[-1] == "error"
    client.responses.delete(made["id"])
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel(made["id"])


@pytest.mark.parametrize("steps", [[{"text": "ok"}], [{"fail": "x"}]])
def test_cancelling_what_has_ended_changes_nothing(state, server, steps):
    served = server(scripted(*steps), **state)
    made = served.create({"input": "x"})
    assert served.http.post(f"/v1/responses/{made['id']}/cancel").json() == made
    assert served.stored(made["id"]) == made


def test_a_queued_response_that_is_cancelled_never_starts(every_state, server):
    busy, idle = GatedModel(), AskedModel(("", [{"text": "ok"}]), name="idle")
    served = server(busy, idle, background_workers=1, **every_state)
    running = served.create(BACKGROUND)
    assert busy.started.wait(10)
    turns = len(idle.turns)  # Asked whether it fits when it is accepted.
    queued = served.create({**BACKGROUND, "model": "idle"})
    accepted = len(idle.turns)
    assert served.stored(queued["id"])["status"] == "queued"
    cancelled = served.http.post(f"/v1/responses/{queued['id']}/cancel").json()
    assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
    events = served.replay(queued["id"])
    assert events.types == ["response.created", "response.queued", "error"]
    busy.say(Finish("stop"))
    served.replay(running["id"])
    after = served.create({**BACKGROUND, "model": "idle"})
    served.replay(after["id"])
    assert served.stored(queued["id"]) == cancelled
    # Those that ran were put to the model twice at most, the cancelled one only on acceptance.
    assert len(idle.turns) == accepted + 2 * (accepted - turns)


def test_a_foreground_response_can_be_cancelled_from_elsewhere(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    with served.http.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as live:
        lines = live.iter_lines()
        first = json.loads(next(line for line in lines if "data:" in line)[5:])
        response_id = first["response"]["id"]
        cancelled = served.http.post(f"/v1/responses/{response_id}/cancel").json()
        rest = list(lines)
    assert cancelled["status"] == "cancelled"
    assert "response_cancelled" in rest[-4]
    assert rest[-2:] == ["data: [DONE]", ""]


# Limits


def test_a_response_that_takes_too_long_fails(every_state, server):
    model = GatedModel()
    served = server(model, background_deadline_seconds=0.5, **every_state)
    made = served.create(BACKGROUND)
    events = served.replay(made["id"])
    assert events.types[-2:] == ["error", "response.failed"]
    stored = served.stored(made["id"])
    assert stored == events.response
    assert (stored["status"], stored["error"]["code"]) == ("failed", "deadline_exceeded")
    if model.started.is_set():
        assert model.stopped.wait(10)


def test_waiting_counts_as_taking_long(state, server):
    model = GatedModel()
    served = server(model, background_workers=1, background_deadline_seconds=0.5, **state)
    one, two = served.create(BACKGROUND), served.create(BACKGROUND)
    for made in (one, two):
        assert served.replay(made["id"]).response["error"]["code"] == "deadline_exceeded"


def test_active_responses_are_limited_for_each_key_and_in_all(every_state, server, tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    a, b = ({"headers": {"authorization": f"Bearer {file.add(name)}"}} for name in "ab")
    model = GatedModel()
    served = server(
        model, keys=KeyRing(file), max_background=3, max_background_per_key=2, **every_state
    )

    def refused(key):
        answer = served.post(BACKGROUND, **key)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        error = answer.json()["error"]
        assert error["code"] == "rate_limit_exceeded"
        return error["message"]

    made = [served.create(BACKGROUND, **a) for _ in range(2)]
    assert "this key" in refused(a)
    served.create(BACKGROUND, **b)
    assert "this key" not in refused(b)
    # Another kind of response is not held up.
    assert served.post({"input": "x", "model": "nope"}, **a).status_code == 404
    for response in made:
        served.http.post(f"/v1/responses/{response['id']}/cancel", **a)
    assert served.create(BACKGROUND, **a)["status"] == "queued"


def test_a_request_may_be_too_large_for_the_background(state, server):
    served = server(scripted({"text": "ok"}), max_background_bytes=2000, **state)
    body = {"input": "x" * 2100}
    for stream in (False, True):
        error = served.error({**body, "background": True, "stream": stream}, 413)
        assert error["code"] == "payload_too_large"
        assert "2000" in error["message"]
    assert served.create(body)["status"] == "completed"
    status = served.http.get("/v1/status").json()["store"]
    assert (status["counts"]["responses"], status["readers"]) == (1, 0)


def test_the_sdk_polls_a_background_response(state, server):
    client = server(scripted({"text": "a"}, {"delay": 0.05}, {"text": "b"}), **state).sdk()
    made = client.responses.create(model="test-model", input="x", background=True)
    seen = [made.status]
    deadline = time.monotonic() + 30
    while seen[-1] in ("queued", "in_progress") and time.monotonic() < deadline:
        response = client.responses.retrieve(made.id)
        if response.status != seen[-1]:
            seen.append(response.status)
    assert response.output_text == "ab"
    assert seen in (
        ["queued", "completed"],
        ["queued", "in_progress", "completed"],
    )
