"""From what a model says to the events of a response."""

import json
import math
from typing import Any

import pytest
from writing import (
    FAILURE,
    RESPONSE,
    STOP,
    STREAM_EVENT,
    USAGE,
    as_read,
    new_builder,
    of,
    response_of,
    types,
    without_ids,
    written,
)

from antiphon import errors
from antiphon.responses.log import InvalidEvent
from antiphon.spec import Contract
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)

LENGTH = Finish("length")
OSLO = '{"city":"Oslo"}'
LIMA = '{"city":"Lima"}'

SCRIPTS: dict[str, tuple[list[Delta], Finish | errors.ServerError]] = {
    "text": ([TextDelta("po"), TextDelta("ng")], STOP),
    "nothing": ([], STOP),
    "nothing, cut": ([], LENGTH),
    "nothing, failed": ([], FAILURE),
    "reasoning and text": ([ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("ok")], STOP),
    "text and a call": (
        [TextDelta("Let me look. "), CallStart(0, "f"), CallArguments(0, OSLO), CallEnd(0)],
        STOP,
    ),
    "a call and text": (
        [CallStart(0, "f"), CallArguments(0, OSLO), CallEnd(0), TextDelta("Done.")],
        STOP,
    ),
    "a custom call": (
        [CallStart(0, "sql", True), CallArguments(0, "SELECT"), CallArguments(0, " 1"), CallEnd(0)],
        STOP,
    ),
    "a custom call, cut": ([CallStart(0, "sql", True), CallArguments(0, "SEL")], LENGTH),
    "calls, interleaved": (
        [
            CallStart(0, "f"),
            CallStart(1, "f"),
            CallArguments(0, OSLO[:5]),
            CallArguments(1, LIMA[:7]),
            CallArguments(0, OSLO[5:]),
            CallArguments(1, LIMA[7:]),
            CallEnd(1),
            CallEnd(0),
        ],
        STOP,
    ),
    "a call without arguments": ([CallStart(0, "now"), CallEnd(0)], STOP),
    "text, cut": ([TextDelta("Once upon")], LENGTH),
    "text, filtered": ([TextDelta("Once upon")], Finish("content_filter")),
    "reasoning, cut": ([ReasoningDelta("hm")], LENGTH),
    "a call, cut": ([CallStart(0, "f"), CallArguments(0, '{"ci')], LENGTH),
    "two calls, cut": ([CallStart(0, "f"), CallEnd(0), CallStart(1, "f")], LENGTH),
    "a call that never ends": ([CallStart(0, "f"), CallArguments(0, "{")], STOP),
    "text, failed": ([TextDelta("Hel")], FAILURE),
    "reasoning, failed": ([ReasoningDelta("hm")], FAILURE),
    "a call, failed": ([CallStart(0, "f"), CallArguments(0, "{")], FAILURE),
    "white space": ([TextDelta(" \n")], STOP),
    "log-probabilities": (
        [
            TextDelta("a", (TokenLogprob("a", b"a", -0.5, (TokenLogprob("b", b"b", -1.0),)),)),
            TextDelta("", (TokenLogprob("\ufffd", b"\xf0\x9f", -2.0),)),
        ],
        STOP,
    ),
}


