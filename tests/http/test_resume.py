"""Streams of stored responses, picked up again. (STA-05, STA-12)"""

import itertools
import json
import re
import time
from contextlib import contextmanager

import openai
import pytest
from gated import GatedModel
from serving import scripted, serve

from antiphon.keys import KeyFile, KeyRing
from antiphon.turn import Finish, TextDelta

PIECES = [{"reasoning": "Think of it."}, {"text": "word " * 30, "pieces": 5}]
MODES = [{}, {"background": True}]


@contextmanager
def reading(served, path, body=None, **options):
    """The frames of a stream, as they come; leaving the block hangs up."""
    request = {"json": {**body, "stream": True}} if body else {}
    with served.http.stream("POST" if body else "GET", path, **request, **options) as answer:
        assert answer.status_code == 200, answer.read()
        yield frames(answer)


def frames(answer):
    rest = b""
    for chunk in answer.iter_raw():
        *whole, rest = (rest + chunk).split(b"\n\n")
        yield from whole


def event(frame):
    return json.loads(frame.partition(b"data: ")[2])


def raw(stream):
    return [event.raw for event in stream.events]


def taken(frames, number):
    """So many frames."""
    return list(itertools.islice(frames, number))


def id_of(frame):
    return re.search(rb'"id":"(resp_\w+)"', frame)[1].decode()


# After the end


@pytest.mark.parametrize("mode", MODES)
def test_sta_05_what_was_streamed_is_stored_before_its_last_event_is_sent(
    every_state, server, mode
):
    served = server(scripted(*PIECES), **every_state)
    with reading(served, "/v1/responses", {"input": "hi", **mode}) as live:
        for frame in live:
            if b"event: response.completed" in frame:
                told = event(frame)["response"]
                assert served.stored(told["id"]) == told
    path = f"/v1/responses/{told['id']}"
    assert served.http.delete(path).json() == {
        "id": told["id"],
        "object": "response",
        "deleted": True,
    }
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "?stream=true")):
        assert served.http.request(method, path + tail).status_code == 404
    error = served.error({"previous_response_id": told["id"], "input": "x"})
    assert error["code"] == "previous_response_not_found"


@pytest.mark.parametrize("mode", MODES)
def test_sta_12_a_replay_is_the_stream_again_from_wherever_it_is_asked_for(
    every_state, server, mode
):
    served = server(scripted(*PIECES), **every_state)
    live = served.stream({"input": "hi", **mode})
    response_id = live.response["id"]
    assert [e.data["sequence_number"] for e in live.events] == list(range(len(live.events)))
    whole = served.replay(response_id)
    assert raw(whole) == raw(live)
    assert whole.done
    for number in (0, 1, 7, len(live.events) - 2):
        rest = served.replay(response_id, number)
        assert raw(rest) == raw(live)[number + 1 :]
        assert rest.done
    # Behind the last event there is nothing, and that is no mistake.
    end = served.replay(response_id, len(live.events) - 1)
    assert (end.events, end.done) == ([], True)


@pytest.mark.parametrize("mode", MODES)
def test_sta_12_a_response_that_was_not_streamed_can_be_replayed(state, server, mode):
    served = server(scripted(*PIECES), **state)
    made = served.create({"input": "hi", **mode})
    stream = served.replay(made["id"])
    assert stream.types[0] == "response.created"
    assert stream.text() == "word " * 30
    assert stream.response == served.stored(made["id"])


@pytest.mark.parametrize(
    ("steps", "limit", "last"),
    [
        ([{"text": "a"}, {"fail": "x"}], None, ["error", "response.failed"]),
        ([{"text": "word " * 20, "pieces": 5}], 16, ["response.incomplete"]),
        ([], None, ["response.completed"]),
        ([{"call": "f", "arguments": "{}"}], None, ["response.completed"]),
    ],
)
def test_sta_12_every_kind_of_end_is_replayed(state, server, steps, limit, last):
    served = server(scripted(*steps), **state)
    body = {"input": "x", "max_output_tokens": limit, "tools": [{"type": "function", "name": "f"}]}
    live = served.stream(body)
    assert live.types[-len(last) :] == last
    assert raw(served.replay(live.response["id"])) == raw(live)


