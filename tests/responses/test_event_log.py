"""The log of a response's events: what may be appended, and how it is read."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from said import in_a_loop
from writing import asked, new_builder, new_log

from antiphon.responses.log import DONE, EventLog, InvalidEvent
from antiphon.turn import TextDelta


def created(number: int = 0) -> Any:
    response = asked({"input": "hi"}).response()
    return {"type": "response.created", "sequence_number": number, "response": response}


def delta(number: int, text: str) -> Any:
    return {
        "type": "response.output_text.delta",
        "sequence_number": number,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": text,
        "logprobs": [],
    }


async def all_frames(log: EventLog, start: int = 0) -> list[bytes]:
    """What a reader gets from `start` until the log is closed."""
    read: list[bytes] = []
    while frames := await log.frames_from(start + len(read)):
        read += frames
    return read


# Appending


def test_events_are_numbered_by_their_place():
    log = new_log()
    assert log.next_number == 0
    log.append(created())
    assert log.next_number == 1
    log.append(delta(1, "a"))
    assert [event["sequence_number"] for event in log.events] == [0, 1]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (delta(0, "again"), "is number 0"),
        (delta(2, "too early"), "is number 2"),
        ({**delta(1, "x"), "delta": None}, "does not fit"),
        ({**delta(1, "x"), "extra": 1}, "does not fit"),
        ({k: v for k, v in delta(1, "x").items() if k != "logprobs"}, "does not fit"),
        ({**delta(1, "x"), "type": "response.output_text.done"}, "does not fit"),
        ({"type": "response.unheard_of", "sequence_number": 1}, "does not fit"),
        (
            {"type": "response.refusal.delta", "sequence_number": 1, "delta": "x"}
            | {"item_id": "msg_1", "output_index": 0, "content_index": 0},
            "does not fit",
        ),
    ],
    ids=["number used", "number ahead", "type", "extra", "missing", "tag", "unknown", "not served"],
)
def test_str_07_an_event_that_does_not_fit_is_refused_and_burns_no_number(event: Any, message: str):
    log = new_log()
    log.append(created())
    with pytest.raises(InvalidEvent, match=message):
        log.append(event)
    assert (log.next_number, len(log.events), len(log._frames)) == (1, 1, 1)
    log.append(delta(1, "good"))
    assert log.next_number == 2


def test_str_07_what_cannot_be_written_as_json_burns_no_number():
    log = new_log()
    log.append(created())
    with pytest.raises(TypeError):
        log.append(delta(1, "\ud800"))
    assert (log.next_number, len(log.events), len(log._frames)) == (1, 1, 1)


def test_nothing_follows_once_a_log_is_closed():
    log = new_log()
    log.append(created())
    log.close()
    assert log.closed
    with pytest.raises(InvalidEvent, match="after the log was closed"):
        log.append(delta(1, "late"))
    log.close()
    assert len(log.events) == 1


# Frames


def test_an_event_is_one_frame_of_two_lines():
    log = new_log()
    log.append(created())
    (frame,) = log._frames
    head, data, *rest = frame.split(b"\n")
    assert head == b"event: response.created"
    assert data.startswith(b"data: {") and json.loads(data[6:]) == log.events[0]
    assert rest == [b"", b""]


def test_net_01_no_text_can_end_a_line():
    log = new_log()
    log.append(created())
    text = "a\u2028b\u2029c\u0085d\r\n\x0b\x0c\x1c\x1ee"
    log.append(delta(1, text))
    frame = log._frames[1].decode()
    assert len(frame.splitlines()) == 3
    assert json.loads(frame.splitlines()[1].removeprefix("data: "))["delta"] == text


def test_text_that_only_looks_like_an_escape_stays_as_it_is():
    log = new_log()
    log.append(created())
    log.append(delta(1, "\\u2028 \\n é \U0001f600 \u00c2"))
    data = log._frames[1].decode().split("\n")[1].removeprefix("data: ")
    assert json.loads(data)["delta"] == "\\u2028 \\n é \U0001f600 \u00c2"


def test_the_end_of_a_stream_is_no_event():
    assert DONE == b"data: [DONE]\n\n"


# Reading


@in_a_loop
async def test_readers_get_the_same_frames_early_late_or_in_between():
    builder = new_builder()
    log = builder.log
    early = asyncio.create_task(all_frames(log))
    builder.start()
    builder.feed(TextDelta("a"))
    between = asyncio.create_task(all_frames(log))
    await log.frames_from(0)
    builder.feed(TextDelta("b"))
    log.close()
    late = await all_frames(log)
    assert await early == await between == late == log._frames
    assert len(late) == 6


@in_a_loop
async def test_sta_12_a_reader_may_begin_anywhere():
    log = new_log()
    log.append(created())
    for number in range(1, 8):
        log.append(delta(number, str(number)))
    assert await log.frames_from(5) == log._frames[5:]
    log.close()
    assert await all_frames(log, 5) == log._frames[5:]
    assert await log.frames_from(8) == []
    assert await log.frames_from(99_999) == []


@in_a_loop
async def test_a_reader_waits_until_there_is_something_to_read():
    log = new_log()
    reading = asyncio.create_task(_as_read(log, 0))
    await asyncio.sleep(0)
    assert not reading.done()
    log.append(created())
    assert await reading == log._frames


@in_a_loop
async def test_a_reader_that_waits_for_a_later_event_is_not_given_an_earlier_one():
    log = new_log()
    reading = asyncio.create_task(_as_read(log, 2))
    await asyncio.sleep(0)
    log.append(created())
    log.append(delta(1, "a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not reading.done()
    log.append(delta(2, "b"))
    assert await reading == [log._frames[2]]


@in_a_loop
async def test_closing_lets_every_reader_end():
    log = new_log()
    readers = [asyncio.create_task(_as_read(log, 0)) for _ in range(3)]
    await asyncio.sleep(0)
    log.close()
    assert await asyncio.gather(*readers) == [[], [], []]


@in_a_loop
async def test_a_reader_that_is_cancelled_leaves_the_others_reading():
    log = new_log()
    leaving, staying = (asyncio.create_task(_as_read(log, 0)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    log.append(created())
    assert await staying == log._frames
    assert (await asyncio.gather(leaving, return_exceptions=True))[0].__class__ is (
        asyncio.CancelledError
    )
    log.append(delta(1, "on"))


@in_a_loop
async def test_ops_01_a_log_keeps_nothing_of_readers_that_are_gone():
    log = new_log()
    readers = [asyncio.create_task(_as_read(log, 0)) for _ in range(5)]
    await asyncio.sleep(0)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    log.append(created())
    assert log._waiting == []


async def _as_read(log: EventLog, number: int) -> Sequence[bytes]:
    return await log.frames_from(number)
