"""Lists of the items of a line, page by page.

An item that stands in a line several times is listed once, at its first place, so that the id of an
item says where the next page begins.
"""

from sqlalchemy import Connection, and_, bindparam, exists, func, select

from antiphon.store import schema
from antiphon.store.failures import NotFound
from antiphon.store.items import is_sane
from antiphon.store.lines import Lines
from antiphon.store.owners import Owner
from antiphon.store.records import Order, Page

_ITEMS = schema.items
_PLACES = schema.line_items
_EARLIER = _PLACES.alias("earlier")

_PLACE_OF = (
    select(func.min(_PLACES.c.position))
    .join_from(_PLACES, _ITEMS, _PLACES.c.item == _ITEMS.c.key)
    .where(
        _ITEMS.c.owner == bindparam("owner"),
        _ITEMS.c.id == bindparam("id"),
        _PLACES.c.line == bindparam("line"),
        _PLACES.c.position < bindparam("end"),
    )
)
_LISTED = (
    select(_PLACES.c.position, _ITEMS.c.id, _ITEMS.c.body, _ITEMS.c.blob)
    .join_from(_PLACES, _ITEMS, _PLACES.c.item == _ITEMS.c.key)
    .where(
        _PLACES.c.line == bindparam("line"),
        _PLACES.c.position > bindparam("above"),
        _PLACES.c.position < bindparam("below"),
        ~exists().where(
            and_(
                _EARLIER.c.item == _PLACES.c.item,
                _EARLIER.c.line == _PLACES.c.line,
                _EARLIER.c.position < _PLACES.c.position,
            )
        ),
    )
    .limit(bindparam("limit"))
)
_QUERIES = {
    "asc": _LISTED.order_by(_PLACES.c.position),
    "desc": _LISTED.order_by(_PLACES.c.position.desc()),
}


def place_of(connection: Connection, owner: Owner, line: int, end: int, id: str) -> int:
    """The first place of an item in a line before `end`. Raises `NotFound`."""
    place: int | None = None
    if is_sane(id):
        place = connection.execute(
            _PLACE_OF, {"owner": owner.key, "id": id, "line": line, "end": end}
        ).scalar()
    if place is None:
        raise NotFound(id)
    return place


def page(
    connection: Connection,
    lines: Lines,
    owner: Owner,
    stretch: tuple[int, int],
    *,
    after: str | None,
    limit: int,
    order: Order,
) -> Page:
    """At most `limit` items of a line up to a place, those after the item `after` in that order.

    `stretch` is the line and the place. Raises `NotFound`, also for `after`, or `Corrupt`.
    """
    line, end = stretch
    above, below = -1, end
    if after is not None:
        place = place_of(connection, owner, line, end, after)
        above, below = (place, end) if order == "asc" else (-1, place)
    rows = connection.execute(
        _QUERIES[order], {"line": line, "above": above, "below": below, "limit": limit + 1}
    ).all()
    found = [lines.opened(owner, row.id, row.body, row.blob) for row in rows[:limit]]
    return Page(found, len(rows) > limit)
