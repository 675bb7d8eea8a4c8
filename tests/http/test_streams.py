"""Streams over a real socket."""

import json

import pytest
from gated import GatedModel
from serving import parse_stream, scripted

from antiphon.turn import Finish, TextDelta

TEXT_LIFE = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def test_str_01_a_text_answer_has_every_event_once_and_in_order(server):
    served = server(scripted({"text": "pong", "pieces": 2}))
    stream = served.stream({"model": "test-model", "input": "ping"})
    assert stream.types == [
        "response.created",
        "response.in_progress",
        *TEXT_LIFE[:3],
        *TEXT_LIFE[2:],
        "response.completed",
    ]
    assert stream.done
    assert stream.text() == stream.of("response.output_text.done")[0]["text"] == "pong"


def test_str_01_a_function_call_has_every_event_once_and_in_order(server):
    served = server(scripted({"call": "get", "arguments": '{"city":"Oslo"}', "pieces": 8}))
    tools = [{"type": "function", "name": "get"}]
    stream = served.stream({"model": "test-model", "input": "ping", "tools": tools})
    assert stream.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [e["delta"] for e in stream.of("response.function_call_arguments.delta")]
    (done,) = stream.of("response.function_call_arguments.done")
    assert "".join(deltas) == done["arguments"] == '{"city":"Oslo"}'
    assert done["name"] == "get"


def test_ids_and_numbers_never_change_over_a_stream(server):
    served = server(scripted({"reasoning": "hm", "pieces": 1}, {"text": "ok", "pieces": 1}))
    stream = served.stream({"input": "x"})
    events = [event.data for event in stream.events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    responses = [event["response"] for event in events if "response" in event]
    assert len({response["id"] for response in responses}) == 1
    announced = {e["output_index"]: e["item"]["id"] for e in stream.of(TEXT_LIFE[0])}
    assert [item["id"] for item in stream.response["output"]] == list(announced.values())
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == announced[event["output_index"]]
        elif "item" in event:
            assert event["item"]["id"] == announced[event["output_index"]]


def test_the_streamed_and_the_whole_answer_are_the_same(server):
    served = server(
        scripted(
            {"reasoning": "let me see", "pieces": 3},
            {"text": "Look: ", "pieces": 2},
            {"call": "get", "arguments": '{"a":1}', "pieces": 2},
        )
    )
    streamed = served.stream({"input": "x"}).response
    whole = served.create({"input": "x"})
    assert without_ids(streamed) == without_ids(whole)


def without_ids(response):
    text = json.dumps(
        {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at")}
    )
    response = json.loads(text)
    for item in response["output"]:
        del item["id"]
        item.pop("call_id", None)
    return response


def test_net_01_frames_and_headers_are_what_parsers_and_proxies_want(server):
    served = server(scripted({"text": "a\nb\u2028c\x85d\r\n", "pieces": 1}))
    answer = served.post({"input": "x", "stream": True})
    stream = parse_stream(answer)
    assert stream.text() == "a\nb\u2028c\x85d\r\n"
    assert answer.headers["x-accel-buffering"] == "no"
    assert {"no-cache", "no-store", "no-transform"} <= set(
        answer.headers["cache-control"].split(", ")
    )
    for event in stream.events:
        assert len(event.raw.decode().splitlines()) == 2


def test_ops_03_events_arrive_when_they_happen(server):
    model = GatedModel()
    served = server(model)
    with served.http.stream(
        "POST", "/v1/responses", json={"input": "x", "stream": True}, timeout=20
    ) as answer:
        frames = frames_of(answer)
        assert "response.created" in next(frames)
        assert "response.in_progress" in next(frames)
        # Nothing was said yet, so these two were not held back for what follows.
        model.say(TextDelta("Hel"))
        assert [kind_of(next(frames)) for _ in range(3)] == TEXT_LIFE[:3]
        model.say(TextDelta("lo"))
        assert '"delta":"lo"' in next(frames)
        model.say(Finish("stop"))
        assert list(frames)[-1] == "data: [DONE]"


def frames_of(answer):
    """Frames as they come, however the bytes are cut."""
    pending = ""
    for text in answer.iter_text():
        pending += text
        while "\n\n" in pending:
            frame, pending = pending.split("\n\n", 1)
            yield frame


def kind_of(frame):
    return frame.split("\n")[0].removeprefix("event: ")


def test_each_event_is_one_chunk_of_the_body(server):
    model = GatedModel()
    served = server(model)
    with served.http.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as answer:
        chunks = answer.iter_raw()
        seen = [next(chunks)]
        model.say(TextDelta("Hello"), Finish("stop"))
        seen += list(chunks)
    # The client may see several chunks at once, but never a part of an event.
    assert all(chunk.endswith(b"\n\n") for chunk in seen)


def test_silence_is_filled_with_the_last_state(server):
    model = GatedModel()
    served = server(model, keep_alive_seconds=0.01)
    with served.http.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as answer:
        frames = frames_of(answer)
        kinds = [kind_of(next(frames)) for _ in range(5)]
        assert kinds == ["response.created", *["response.in_progress"] * 4]
        model.say(TextDelta("ok"), Finish("stop"))
        rest = [json.loads(f.split("data: ")[1]) for f in frames if f != "data: [DONE]"]
    assert rest[-1]["type"] == "response.completed"
    numbers = [event["sequence_number"] for event in rest]
    assert numbers == list(range(5, 5 + len(numbers)))


def test_err_02_a_failure_in_the_middle_is_told_twice_and_ends_the_stream(server):
    served = server(scripted({"text": "Hel"}, {"fail": "a secret cause"}))
    stream = served.stream({"input": "x"})
    assert stream.types[-3:] == ["response.output_item.done", "error", "response.failed"]
    assert stream.done
    error = stream.events[-2].data
    assert error["code"] == error["error"]["code"] == "server_error"
    assert error["message"] == error["error"]["message"]
    response = stream.response
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert response["usage"]["output_tokens"] == 1
    assert response["completed_at"] is None
    assert "secret" not in json.dumps([event.data for event in stream.events])


def test_err_02_a_failure_without_a_stream_is_a_failed_response(server):
    served = server(scripted({"text": "Hel"}, {"fail": "boom"}))
    response = served.create({"input": "x"})
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert response["output"][0]["content"][0]["text"] == "Hel"


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ([{"reasoning": "word " * 30, "pieces": 5}], ["reasoning"]),
        ([{"text": "word " * 30, "pieces": 5}], ["message"]),
        ([{"call": "f", "arguments": "x" * 150, "pieces": 5}], ["function_call"]),
    ],
)
def test_err_05_a_cut_answer_is_incomplete_and_nothing_is_invented(server, steps, output):
    served = server(scripted(*steps))
    tools = [{"type": "function", "name": "f"}]
    stream = served.stream({"input": "x", "max_output_tokens": 16, "tools": tools})
    assert stream.types[-1] == "response.incomplete"
    response = stream.response
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert [item["type"] for item in response["output"]] == output
    assert response["output"][0]["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == 16
    assert "response.function_call_arguments.done" not in stream.types


def test_an_answer_of_nothing_is_a_valid_stream(server):
    stream = server(scripted()).stream({"input": "x"})
    assert stream.types == ["response.created", "response.in_progress", "response.completed"]
    assert stream.response["output"] == []