@pytest.fixture(params=SCRIPTS)
def events(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    deltas, end = SCRIPTS[request.param]
    return written(*deltas, end=end)


# What holds of every stream


def test_str_02_every_event_is_complete_by_itself(events: Any, contract: Contract):
    for event in events:
        assert contract.accepts(STREAM_EVENT, event)
        if "response" in event:
            assert contract.accepts(RESPONSE, event["response"])


def test_str_02_items_are_announced_empty_and_whole(events: Any):
    empty = {
        "message": {"role": "assistant", "content": []},
        "reasoning": {"summary": [], "content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    for event in of(events, "output_item.added"):
        item = event["item"]
        assert item["status"] == "in_progress"
        assert item["id"]
        assert empty[item["type"]].items() <= item.items()
    for event in of(events, "content_part.added"):
        assert event["part"]["text"] == ""


def test_str_03_an_item_keeps_its_index_and_id_from_beginning_to_end(events: Any):
    added = of(events, "output_item.added")
    assert [event["output_index"] for event in added] == list(range(len(added)))
    announced = {event["output_index"]: event["item"]["id"] for event in added}
    assert len(set(announced.values())) == len(announced)
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == announced[event["output_index"]]
        if "item" in event:
            assert event["item"]["id"] == announced[event["output_index"]]
    final = response_of(events)["output"]
    assert {n: item["id"] for n, item in enumerate(final)} == announced


def test_str_03_the_final_items_are_the_ones_that_were_streamed(events: Any):
    done = {e["output_index"]: e["item"] for e in of(events, "output_item.done")}
    assert [done[n] for n in sorted(done)] == response_of(events)["output"]


def test_str_07_numbers_count_from_0_without_a_gap(events: Any):
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_every_item_is_announced_before_anything_is_said_of_it_and_ends_once(events: Any):
    is_open: set[int] = set()
    ended: set[int] = set()
    for event in events:
        index = event.get("output_index")
        if event["type"] == "response.output_item.added":
            is_open.add(index)
        elif event["type"] == "response.output_item.done":
            is_open.remove(index)
            ended.add(index)
        elif index is not None:
            assert index in is_open and index not in ended
    assert not is_open


def test_one_final_event_ends_the_stream(events: Any):
    final = {"completed", "incomplete", "failed"}
    assert [kind for kind in types(events) if kind in final] == [types(events)[-1]]
    response = response_of(events)
    assert types(events)[-1] == response["status"]
    assert (response["completed_at"] is not None) == (response["status"] == "completed")
    assert (response["error"] is not None) == (response["status"] == "failed")
    assert (response["incomplete_details"] is not None) == (response["status"] == "incomplete")


def test_done_texts_are_the_joined_deltas(events: Any):
    for kind, field in (
        ("output_text", "text"),
        ("reasoning_text", "text"),
        ("function_call_arguments", "arguments"),
    ):
        for done in of(events, f"{kind}.done"):
            deltas = [e for e in of(events, f"{kind}.delta") if e["item_id"] == done["item_id"]]
            assert done[field] == "".join(delta["delta"] for delta in deltas)


def test_every_snapshot_is_of_the_same_response(events: Any):
    first = events[0]["response"]
    for event in events:
        if "response" in event:
            assert event["response"]["id"] == first["id"]
            assert event["response"]["created_at"] == first["created_at"]
    assert events[0]["response"]["output"] == []
    assert events[0]["response"]["usage"] is None


# Text


def test_str_01_text_has_every_event_once_and_in_order():
    assert types(written(*SCRIPTS["text"][0])) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_text_becomes_one_message():
    (message,) = response_of(written(TextDelta("po"), TextDelta("ng")))["output"]
    assert without_ids(message) == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "pong", "annotations": [], "logprobs": []}],
    }


def test_an_empty_delta_writes_nothing():
    assert types(written(TextDelta(""), ReasoningDelta(""))) == types(written())
    deltas = (CallStart(0, "f"), CallArguments(0, "{}"), CallArguments(0, ""), CallEnd(0))
    assert len(of(written(*deltas), "function_call_arguments.delta")) == 1


def test_log_probabilities_stand_in_the_delta_the_part_and_the_item():
    token = TokenLogprob("é", "é".encode(), -0.25, (TokenLogprob("e", b"e", -1.5),))
    events = written(TextDelta("é", (token,)), TextDelta("t", (TokenLogprob("t", b"t", 0),)))
    first = {
        "token": "é",
        "logprob": -0.25,
        "bytes": [195, 169],
        "top_logprobs": [{"token": "e", "logprob": -1.5, "bytes": [101]}],
    }
    second = {"token": "t", "logprob": 0, "bytes": [116], "top_logprobs": []}
    assert [e["logprobs"] for e in of(events, "output_text.delta")] == [[first], [second]]
    assert of(events, "output_text.done")[0]["logprobs"] == [first, second]
    assert of(events, "content_part.done")[0]["part"]["logprobs"] == [first, second]
    assert response_of(events)["output"][0]["content"][0]["logprobs"] == [first, second]


