"""Taking away responses and conversations, and what nothing else needs any more.

Whatever refers to a line refers to it from its first place on, so what is needed of it is what the
longest of them needs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, bindparam, delete, exists, func, select, update

from antiphon.store import schema
from antiphon.store.lines import chunks
from antiphon.store.prepared import Prepared

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
_LINES = schema.lines
_PLACES = schema.line_items
_ITEMS = schema.items

_COUNT = Prepared(
    update(schema.owners)
    .where(schema.owners.c.key == bindparam("owner"))
    .values(
        num_records=schema.owners.c.num_records + bindparam("records", type_=BigInteger),
        num_bytes=schema.owners.c.num_bytes + bindparam("bytes", type_=BigInteger),
    )
)


@dataclass(frozen=True, slots=True)
class Removed:
    """How many responses were removed, and the lines that they were on."""

    responses: int = 0
    lines: frozenset[int] = frozenset()

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(self.responses + other.responses, self.lines | other.lines)


def remove_responses(connection: Connection, keys: Sequence[int]) -> Removed:
    """Remove responses by the keys of their rows, active ones too."""
    count = 0
    lines: set[int] = set()
    for chunk in chunks(keys):
        rows = connection.execute(
            select(_RESPONSES.c.key, _RESPONSES.c.id, _RESPONSES.c.owner, _RESPONSES.c.line)
            .add_columns(_RESPONSES.c.size)
            .where(_RESPONSES.c.key.in_(chunk))
            .with_for_update()
        ).all()
        if not rows:
            continue
        found = [row.key for row in rows]
        ids = [row.id for row in rows]
        owners = {row.owner for row in rows}
        connection.execute(delete(schema.events).where(schema.events.c.response.in_(found)))
        keyed = schema.idempotency_keys
        connection.execute(
            delete(keyed).where(keyed.c.owner.in_(owners), keyed.c.response.in_(ids))
        )
        connection.execute(
            update(_CONVERSATIONS)
            .where(_CONVERSATIONS.c.owner.in_(owners), _CONVERSATIONS.c.active.in_(ids))
            .values(active=None)
        )
        connection.execute(delete(_RESPONSES).where(_RESPONSES.c.key.in_(found)))
        for owner in sorted(owners):
            sizes = [row.size for row in rows if row.owner == owner]
            count_responses(connection, owner, -len(sizes), -sum(sizes))
        count += len(rows)
        lines.update(row.line for row in rows)
    prune_lines(connection, lines)
    return Removed(count, frozenset(lines))


def count_responses(connection: Connection, owner: int, records: int, num_bytes: int) -> None:
    """Add to the counts of what an owner has."""
    _COUNT.run(connection, {"owner": owner, "records": records, "bytes": num_bytes})


def prune_lines(connection: Connection, keys: Collection[int]) -> None:
    """Remove the places of lines that nobody refers to, and items that then stand nowhere."""
    items: set[int] = set()
    for line in sorted(keys):
        items |= _prune(connection, line)
    remove_items(connection, items)


def remove_items(connection: Connection, keys: Iterable[int]) -> None:
    """Remove those of these items that stand in no line."""
    for chunk in chunks(sorted(keys)):
        connection.execute(
            delete(_ITEMS).where(
                _ITEMS.c.key.in_(chunk), ~exists().where(_PLACES.c.item == _ITEMS.c.key)
            )
        )


def _prune(connection: Connection, line: int) -> set[int]:
    # Locked first: whoever is putting something at its end has it locked as well.
    locked = connection.execute(
        select(_LINES.c.key).where(_LINES.c.key == line).with_for_update()
    ).first()
    if locked is None:
        return set()
    needed = max(
        connection.execute(query.where(column == line)).scalar() or 0
        for query, column in (
            (select(func.max(_RESPONSES.c.output_end)), _RESPONSES.c.line),
            (select(func.max(_CONVERSATIONS.c.length)), _CONVERSATIONS.c.line),
        )
    )
    unneeded = (_PLACES.c.line == line) & (_PLACES.c.position >= needed)
    items = set(connection.execute(select(_PLACES.c.item).where(unneeded)).scalars())
    if items:
        connection.execute(delete(_PLACES).where(unneeded))
    if needed == 0 and not _is_used(connection, line):
        connection.execute(delete(_LINES).where(_LINES.c.key == line))
    return items


def _is_used(connection: Connection, line: int) -> bool:
    return any(
        connection.execute(select(table.c.key).where(table.c.line == line).limit(1)).first()
        for table in (_RESPONSES, _CONVERSATIONS)
    )
