"""A response that another process goes on with, or ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turns import turns
from writing import (
    FAILURE,
    RESPONSE,
    USAGE,
    as_read,
    new_builder,
    new_log,
    of,
    response_of,
    types,
)

from antiphon.errors import ServerError
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.fold import fold
from antiphon.responses.log import EventLog
from antiphon.spec import packaged_contract
from antiphon.turn import CallArguments, CallStart, Delta, Finish, ReasoningDelta, TextDelta


def written_until(deltas: list[Delta]) -> EventLog:
    """A log that breaks off after these deltas."""
    builder = new_builder()
    builder.start()
    for delta in deltas:
        builder.feed(delta)
    return builder.log


def gone_on_with(log: EventLog) -> ResponseBuilder:
    """A builder in another process, which has the events alone."""
    other = new_log()
    for event in as_read(log):
        other.append(event)  # type: ignore[arg-type]
    return ResponseBuilder(fold(other.events), other)


@given(turns(), st.data())
def test_whatever_was_said_until_then_can_be_ended(
    turn: tuple[list[Delta], Finish | ServerError], data: st.DataObject
):
    deltas, _ = turn
    log = written_until(deltas[: data.draw(st.integers(0, len(deltas)))])
    builder = gone_on_with(log)
    cancels = data.draw(st.booleans())
    if cancels:
        builder.cancel(USAGE)
    else:
        builder.fail(FAILURE, USAGE)
    events = as_read(builder.log)
    assert events[: log.next_number] == as_read(log)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["output_index"] for event in of(events, "output_item.added")]
    done = [event["output_index"] for event in of(events, "output_item.done")]
    assert sorted(added) == sorted(done) == list(range(len(added)))
    final: Any = builder.response
    assert packaged_contract().accepts(RESPONSE, final)
    assert final["status"] == ("cancelled" if cancels else "failed")
    assert fold(builder.log.events)["output"] == final["output"]
    assert all(item["status"] != "in_progress" for item in final["output"])


@pytest.mark.parametrize(
    ("deltas", "closing"),
    [
        ([TextDelta("Hel")], ["output_text.done", "content_part.done", "output_item.done"]),
        ([ReasoningDelta("Hm")], ["reasoning_text.done", "content_part.done", "output_item.done"]),
        ([CallStart(0, "f"), CallArguments(0, "{")], ["output_item.done"]),
    ],
)
def test_what_is_open_is_closed_with_what_it_holds(deltas, closing):
    log = written_until(deltas)
    builder = gone_on_with(log)
    builder.fail(FAILURE, None)
    events = as_read(builder.log)
    assert types(events[log.next_number :]) == [*closing, "error", "failed"]
    (item,) = response_of(events)["output"]
    assert item["status"] == "incomplete"
    assert item["id"] == of(events, "output_item.added")[0]["item"]["id"]


def test_a_response_that_waited_is_begun_without_being_announced_again():
    builder = new_builder()
    builder.queue()
    other = gone_on_with(builder.log)
    other.start()
    assert types(as_read(other.log)) == ["created", "queued", "in_progress"]
    assert response_of(as_read(other.log))["status"] == "in_progress"
