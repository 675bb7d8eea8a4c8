"""What nothing refers to, found and removed a little at a time.

It is looked for in transactions that only read, which hold nobody up, and looked at again in those
that remove it.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select

from antiphon.store import schema
from antiphon.store.base import Blobs

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
_LINES = schema.lines
_PLACES = schema.line_items
_ITEMS = schema.items
_BLOBS = schema.blobs

#: A blob is left alone for so long after somebody began to write it: they may be about to refer to
#: it.
BLOB_SECONDS = 600.0
#: A store may be far away, and nobody else can write meanwhile.
_BLOBS_AT_ONCE = 8

_LAST_PLACE = (
    select(func.max(_PLACES.c.position)).where(_PLACES.c.line == _LINES.c.key).scalar_subquery()
)
_RESPONSES_END = func.coalesce(
    select(func.max(_RESPONSES.c.output_end))
    .where(_RESPONSES.c.line == _LINES.c.key)
    .scalar_subquery(),
    0,
)
_CONVERSATIONS_END = func.coalesce(
    select(func.max(_CONVERSATIONS.c.length))
    .where(_CONVERSATIONS.c.line == _LINES.c.key)
    .scalar_subquery(),
    0,
)
_LONGER_THAN_NEEDED: ColumnElement[bool] = or_(
    and_(_LAST_PLACE >= _RESPONSES_END, _LAST_PLACE >= _CONVERSATIONS_END),
    and_(
        ~exists().where(_RESPONSES.c.line == _LINES.c.key),
        ~exists().where(_CONVERSATIONS.c.line == _LINES.c.key),
    ),
)


def longer_lines(
    connection: Connection, after: int, limit: int
) -> tuple[Sequence[int], int | None]:
    """Lines with places that nobody refers to, among the next `limit` after a key; and the last key
    looked at, None at the end."""
    last = _last(connection, _LINES.c.key, after, limit)
    keys = connection.execute(
        select(_LINES.c.key).where(
            _LINES.c.key > after, _LINES.c.key <= (last or 0), _LONGER_THAN_NEEDED
        )
    )
    return list(keys.scalars()), last


def loose_items(connection: Connection, after: int, limit: int) -> tuple[Sequence[int], int | None]:
    """Items that stand in no line, among the next `limit` after a key; and the last key looked at,
    None at the end."""
    last = _last(connection, _ITEMS.c.key, after, limit)
    keys = connection.execute(
        select(_ITEMS.c.key).where(
            _ITEMS.c.key > after,
            _ITEMS.c.key <= (last or 0),
            ~exists().where(_PLACES.c.item == _ITEMS.c.key),
        )
    )
    return list(keys.scalars()), last


def remove_blobs(connection: Connection, blobs: Blobs, before: float) -> int:
    """Remove a few blobs that nothing refers to and nobody has begun to write since `before`.

    The bytes go before the transaction ends, so whoever wants to write one of them now comes after
    that, and writes it again.
    """
    names = list(
        connection.execute(
            select(_BLOBS.c.name)
            .where(_BLOBS.c.touched_at <= before, ~exists().where(_ITEMS.c.blob == _BLOBS.c.name))
            .limit(_BLOBS_AT_ONCE)
            .with_for_update(skip_locked=True)
        ).scalars()
    )
    for name in names:
        blobs.delete(name)
    connection.execute(delete(_BLOBS).where(_BLOBS.c.name.in_(names)))
    return len(names)


def _last(connection: Connection, column: ColumnElement[int], after: int, limit: int) -> int | None:
    keys = select(column.label("key")).where(column > after).order_by(column).limit(limit)
    last: int | None = connection.execute(select(func.max(keys.subquery().c.key))).scalar()
    return last
