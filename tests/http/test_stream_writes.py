"""What is written at once of a stream of events."""

import asyncio
from collections.abc import Sequence
from typing import Any

from said import in_a_loop

from antiphon.http.answers import EventStream
from antiphon.responses.log import DONE


class _Kept:
    """Frames that are all there."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames

    async def frames_from(self, number: int) -> Sequence[bytes]:
        return self._frames[number:]


async def _bodies(frames: Sequence[bytes], first: int = 0) -> list[bytes]:
    """The writes of a stream, without its head and end."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    scope: Any = {"type": "http", "extensions": {}}
    await EventStream(_Kept(frames), lambda: None, {}, first=first)(scope, receive, send)
    bodies = [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert bodies.pop() == DONE
    return bodies


def _frame(number: int, size: int = 200) -> bytes:
    return b"data: %d " % number + b"x" * size + b"\n\n"


@in_a_loop
async def test_small_events_that_are_there_together_share_writes_of_a_packet_each():
    frames = [_frame(number) for number in range(20)]
    bodies = await _bodies(frames)
    assert b"".join(bodies) == b"".join(frames)
    assert len(bodies) == 4
    assert all(len(body) <= 1400 and body.endswith(b"\n\n") for body in bodies)


@in_a_loop
async def test_a_large_event_is_one_write_of_its_own():
    frames = [_frame(0), _frame(1, 5000), _frame(2), _frame(3)]
    assert await _bodies(frames) == [frames[0], frames[1], frames[2] + frames[3]]


@in_a_loop
async def test_a_stream_from_a_later_event_begins_with_that_one():
    frames = [_frame(number, 5000) for number in range(5)]
    assert await _bodies(frames, first=3) == frames[3:]
