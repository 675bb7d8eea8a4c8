"""Whatever a server sends is read, and what is wrong with a stream is found wherever it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import frame
from valid import streams

from responses_conformance.findings import Findings
from responses_conformance.frames import blocks, read
from responses_conformance.rules.kinds import LIFECYCLE, OF_ITEMS
from responses_conformance.rules.stream import judge_stream
from responses_conformance.schemas import Schemas

SCHEMAS = Schemas()
#: Streams whose events are written as they are here, by name.
STREAMS = {
    name: [json.loads(b.text) for b in blocks(body.encode()) if b.event is not None]
    for name, body in streams().items()
    if name not in ("crlf", "comments", "no_space_after_colon")
}
#: What may be there or not, and more than once.
OPTIONAL = {"response.in_progress", "response.queued"}
LINES = st.sampled_from(
    ["event: a", "data: {}", 'data: {"type": "a"}', "data:", "data: [DONE]", "id: 1", ": x", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)

bounded = settings(max_examples=150, deadline=None)


def judged(events):
    """What is wrong with a stream of these events. Everything that is told can be written."""
    findings = Findings()
    body = "".join(map(frame, events)) + "data: [DONE]\n\n"
    judge_stream(body.encode(), SCHEMAS, findings)
    assert all(f.where.encode() and f.seen.encode() for f in findings)
    return {finding.rule for finding in findings}


def renumbered(events):
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def counts(event):
    """Whether a stream is another one without this event, or with two of it."""
    kind = event["type"]
    if event.get("delta") == "" or kind in OPTIONAL:
        return False
    return kind in LIFECYCLE or kind in OF_ITEMS


PLACES = st.sampled_from([(n, p) for n, events in STREAMS.items() for p in range(len(events))])


@bounded
@given(st.binary(max_size=200))
def test_any_bytes_are_read(content):
    read(content, Findings())
    judge_stream(content, SCHEMAS, Findings())


@bounded
@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_lines_are_read_alike_whatever_ends_them(lines, end):
    told = []
    for line_end in ("\n", end):
        findings = Findings()
        frames = read("".join(line + line_end for line in lines).encode(), findings)
        told.append(([f.data for f in frames.events], [f.rule for f in findings]))
    assert told[0] == told[1]


@bounded
@given(PLACES, st.data())
def test_any_value_in_any_place_is_judged(place, data):
    name, number = place
    events = [*STREAMS[name]]
    field = data.draw(st.sampled_from([*events[number], "error", "response"]))
    events[number] = {"type": "?", **events[number], field: data.draw(JSON)}
    judged(events)


def test_an_event_without_a_name_is_told_as_such():
    assert "LIFE-13" in judged([{**STREAMS["custom_input"][0], "type": ""}])


@pytest.mark.parametrize("number", [400, 5000])
@pytest.mark.parametrize("field", ["delta", "item_id", "type", "sequence_number"])
def test_what_is_nested_deeply_is_judged(number, field):
    events = [*STREAMS["custom_input"]]
    body = "".join(frame({**e, field: "?"}) if n == 3 else frame(e) for n, e in enumerate(events))
    findings = Findings()
    judge_stream(body.replace('"?"', "[" * number + "]" * number).encode(), SCHEMAS, findings)
    assert findings.found


@bounded
@given(PLACES)
def test_an_event_that_is_lost_is_found(place):
    name, number = place
    events = STREAMS[name]
    left = events[:number] + events[number + 1 :]
    assert judged(left) & {"SEQ-2", "SEQ-3", "LIFE-3", "LIFE-12"}
    kind, last = events[number]["type"], events[-1]["type"]
    # What was cut off need not say how much of it there was, nor a cancelled one that it was.
    excused = kind.endswith("text.done") if last != "response.completed" else False
    excused = excused or (kind == "response.output_item.done" and last == "error")
    if counts(events[number]) and not excused:
        assert judged(renumbered(left))


@bounded
@given(PLACES)
def test_an_event_that_comes_twice_is_found(place):
    name, number = place
    events = STREAMS[name]
    more = events[: number + 1] + events[number:]
    assert "SEQ-4" in judged(more)
    if counts(events[number]):
        assert judged(renumbered(more))


@bounded
@given(PLACES, st.data())
def test_two_events_in_the_wrong_order_are_found(place, data):
    name, number = place
    events = [*STREAMS[name]]
    other = data.draw(st.integers(0, len(events) - 1))
    events[number], events[other] = events[other], events[number]
    assert number == other or judged(events) & {"SEQ-2", "SEQ-3", "SEQ-4"}


@bounded
@given(PLACES, st.data())
def test_another_id_index_or_text_is_found(place, data):
    name, number = place
    event = STREAMS[name][number]
    changes = {
        "item_id": "item_x",
        "output_index": 9,
        "content_index": 9,
        "summary_index": 9,
        "delta": "?",
        "text": "?",
        "arguments": "?",
        "input": "?",
        "refusal": "?",
    }
    possible = [field for field in changes if field in event]
    if not possible or not counts(event):
        return
    field = data.draw(st.sampled_from(possible))
    changed = {**event, field: changes[field]}
    assert judged([*STREAMS[name][:number], changed, *STREAMS[name][number + 1 :]])


@pytest.mark.parametrize("name", STREAMS)
def test_the_streams_that_are_changed_are_sound(name):
    assert judged(STREAMS[name]) == set()