def test_sta_12_it_is_the_same_after_a_restart(lasting_state, server):
    with serve(scripted(*PIECES), **lasting_state) as served:
        streams = [served.stream({"input": "hi", **mode}) for mode in MODES]
    served = server(scripted({"text": "other"}), **lasting_state)
    for stream in streams:
        response_id = stream.response["id"]
        assert served.stored(response_id) == stream.response
        assert raw(served.replay(response_id)) == raw(stream)
        assert raw(served.replay(response_id, 5)) == raw(stream)[6:]
    made = served.create({"previous_response_id": streams[0].response["id"], "input": "on"})
    items = served.http.get(f"/v1/responses/{made['id']}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in items] == ["message", "reasoning", "message", "message"]


# While it runs


@pytest.mark.parametrize("mode", MODES)
def test_sta_12_a_reader_that_comes_late_gets_what_was_and_then_what_comes(
    every_state, server, mode
):
    model = GatedModel()
    served = server(model, **every_state)
    with reading(served, "/v1/responses", {"input": "x", **mode}) as live:
        first = next(live)
        path = f"/v1/responses/{id_of(first)}?stream=true"
        model.say(TextDelta("one "))
        begin = [first, *taken(live, 5 if mode else 4)]
        assert event(begin[-1])["delta"] == "one "
        with reading(served, path) as late, reading(served, f"{path}&starting_after=2") as later:
            assert taken(late, len(begin)) == begin
            assert taken(later, len(begin) - 3) == begin[3:]
            model.say(TextDelta("two"), Finish("stop"))
            rest = list(live)
            assert list(late) == rest
            assert list(later) == rest
    assert rest[-1] == b"data: [DONE]"
    assert b"event: response.completed" in rest[-2]


def test_sta_12_a_dropped_connection_is_taken_up_behind_its_last_event(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    with reading(served, "/v1/responses", {"input": "x", "background": True}) as live:
        seen = taken(live, 3)
        model.say(*[TextDelta(f"{n} ") for n in range(10)])
        seen += taken(live, 5)
    response_id = id_of(seen[0])
    assert event(seen[-1])["sequence_number"] == 7
    model.say(*[TextDelta(f"{n} ") for n in range(10, 30)], Finish("stop"))
    rest = served.replay(response_id, 7)
    assert rest.done
    whole = served.replay(response_id)
    assert seen + [e.raw for e in rest.events] == raw(whole)
    assert whole.text() == "".join(f"{n} " for n in range(30))
    assert served.stored(response_id) == whole.response == rest.response


def test_sta_12_several_readers_get_the_same_and_may_leave(state, server):
    model = GatedModel()
    served = server(model, max_readers_per_key=6, **state)
    made = served.create({"input": "x", "background": True})
    path = f"/v1/responses/{made['id']}?stream=true"
    with reading(served, path) as one, reading(served, path) as two:
        assert taken(one, 2) == taken(two, 2)
        with reading(served, path) as leaving:
            next(leaving)
        model.say(TextDelta("a"), Finish("stop"))
        assert list(one) == list(two)
    assert served.stored(made["id"])["status"] == "completed"


@pytest.mark.parametrize("running", [True, False])
def test_sta_12_a_cursor_that_no_event_has_yet_is_refused(state, server, running):
    model = GatedModel()
    served = server(model, **state)
    made = served.create({"input": "x", "background": True})
    path = f"/v1/responses/{made['id']}?stream=true"
    if running:
        assert model.started.wait(10)
    else:
        model.say(Finish("stop"))
        served.replay(made["id"])
    answer = served.http.get(f"{path}&starting_after=99999")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "starting_after")
    assert re.search(r"the last event so far is \d+", error["message"])


def test_sta_12_a_cancelled_response_ends_its_streams_with_an_error(every_state, server):
    model = GatedModel()
    served = server(model, **every_state)
    with reading(served, "/v1/responses", {"input": "x", "background": True}) as live:
        seen = taken(live, 3)
        model.say(TextDelta("some"))
        seen += taken(live, 3)
        response_id = id_of(seen[0])
        cancelled = served.http.post(f"/v1/responses/{response_id}/cancel").json()
        seen += list(live)
    assert seen.pop() == b"data: [DONE]"
    last = event(seen[-1])
    assert (last["type"], last["code"]) == ("error", "response_cancelled")
    assert last["error"]["code"] == "response_cancelled"
    kinds = [event(frame)["type"] for frame in seen]
    assert kinds.count("error") == 1
    assert not {"response.cancelled", "response.failed", "response.completed"} & set(kinds)
    assert cancelled["status"] == "cancelled"
    assert served.stored(response_id) == cancelled
    replay = served.replay(response_id)
    assert raw(replay) == seen
    assert replay.done


# What is not kept


def one_by_one(served, model, texts):
    """The frames of a response whose reader takes each event before there is another."""
    with reading(served, "/v1/responses", {"input": "x"}) as live:
        seen = taken(live, 2)
        for number, text in enumerate(texts):
            model.say(TextDelta(text))
            seen += taken(live, 1 if number else 3)
        model.say(Finish("stop"))
        seen += list(live)
    assert seen.pop() == b"data: [DONE]"
    return seen


def test_events_that_were_trimmed_are_gone_and_say_so(every_state, server):
    model = GatedModel()
    served = server(model, max_events=16, **every_state)
    seen = one_by_one(served, model, ["word "] * 60)
    response_id = id_of(seen[0])
    for query in ("", "&starting_after=0", "&starting_after=20"):
        answer = served.http.get(f"/v1/responses/{response_id}?stream=true{query}")
        assert answer.status_code == 410
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("events_expired", "starting_after")
    kept = int(re.search(r"before number (\d+)", error["message"])[1])
    assert len(seen) - 20 <= kept <= len(seen) - 16
    rest = served.replay(response_id, kept - 1)
    assert raw(rest) == seen[kept:]
    assert served.stored(response_id) == rest.response == event(seen[-1])["response"]


def test_bytes_of_events_are_limited_too(state, server):
    model = GatedModel()
    served = server(model, max_event_bytes=8192, **state)
    seen = one_by_one(served, model, ["abcdefgh"] * 60)
    response_id = id_of(seen[0])
    answer = served.http.get(f"/v1/responses/{response_id}?stream=true")
    assert answer.status_code == 410
    kept = int(re.search(r"before number (\d+)", answer.json()["error"]["message"])[1])
    assert sum(map(len, seen[kept:])) < 8192 * 17 / 16
    assert raw(served.replay(response_id, kept - 1)) == seen[kept:]


@pytest.mark.parametrize("mode", MODES)
def test_who_keeps_up_gets_an_end_that_is_larger_than_what_is_kept(every_state, server, mode):
    text = "x" * 12000
    served = server(scripted({"text": text}), max_event_bytes=16384, **every_state)
    live = served.stream({"input": "x", **mode})
    assert live.types[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert live.text() == text
    assert served.stored(live.response["id"]) == live.response


@pytest.mark.parametrize("mode", MODES)
def test_an_event_that_cannot_be_kept_fails_its_run(state, server, mode):
    served = server(scripted({"text": "a"}, {"text": "b" * 20000}), max_event_bytes=16384, **state)
    stream = served.stream({"input": "x", **mode})
    assert stream.types[-2:] == ["error", "response.failed"]
    stored = served.stored(stream.response["id"])
    assert stored == stream.response
    assert stored["error"]["code"] == "server_error"
    assert "16384" in stored["error"]["message"]


def test_a_response_outlives_its_events(every_state, server):
    now = [0.0]
    served = server(
        scripted(*PIECES), event_log_seconds=60, clock=lambda: time.time() + now[0], **every_state
    )
    live = served.stream({"input": "x"})
    response_id = live.response["id"]
    now[0] = 50
    assert raw(served.replay(response_id)) == raw(live)
    now[0] = 70
    sweeper = served.application._kept._store.sweeper
    for _ in range(2):  # Before and after it was swept away.
        for query in ("", "&starting_after=3"):
            answer = served.http.get(f"/v1/responses/{response_id}?stream=true{query}")
            assert answer.status_code == 409
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("event_log_expired", "stream")
        assert served.stored(response_id) == live.response
        assert served.on_loop(sweeper.sweep()).event_logs in (0, 1)
    served.create({"previous_response_id": response_id, "input": "on"})


# Readers


def test_readers_are_limited_for_each_key_and_in_all(server, tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    a, b, c = ({"headers": {"authorization": f"Bearer {file.add(name)}"}} for name in "abc")
    keys = KeyRing(file)
    model = GatedModel()
    served = server(model, keys=keys, max_readers=3, max_readers_per_key=2, background_workers=3)
    paths = [
        f"/v1/responses/{served.create({'input': 'x', 'background': True}, **key)['id']}"
        for key in (a, b, c)
    ]

    def refusal(key, path):
        answer = served.http.get(f"{path}?stream=true", **key)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        return answer.json()["error"]

    with reading(served, f"{paths[0]}?stream=true", **a) as one:
        next(one)
        with reading(served, f"{paths[0]}?stream=true", **a) as two:
            next(two)
            assert "this key" in refusal(a, paths[0])["message"]
            # Nothing is begun that could not be read.
            body = {"input": "x", "background": True, "stream": True}
            assert served.post(body, **a).status_code == 429
            with reading(served, f"{paths[1]}?stream=true", **b) as three:
                next(three)
                assert "this key" not in refusal(c, paths[2])["message"]
                status = served.http.get("/v1/status", **a).json()["store"]
                assert (status["readers"], status["counts"]["responses"]) == (3, 3)
        # The record itself, and foreground streams, do not count.
        assert served.http.get(paths[0], **a).status_code == 200

    def readers():
        return served.http.get("/v1/status", **a).json()["store"]["readers"]

    until(lambda: readers() == 0)
    with reading(served, f"{paths[0]}?stream=true", **a) as again:
        next(again)


def until(holds):
    """Ask until it is so; connections are noticed to be closed when the kernel says so."""
    for _ in range(500):
        if holds():
            return
    raise AssertionError("it never came to be")


# The SDK


@pytest.mark.parametrize("mode", MODES)
def test_the_sdk_takes_a_stream_up(state, server, mode):
    client = server(scripted(*PIECES), **state).sdk()
    events = list(client.responses.create(model="test-model", input="x", stream=True, **mode))
    response_id = events[0].response.id
    assert list(client.responses.retrieve(response_id, stream=True)) == events
    assert list(client.responses.retrieve(response_id, stream=True, starting_after=4)) == events[5:]
    retrieved = client.responses.retrieve(
        response_id, include=["reasoning.encrypted_content", "message.output_text.logprobs"]
    )
    assert retrieved == events[-1].response


def test_the_sdk_s_helper_builds_a_response_from_its_stored_events(state, server):
    client = server(scripted(*PIECES), **state).sdk()
    made = client.responses.create(model="test-model", input="x", background=True)
    with client.responses.stream(response_id=made.id) as stream:
        whole = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "word " * 30
    assert final.status == "completed"
    with client.responses.stream(response_id=made.id, starting_after=7) as stream:
        rest = list(stream)
        assert stream.get_final_response().output_text == "word " * 30
    assert [e.sequence_number for e in rest] == [
        e.sequence_number for e in whole if e.sequence_number > 7
    ]


def test_the_sdk_raises_where_a_stream_cannot_be_had(state, server):
    client = server(scripted({"text": "word " * 60, "pieces": 5}), max_events=16, **state).sdk()
    made = client.responses.create(model="test-model", input="x")
    with pytest.raises(openai.APIStatusError) as gone:
        client.responses.retrieve(made.id, stream=True, starting_after=3)
    assert (gone.value.status_code, gone.value.code) == (410, "events_expired")
    with pytest.raises(openai.BadRequestError):
        client.responses.retrieve(made.id, stream=True, starting_after=1000)
