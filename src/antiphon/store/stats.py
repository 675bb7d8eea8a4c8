"""How much is stored now, whoever owns it."""

from sqlalchemy import Connection, Table, func, select

from antiphon.store import schema
from antiphon.store.records import StoreStats
from antiphon.store.rows import unexpired
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_ITEMS = schema.items
_BLOBS = schema.blobs


async def stats(shared: Shared) -> StoreStats:
    """Count what is stored. It goes through all responses and items, so ask seldom."""
    now = shared.clock()
    return await shared.db.read(lambda connection: _stats(connection, now))


def _stats(connection: Connection, now: float) -> StoreStats:
    by_status: dict[str, int] = {}
    events, event_bytes = 0, 0
    query = (
        select(
            _RESPONSES.c.status,
            func.count(),
            func.sum(_RESPONSES.c.next_event - _RESPONSES.c.first_event),
            func.sum(_RESPONSES.c.event_bytes),
        )
        .where(unexpired(now))
        .group_by(_RESPONSES.c.status)
    )
    for status, count, num_events, num_bytes in connection.execute(query):
        by_status[status] = count
        events += int(num_events)
        event_bytes += int(num_bytes)
    items, item_bytes = connection.execute(
        select(func.count(), func.coalesce(func.sum(_ITEMS.c.size), 0)).select_from(_ITEMS)
    ).one()
    blobs, blob_bytes = connection.execute(
        select(func.count(), func.coalesce(func.sum(_BLOBS.c.size), 0)).select_from(_BLOBS)
    ).one()
    return StoreStats(
        responses=sum(by_status.values()),
        queued=by_status.get("queued", 0),
        running=by_status.get("in_progress", 0),
        conversations=_count(connection, schema.conversations),
        items=items,
        item_bytes=int(item_bytes),
        events=events,
        event_bytes=event_bytes,
        blobs=blobs,
        blob_bytes=int(blob_bytes),
        workers=_count(connection, schema.workers),
    )


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()
