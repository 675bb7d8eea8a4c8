"""Rows of events: written, read in pages, and trimmed to what is kept of a run.

A row has what was committed together, so that the end of a response, which is told several times
over, is one and not one for each event.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from antiphon.store import schema
from antiphon.store.failures import Corrupt
from antiphon.store.prepared import Prepared, Values
from antiphon.store.records import ACTIVE, EventPage, StoreLimits
from antiphon.store.sealing import Box

_EVENTS = schema.events
#: What is kept may be exceeded by so much of itself, so that not every event deletes another.
_SLACK = 17 / 16
#: A row has no more bytes, unless it is a single event, so that who reads a few need not open many.
_ROW_BYTES = 16 * 2**10
#: Ends a frame, and stands nowhere else in it.
_FRAME_END = b"\n\n"

_INSERT = Prepared(
    insert(_EVENTS).values(
        response=bindparam("at"), number=bindparam("place"), frames=bindparam("sealed")
    )
)
_ROW_OF = (
    select(func.max(_EVENTS.c.number))
    .where(_EVENTS.c.response == bindparam("key"), _EVENTS.c.number <= bindparam("number"))
    .scalar_subquery()
)
_FROM = (
    select(_EVENTS.c.number, _EVENTS.c.frames)
    .where(_EVENTS.c.response == bindparam("key"), _EVENTS.c.number >= func.coalesce(_ROW_OF, 0))
    .order_by(_EVENTS.c.number)
    .limit(bindparam("limit"))
)
_SIZES = (
    select(_EVENTS.c.number, func.length(_EVENTS.c.frames).label("size"))
    .where(_EVENTS.c.response == bindparam("key"))
    .order_by(_EVENTS.c.number)
)
_BEFORE = delete(_EVENTS).where(
    _EVENTS.c.response == bindparam("key"), _EVENTS.c.number < bindparam("number")
)


class Kept(NamedTuple):
    """The events of a run that are kept: those before number `end`, from `first` on, and the bytes
    of their frames."""

    first: int
    end: int
    num_bytes: int


def place_of(response_id: str, number: int) -> str:
    """Where the row that begins with an event belongs, for sealing."""
    return f"event:{response_id}:{number}"


def split(frames: bytes) -> list[bytes]:
    """The frames of a row."""
    return [frame + _FRAME_END for frame in frames.split(_FRAME_END)[:-1]]


def rows_of(
    box: Box, key: int, response_id: str, first: int, frames: Sequence[bytes]
) -> Iterator[Values]:
    """The rows of a response's events from number `first` on, for `write`."""
    begin, num_bytes = 0, 0
    for index, frame in enumerate(frames):
        if index > begin and num_bytes + len(frame) > _ROW_BYTES:
            yield _row(box, key, response_id, first + begin, frames[begin:index])
            begin, num_bytes = index, 0
        num_bytes += len(frame)
    if frames:
        yield _row(box, key, response_id, first + begin, frames[begin:])


def write(connection: Connection, rows: Sequence[Values]) -> None:
    """Store rows that `rows_of` made."""
    _INSERT.many(connection, rows)


def read_events(
    connection: Connection, row: Row[Any], number: int, limit: int, box: Box
) -> EventPage:
    """At most `limit` events of a row of `responses` from `number` on. Raises `Corrupt`.

    A number that no event has yet gives a page that begins there and is empty.
    """
    first = max(number, row.first_event)
    frames: list[bytes] = []
    if first < row.next_event and limit > 0:
        found = connection.execute(_FROM, {"key": row.key, "number": first, "limit": limit})
        for begin, sealed in found:
            expected = first + len(frames)
            opened = split(box.open(sealed, place_of(row.id, begin)))
            skipped = 0 if frames else expected - begin
            if begin + skipped != expected or not 0 <= skipped < len(opened):
                raise Corrupt(f"{place_of(row.id, expected)} is missing")
            frames += opened[skipped:]
            if len(frames) >= limit:
                break
        found.close()
        del frames[limit:]
        if not frames:
            raise Corrupt(f"{place_of(row.id, first)} is missing")
    ended = row.status not in ACTIVE and first + len(frames) >= row.next_event
    return EventPage(first, frames, ended)


def trimmed(
    connection: Connection, key: int, kept: Kept, limits: StoreLimits, box: Box, *, before: int
) -> Kept:
    """What is kept of a run's events once the oldest were deleted, if they are too many. Those from
    number `before` on are left in any case; there must be one."""
    if not _is_too_much(kept, limits):
        return kept
    overhead = len(box.seal(b"", ""))
    first = max(kept.first, min(kept.end - limits.events_per_run, before))
    num_bytes = kept.num_bytes
    keep_from = first
    rows = connection.execute(_SIZES, {"key": key})
    for row, following in pairwise(rows):
        keep_from = row.number
        too_old = following.number <= first
        too_large = row.number < before and num_bytes > limits.event_bytes_per_run
        if not too_old and not too_large:
            break
        num_bytes -= row.size - overhead
        keep_from = following.number
    rows.close()
    connection.execute(_BEFORE, {"key": key, "number": keep_from})
    return Kept(max(first, keep_from), kept.end, num_bytes)


def _is_too_much(kept: Kept, limits: StoreLimits) -> bool:
    return (
        kept.end - kept.first > limits.events_per_run * _SLACK
        or kept.num_bytes > limits.event_bytes_per_run * _SLACK
    )


def _row(
    box: Box, key: int, response_id: str, number: int, frames: Sequence[bytes]
) -> dict[str, Any]:
    sealed = box.seal(b"".join(frames), place_of(response_id, number))
    return {"at": key, "place": number, "sealed": sealed}
