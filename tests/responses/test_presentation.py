"""How calls, remarks and reasoning are shown."""

from collections.abc import Sequence
from typing import Any

import pytest
from writing import STOP, USAGE, as_read, asked, new_log, of, response_of, types

from antiphon.errors import ServerError
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.fold import fold
from antiphon.responses.presentation import Presentation, ShownTool
from antiphon.responses.replay import KEPT_SEALED
from antiphon.responses.replay import shown as shown_item
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    ReasoningDelta,
    TextDelta,
)

CALL: list[Delta] = [CallStart(0, "crm.find"), CallArguments(0, "{}"), CallEnd(0)]


def shown(deltas: Sequence[Delta], **presentation: Any) -> list[dict[str, Any]]:
    """The events of a response that is shown in this way."""
    builder = ResponseBuilder(
        asked({"input": "hi"}).response(), new_log(), Presentation(**presentation)
    )
    builder.start()
    for delta in deltas:
        builder.feed(delta)
    builder.finish(STOP, USAGE)
    assert fold(builder.log.events) == builder.response
    return as_read(builder.log)


def items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(response_of(events)["output"])


def test_a_tool_is_called_what_it_was_declared_as():
    events = shown(CALL, tools={"crm.find": ShownTool("find", "crm")})
    (item,) = items(events)
    assert (item["name"], item["namespace"]) == ("find", "crm")
    for event in of(events, "output_item.added") + of(events, "output_item.done"):
        assert (event["item"]["name"], event["item"]["namespace"]) == ("find", "crm")
    assert of(events, "function_call_arguments.done")[0]["name"] == "find"


def test_a_tool_of_no_namespace_has_no_such_field():
    (item,) = items(shown(CALL))
    assert item["name"] == "crm.find" and "namespace" not in item


def test_a_custom_call_streams_its_input():
    events = shown(
        [CallStart(0, "sql", True), CallArguments(0, "a"), CallArguments(0, "b"), CallEnd(0)]
    )
    assert types(events)[2:] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    (item,) = items(events)
    assert item["type"] == "custom_tool_call" and item["input"] == "ab"
    assert item["id"].startswith("ctc_") and item["call_id"].startswith("call_")


def test_a_custom_call_may_have_no_input():
    (item,) = items(shown([CallStart(0, "sql", True), CallEnd(0)]))
    assert item["input"] == "" and item["status"] == "completed"


def test_what_is_said_before_a_call_is_a_remark_and_after_it_none():
    events = shown([TextDelta("Let me look."), *CALL, TextDelta("Found it.")])
    before, _, after = items(events)
    assert before["phase"] == "commentary" and "phase" not in after
    assert "phase" not in of(events, "output_item.added")[0]["item"]


def test_reasoning_is_sealed_once_when_it_is_whole():
    sealed: list[str] = []

    def seal(text: str) -> str:
        sealed.append(text)
        return "sealed"

    events = shown([ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("ok")], seal=seal)
    assert sealed == ["hm"]
    assert items(events)[0]["encrypted_content"] == "sealed"
    assert "encrypted_content" not in of(events, "output_item.added")[0]["item"]
    assert of(events, "output_item.done")[0]["item"]["encrypted_content"] == "sealed"


@pytest.mark.parametrize("sealed", [False, True])
def test_hidden_reasoning_shows_nothing_of_its_text(sealed: bool):
    seal = (lambda text: "sealed") if sealed else None
    events = shown([ReasoningDelta("my secret"), TextDelta("ok")], seal=seal, hides_reasoning=True)
    assert "secret" not in str(events)
    reasoning = items(events)[0]
    assert reasoning["content"] == [] and reasoning["status"] == "completed"
    assert ("encrypted_content" in reasoning) is sealed


def test_what_is_sealed_for_the_store_alone_is_not_shown():
    def seal(text: str) -> str:
        return f"sealed {text}"

    builder = ResponseBuilder(
        asked({"input": "hi"}).response(),
        new_log(),
        Presentation(seal=seal, shows_sealed=False, hides_reasoning=True),
    )
    builder.start()
    builder.feed(ReasoningDelta("hm"))
    builder.feed(TextDelta("ok"))
    builder.finish(STOP, USAGE)
    assert "sealed" not in str(as_read(builder.log)) + str(builder.response)
    kept: Any = builder.stored["output"][0]
    assert kept[KEPT_SEALED] == "sealed hm"
    assert builder.response["output"] == [shown_item(item) for item in builder.stored["output"]]


def test_the_reasoning_is_its_own_summary_where_that_is_set():
    events = shown([ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("ok")], summarises=True)
    assert types(events)[2:14] == [
        "output_item.added",
        "content_part.added",
        "reasoning_summary_part.added",
        *("reasoning_text.delta", "reasoning_summary_text.delta") * 2,
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert of(events, "output_item.added")[0]["item"]["summary"] == []
    assert of(events, "reasoning_summary_part.added")[0]["part"]["text"] == ""
    deltas = of(events, "reasoning_summary_text.delta")
    assert [event["delta"] for event in deltas] == ["h", "m"]
    assert {(event["output_index"], event["summary_index"]) for event in deltas} == {(0, 0)}
    assert of(events, "reasoning_summary_text.done")[0]["text"] == "hm"
    reasoning = items(events)[0]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm"}]


@pytest.mark.parametrize("presentation", [{}, {"summarises": True}, {"hides_reasoning": True}])
@pytest.mark.parametrize("number", range(2, 7))
def test_reasoning_that_broke_off_goes_on_from_its_events(
    presentation: dict[str, Any], number: int
):
    builder = ResponseBuilder(
        asked({"input": "hi"}).response(), new_log(), Presentation(**presentation)
    )
    builder.start()
    builder.feed(ReasoningDelta("h"))
    builder.feed(ReasoningDelta("m"))
    log = new_log()
    for event in list(builder.log.events)[:number]:
        log.append(event)
    again = ResponseBuilder(fold(log.events), log)
    again.start()
    again.fail(ServerError("It broke off."), USAGE)
    assert fold(log.events) == again.response
    events = as_read(log)
    deltas = of(events, "reasoning_text.delta"), of(events, "reasoning_summary_text.delta")
    said = ["".join(event["delta"] for event in each) for each in deltas]
    texts = of(events, "reasoning_text.done"), of(events, "reasoning_summary_text.done")
    assert ["".join(event["text"] for event in each) for each in texts] == said