# White space


def test_tool_03_white_space_beside_a_call_makes_no_message():
    space = TextDelta("\n\n")
    call = (CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0))
    output = response_of(written(ReasoningDelta("hm"), space, *call, space))["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]


def test_an_answer_of_white_space_alone_is_an_answer():
    (message,) = response_of(written(TextDelta(" "), TextDelta("\n")))["output"]
    assert message["content"][0]["text"] == " \n"
    assert message["status"] == "completed"


def test_white_space_before_text_belongs_to_the_text():
    events = written(ReasoningDelta("hm"), TextDelta("\n"), TextDelta(" "), TextDelta("Hi"))
    reasoning, message = response_of(events)["output"]
    assert message["content"][0]["text"] == "\n Hi"
    assert reasoning["content"][0]["text"] == "hm"


def test_white_space_between_pieces_of_reasoning_does_not_part_them():
    (reasoning,) = response_of(written(ReasoningDelta("a"), TextDelta("\n"), ReasoningDelta("b")))[
        "output"
    ]
    assert reasoning["content"][0]["text"] == "ab"


def test_white_space_inside_and_after_text_stays():
    events = written(TextDelta("Hi"), TextDelta(" "), TextDelta("you"), TextDelta("\n"))
    assert response_of(events)["output"][0]["content"][0]["text"] == "Hi you\n"


# Reasoning


def test_reasoning_ends_where_text_begins():
    events = written(*SCRIPTS["reasoning and text"][0])
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    reasoning, message = response_of(events)["output"]
    assert without_ids(reasoning) == {
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert message["content"][0]["text"] == "ok"


def test_reasoning_after_text_is_an_item_of_its_own():
    deltas = (ReasoningDelta("a"), TextDelta("b"), ReasoningDelta("c"), TextDelta("d"))
    output = response_of(written(*deltas))["output"]
    assert [item["content"][0]["text"] for item in output] == ["a", "b", "c", "d"]
    assert [item["type"] for item in output] == ["reasoning", "message"] * 2


# Calls


def test_str_01_a_call_has_every_event_once_and_in_order():
    events = written(CallStart(0, "f"), CallArguments(0, "{"), CallArguments(0, "}"), CallEnd(0))
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_str_03_a_message_and_two_calls_have_three_indices():
    deltas = (
        TextDelta("Let me look. "),
        *(CallStart(0, "get_weather"), CallArguments(0, OSLO), CallEnd(0)),
        *(CallStart(1, "get_weather"), CallArguments(1, LIMA), CallEnd(1)),
    )
    events = written(*deltas)
    done = of(events, "output_item.done")
    assert [(e["output_index"], e["item"]["type"]) for e in done] == [
        (0, "message"),
        (1, "function_call"),
        (2, "function_call"),
    ]


def test_str_03_text_after_a_call_comes_after_it():
    output = response_of(written(*SCRIPTS["a call and text"][0]))["output"]
    assert [item["type"] for item in output] == ["function_call", "message"]


def test_str_05_a_call_that_is_whole_at_once_has_all_its_events():
    events = written(CallStart(0, "get_time"), CallArguments(0, "{}"), CallEnd(0))
    assert len(of(events, "output_item.added")) == len(of(events, "output_item.done")) == 1
    assert of(events, "function_call_arguments.done")[0]["arguments"] == "{}"


def test_str_05_a_turn_without_anything_is_a_whole_stream():
    events = written()
    assert types(events) == ["created", "in_progress", "completed"]
    assert response_of(events)["output"] == []


def test_tool_02_two_calls_in_one_step_are_two_items():
    events = written(
        *(CallStart(0, "get_weather"), CallArguments(0, OSLO), CallEnd(0)),
        *(CallStart(1, "get_weather"), CallArguments(1, LIMA), CallEnd(1)),
    )
    first, second = response_of(events)["output"]
    assert [first["arguments"], second["arguments"]] == [OSLO, LIMA]
    assert first["id"] != second["id"] and first["call_id"] != second["call_id"]


def test_tool_02_interleaved_arguments_reach_their_own_calls():
    events = written(*SCRIPTS["calls, interleaved"][0])
    first, second = response_of(events)["output"]
    assert json.loads(first["arguments"]) == {"city": "Oslo"}
    assert json.loads(second["arguments"]) == {"city": "Lima"}
    # They end in the order in which the model ended them, at the places where they began.
    assert [e["output_index"] for e in of(events, "output_item.done")] == [1, 0]


def test_tool_02_text_between_two_open_calls_does_not_end_them():
    events = written(
        *(CallStart(0, "f"), TextDelta("and"), CallArguments(0, OSLO), CallEnd(0)),
        *(CallStart(1, "g"), CallEnd(1)),
    )
    output = response_of(events)["output"]
    assert [item["type"] for item in output] == ["function_call", "message", "function_call"]
    assert output[0]["arguments"] == OSLO


def test_tool_09_a_call_without_arguments_carries_an_empty_object():
    events = written(CallStart(0, "get_time"), CallEnd(0))
    assert [e["delta"] for e in of(events, "function_call_arguments.delta")] == ["{}"]
    assert of(events, "function_call_arguments.done")[0]["arguments"] == "{}"
    assert of(events, "output_item.done")[0]["item"]["arguments"] == "{}"
    assert response_of(events)["output"][0]["arguments"] == "{}"


def test_a_call_carries_its_name_and_an_id_for_its_result():
    events = written(CallStart(0, "get_time"), CallEnd(0))
    (call,) = response_of(events)["output"]
    assert call["name"] == of(events, "function_call_arguments.done")[0]["name"] == "get_time"
    assert call["call_id"].startswith("call_")


# Cut short


@pytest.mark.parametrize(
    ("script", "kind"),
    [("text, cut", "message"), ("reasoning, cut", "reasoning"), ("a call, cut", "function_call")],
)
def test_err_05_a_cut_answer_is_incomplete_and_so_is_its_last_item(script: str, kind: str):
    events = written(*SCRIPTS[script][0], end=LENGTH)
    response = response_of(events)
    assert types(events)[-1] == response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None and response["error"] is None
    (item,) = response["output"]
    assert (item["type"], item["status"]) == (kind, "incomplete")


def test_err_05_only_the_item_that_was_open_is_incomplete():
    events = written(ReasoningDelta("hm"), TextDelta("Once"), end=LENGTH)
    assert [item["status"] for item in response_of(events)["output"]] == ["completed", "incomplete"]


def test_err_05_half_a_call_is_never_said_to_have_its_arguments():
    events = written(*SCRIPTS["a call, cut"][0], end=LENGTH)
    assert of(events, "function_call_arguments.done") == []
    assert response_of(events)["output"][0]["arguments"] == '{"ci'


def test_err_05_a_call_that_is_cut_before_its_arguments_has_none():
    (call,) = response_of(written(CallStart(0, "f"), end=LENGTH))["output"]
    assert (call["arguments"], call["status"]) == ("", "incomplete")


def test_err_05_no_message_is_made_up_after_reasoning_that_was_cut():
    events = written(ReasoningDelta("hm"), TextDelta("\n"), end=LENGTH)
    assert [item["type"] for item in response_of(events)["output"]] == ["reasoning"]


def test_a_filtered_answer_is_incomplete_for_its_own_reason():
    response = response_of(written(TextDelta("Once"), end=Finish("content_filter")))
    assert response["incomplete_details"] == {"reason": "content_filter"}


# Failure


def test_a_turn_that_ends_inside_a_call_has_failed():
    events = written(*SCRIPTS["a call that never ends"][0])
    response = response_of(events)
    assert response["status"] == "failed"
    assert response["error"]["message"] == "The model ended its turn inside a call."
    assert response["output"][0]["status"] == "incomplete"
    assert of(events, "function_call_arguments.done") == []


def test_err_02_a_failure_is_told_twice_and_closes_what_is_open():
    events = written(TextDelta("Hel"), end=FAILURE)
    assert types(events)[-5:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "error",
        "failed",
    ]
    event, response = events[-2], response_of(events)
    assert (event["code"], event["message"], event["param"]) == (
        "server_error",
        "The model failed.",
        None,
    )
    # Clients look for it in either place.
    assert event["error"] == {
        "type": "server_error",
        "code": "server_error",
        "message": "The model failed.",
        "param": None,
    }
    assert response["status"] == "failed"
    assert response["error"] == event["error"]
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert response["usage"]["total_tokens"] == 9


def test_err_02_a_response_knows_fewer_codes_than_the_error_event():
    builder = new_builder()
    builder.start()
    builder.fail(errors.ShuttingDown("The server is shutting down."), None)
    event, failed = as_read(builder.log)[-2:]
    assert event["code"] == event["error"]["code"] == "server_shutting_down"
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["usage"] is None


# Usage and keep-alive


def test_use_01_usage_is_whole_and_its_total_is_the_sum():
    assert response_of(written(TextDelta("hi")))["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 9,
    }


def test_a_keep_alive_repeats_the_state_as_it_stands():
    builder = new_builder()
    builder.start()
    builder.feed(TextDelta("Hel"))
    builder.keep_alive()
    builder.feed(TextDelta("lo"))
    builder.finish(STOP, TokenUsage(1))
    events = as_read(builder.log)
    repeated = of(events, "in_progress")[1]["response"]
    assert repeated["status"] == "in_progress"
    assert repeated["output"][0]["content"][0]["text"] == "Hel"
    assert response_of(events)["output"][0]["content"][0]["text"] == "Hello"


def test_earlier_events_do_not_change_afterwards():
    builder = new_builder()
    builder.start()
    builder.feed(TextDelta("Hel", (TokenLogprob("Hel", b"Hel", -1.0),)))
    builder.keep_alive()
    before = json.dumps(builder.log.events)
    count = len(builder.log.events)
    builder.feed(TextDelta("lo", (TokenLogprob("lo", b"lo", -1.0),)))
    builder.finish(STOP, USAGE)
    assert json.dumps(builder.log.events[:count]) == before


# What the log refuses

UNSENDABLE = [
    TextDelta("\ud800"),
    TextDelta("x", (TokenLogprob("x", b"x", -math.inf),)),
    TextDelta("x", (TokenLogprob("x", b"x", math.nan),)),
    ReasoningDelta("\ud800"),
]


@pytest.mark.parametrize("wrong", UNSENDABLE)
@pytest.mark.parametrize("before", [(), (TextDelta("ok"),), (ReasoningDelta("ok"),)])
def test_str_07_what_the_log_refuses_burns_no_number_and_spoils_nothing_later(
    wrong: Delta, before: tuple[Delta, ...]
):
    builder = new_builder()
    builder.start()
    for delta in before:
        builder.feed(delta)
    with pytest.raises((InvalidEvent, TypeError)):
        builder.feed(wrong)
    builder.fail(FAILURE, USAGE)
    events = as_read(builder.log)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert types(events)[-2:] == ["error", "failed"]
    texts = [item["content"][0]["text"] for item in response_of(events)["output"]]
    assert "".join(texts) == "".join(delta.text for delta in before if delta.text)


def test_str_07_refused_arguments_spoil_nothing_later():
    builder = new_builder()
    builder.start()
    builder.feed(CallStart(0, "f"))
    with pytest.raises(TypeError):
        builder.feed(CallArguments(0, "\ud800"))
    builder.fail(FAILURE, USAGE)
    events = as_read(builder.log)
    assert response_of(events)["output"][0]["arguments"] == ""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_str_07_an_item_that_cannot_be_announced_is_no_item():
    builder = new_builder()
    builder.start()
    with pytest.raises(TypeError):
        builder.feed(CallStart(0, "\ud800"))
    builder.fail(FAILURE, USAGE)
    events = as_read(builder.log)
    assert types(events) == ["created", "in_progress", "error", "failed"]
    assert response_of(events)["output"] == []
