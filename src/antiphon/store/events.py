"""Rows of events: read in pages, and trimmed to what is kept of a run."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, select

from antiphon.store import schema
from antiphon.store.failures import Corrupt
from antiphon.store.records import ACTIVE, EventPage, StoreLimits
from antiphon.store.sealing import Box

_EVENTS = schema.events
#: What is kept may be exceeded by so much of itself, so that not every event deletes another.
_SLACK = 17 / 16

_FROM = (
    select(_EVENTS.c.number, _EVENTS.c.frame)
    .where(_EVENTS.c.response == bindparam("key"), _EVENTS.c.number >= bindparam("number"))
    .order_by(_EVENTS.c.number)
    .limit(bindparam("limit"))
)
_SIZES = (
    select(_EVENTS.c.number, func.length(_EVENTS.c.frame))
    .where(_EVENTS.c.response == bindparam("key"))
    .order_by(_EVENTS.c.number)
)
_BEFORE = delete(_EVENTS).where(
    _EVENTS.c.response == bindparam("key"), _EVENTS.c.number < bindparam("number")
)


def place_of(response_id: str, number: int) -> str:
    """Where a frame belongs, for sealing."""
    return f"event:{response_id}:{number}"


def read_events(
    connection: Connection, row: Row[Any], number: int, limit: int, box: Box
) -> EventPage:
    """At most `limit` events of a row of `responses` from `number` on. Raises `Corrupt`.

    A number that no event has yet gives a page that begins there and is empty.
    """
    first = max(number, row.first_event)
    frames: list[bytes] = []
    if first < row.next_event:
        values = {"key": row.key, "number": first, "limit": limit}
        for found, sealed in connection.execute(_FROM, values):
            expected = first + len(frames)
            if found != expected:
                raise Corrupt(f"{place_of(row.id, expected)} is missing")
            frames.append(box.open(sealed, place_of(row.id, found)))
        if not frames and limit > 0:
            raise Corrupt(f"{place_of(row.id, first)} is missing")
    ended = row.status not in ACTIVE and first + len(frames) >= row.next_event
    return EventPage(first, frames, ended)


def is_too_much(num_events: int, num_bytes: int, limits: StoreLimits) -> bool:
    """Whether so many events of a run are to be trimmed."""
    return (
        num_events > limits.events_per_run * _SLACK
        or num_bytes > limits.event_bytes_per_run * _SLACK
    )


def trim(
    connection: Connection,
    key: int,
    num_events: int,
    num_bytes: int,
    limits: StoreLimits,
    box: Box,
    *,
    before: int,
) -> tuple[int, int]:
    """Delete the oldest events of a run until as many are left as are kept. Those from number
    `before` on are left in any case; there must be one. How many were deleted, and how many bytes
    before they were sealed."""
    overhead = len(box.seal(b"", ""))
    cut = cut_bytes = keep_from = 0
    sizes = connection.execute(_SIZES, {"key": key})
    for number, size in sizes:
        keep_from = number
        too_many = num_events - cut > limits.events_per_run
        if number >= before or not (too_many or num_bytes - cut_bytes > limits.event_bytes_per_run):
            break
        cut += 1
        cut_bytes += size - overhead
    sizes.close()
    connection.execute(_BEFORE, {"key": key, "number": keep_from})
    return cut, cut_bytes
