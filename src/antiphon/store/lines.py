"""Lines of items: how they grow, and how stretches of them are read."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, literal, select, update
from sqlalchemy import insert as plain_insert

from antiphon.store import items, schema
from antiphon.store.base import Blobs
from antiphon.store.failures import Corrupt
from antiphon.store.items import Content
from antiphon.store.owners import Owner
from antiphon.store.prefix_cache import PrefixCache
from antiphon.store.prepared import Prepared
from antiphon.store.records import ItemBody

T = TypeVar("T")

#: Items of more bytes are kept as blobs.
LARGE_BYTES = 64 * 2**10
#: How many values one statement may name.
CHUNK = 500
#: So many items are quicker asked for one by one.
_FEW = 8

_LINES = schema.lines
_ITEMS = schema.items
_PLACES = schema.line_items

_GROW = Prepared(
    update(_LINES)
    .where(_LINES.c.key == bindparam("line"), _LINES.c.length == bindparam("known"))
    .values(length=_LINES.c.length + bindparam("by"))
)
_ITEM = Prepared(
    plain_insert(_ITEMS)
    .values(
        owner=bindparam("whose"),
        id=bindparam("name"),
        digest=bindparam("sum"),
        size=bindparam("num_bytes"),
        body=bindparam("sealed"),
        blob=bindparam("place"),
    )
    .returning(_ITEMS.c.key)
)
_PLACE = Prepared(
    plain_insert(_PLACES).values(
        line=bindparam("on"), position=bindparam("at"), item=bindparam("key")
    )
)
_MINE = select(_ITEMS.c.key, _ITEMS.c.id, _ITEMS.c.digest).where(
    _ITEMS.c.owner == bindparam("owner")
)
_KNOWN = _MINE.where(_ITEMS.c.id.in_(bindparam("ids", expanding=True)))
_KNOWN_ONE = Prepared(_MINE.where(_ITEMS.c.id == bindparam("id")))
_STRETCH = (
    select(_PLACES.c.position, _ITEMS.c.id, _ITEMS.c.body, _ITEMS.c.blob, _ITEMS.c.size)
    .join_from(_PLACES, _ITEMS, _PLACES.c.item == _ITEMS.c.key)
    .where(
        _PLACES.c.line == bindparam("line"),
        _PLACES.c.position >= bindparam("begin"),
        _PLACES.c.position < bindparam("end"),
    )
    .order_by(_PLACES.c.position)
)


@dataclass(frozen=True, slots=True)
class Extended:
    """A line after items were put at its end: `line` is another one if it had to be copied.

    `bodies` are the items as stored, with the ids they are stored under, and `keys` those of their
    rows. `num_bytes` are the bytes of all of them, `new_bytes` of those not stored before.
    """

    line: int
    end: int
    bodies: Sequence[ItemBody]
    keys: Sequence[int]
    num_bytes: int
    new_bytes: int


class Place(NamedTuple):
    """An item at its place in a line. `size` is in bytes."""

    position: int
    body: dict[str, Any]
    size: int


class BlobsWanted(Exception):
    """These contents must be put where blobs are before a transaction may refer to them."""

    def __init__(self, contents: Sequence[bytes]) -> None:
        super().__init__(f"{len(contents)} large items")
        self.contents = contents


class Lines:
    """Grows and reads lines.

    `blobs` holds large items; None keeps them in the database. What was read lately stays in
    memory, as many as `cache_bytes` bytes.
    """

    def __init__(self, blobs: Blobs | None, cache_bytes: int = 32 * 2**20) -> None:
        self.blobs = blobs
        self._cache = PrefixCache(cache_bytes)

    @property
    def cached_bytes(self) -> int:
        """How much memory holds what was read lately, estimated."""
        return self._cache.num_bytes

    def extend(
        self,
        connection: Connection,
        owner: Owner,
        line: int | None,
        length: int,
        bodies: Sequence[ItemBody],
        *,
        ready: Collection[str] | None = None,
    ) -> Extended:
        """Put items behind the first `length` places of a line, or into a new one if it is None.

        If somebody has put something there already, the references before are copied to a new line
        first. `ready` are the names of blobs that are in their place: raises `BlobsWanted` where
        others are needed; without it, large items stay in the database.
        """
        line = self._line_ending_at(connection, owner, line, length, len(bodies))
        writer = _ItemWriter(connection, owner, None if self.blobs is None else ready)
        writer.write(bodies)
        if bodies:
            _PLACE.many(
                connection,
                [
                    {"on": line, "at": length + index, "key": key}
                    for index, key in enumerate(writer.keys)
                ],
            )
        return Extended(
            line,
            length + len(bodies),
            writer.bodies,
            writer.keys,
            writer.num_bytes,
            writer.new_bytes,
        )

    def read_line(
        self, connection: Connection, line: int, begin: int, end: int, owner: Owner
    ) -> list[ItemBody]:
        """The items of a stretch. Raises `Corrupt`."""
        return [place.body for place in self.read_places(connection, line, begin, end, owner)]

    def read_prefix(
        self, connection: Connection, line: int, end: int, owner: Owner
    ) -> tuple[Sequence[ItemBody], bool]:
        """The items up to a place, and whether some of them were in memory. Raises `Corrupt`.

        It does not ask whether there is still somebody who refers to them.
        """
        known = self._cache.get(line)
        if len(known) >= end:
            return known[:end], True
        places = self.read_places(connection, line, len(known), end, owner)
        whole = (*known, *(place.body for place in places))
        self._cache.put(line, whole, [place.size for place in places])
        return whole, bool(known)

    def forget(self, lines: Iterable[int]) -> None:
        """Drop from memory what was read of these lines."""
        self._cache.drop(lines)

    def read_places(
        self, connection: Connection, line: int, begin: int, end: int, owner: Owner
    ) -> list[Place]:
        """The items of a stretch with their places. Raises `Corrupt`, also if one is missing."""
        if begin >= end:
            return []
        rows = connection.execute(_STRETCH, {"line": line, "begin": begin, "end": end}).all()
        if len(rows) != end - begin:
            raise Corrupt(f"line {line} has {len(rows)} of {end - begin} items from {begin} on")
        return [
            Place(row.position, self.opened(owner, row.id, row.body, row.blob), row.size)
            for row in rows
        ]

    def opened(self, owner: Owner, id: str, body: bytes | None, blob: str | None) -> dict[str, Any]:
        """The item in a row. Raises `Corrupt`."""
        if blob is None:
            if body is None:
                raise Corrupt(f"item:{id} is empty")
            return items.parsed(id, owner.box.open(body, f"item:{id}"))
        if self.blobs is None:
            raise Corrupt(f"item:{id} is in a blob and there is no place for blobs")
        return items.parsed(id, owner.box.open(self.blobs.get(blob), f"blob:{blob}"))

    def _line_ending_at(
        self, connection: Connection, owner: Owner, line: int | None, length: int, by: int
    ) -> int:
        if line is not None:
            if by == 0:
                return line
            if _GROW.run(connection, {"line": line, "known": length, "by": by}):
                return line
        copy = new_line(connection, owner, length + by)
        if line is not None:
            connection.execute(
                plain_insert(_PLACES).from_select(
                    ["line", "position", "item"],
                    select(literal(copy), _PLACES.c.position, _PLACES.c.item).where(
                        _PLACES.c.line == line, _PLACES.c.position < length
                    ),
                )
            )
        return copy


def new_line(connection: Connection, owner: Owner, length: int) -> int:
    """Make a line whose places are still to be filled; its key."""
    result = connection.execute(plain_insert(_LINES), {"owner": owner.key, "length": length})
    assert result.inserted_primary_key is not None
    key: int = result.inserted_primary_key[0]
    return key


def blob_name(owner: Owner, plain: bytes) -> str:
    """The name of the blob that holds `plain` for an owner; never that of another owner's."""
    return owner.box.digest(b"blob %d " % owner.key + plain).hex()


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts short enough for one statement."""
    for begin in range(0, len(values), CHUNK):
        yield values[begin : begin + CHUNK]


class _ItemWriter:
    """Stores items of one owner, each once."""

    def __init__(self, connection: Connection, owner: Owner, ready: Collection[str] | None) -> None:
        self._connection = connection
        self._owner = owner
        self._ready = ready
        self.bodies: list[ItemBody] = []
        self.keys: list[int] = []
        self.num_bytes = 0
        self.new_bytes = 0

    def write(self, bodies: Sequence[ItemBody]) -> None:
        """Store what is not stored, and note everything's ids and keys in order."""
        contents = [items.content_of(body) for body in bodies]
        digests, keys = self._known(content.id for content in contents)
        rows: list[dict[str, Any]] = []
        wanted: list[bytes] = []
        ids: list[str] = []
        for body, content in zip(bodies, contents, strict=True):
            digest = self._owner.box.digest(content.sorted)
            id = content.id
            if id is None or digests.get(id, digest) != digest:
                id = items.fresh_id(body)
            self.bodies.append(body if body.get("id") == id else items.with_id(id, body))
            self.num_bytes += len(content.plain)
            ids.append(id)
            if id in digests:
                continue
            digests[id] = digest
            self.new_bytes += len(content.plain)
            rows.append(self._row(id, digest, content, wanted))
        if wanted:
            raise BlobsWanted(wanted)
        for row, made in zip(rows, _ITEM.each(self._connection, rows), strict=True):
            assert made is not None
            keys[row["name"]] = made[0]
        self.keys = [keys[id] for id in ids]

    def _row(self, id: str, digest: bytes, content: Content, wanted: list[bytes]) -> dict[str, Any]:
        row = {
            "whose": self._owner.key,
            "name": id,
            "sum": digest,
            "num_bytes": len(content.plain),
            "sealed": None,
            "place": None,
        }
        if self._ready is not None and len(content.plain) > LARGE_BYTES:
            name = blob_name(self._owner, content.plain)
            if name not in self._ready:
                wanted.append(content.plain)
            return row | {"place": name}
        return row | {"sealed": self._owner.box.seal(content.plain, f"item:{id}")}

    def _known(self, ids: Iterable[str | None]) -> tuple[dict[str, bytes], dict[str, int]]:
        """Digests and keys of the rows that have one of these ids."""
        digests: dict[str, bytes] = {}
        keys: dict[str, int] = {}
        wanted = sorted({id for id in ids if id is not None})
        for row in self._few(wanted) if len(wanted) <= _FEW else self._many(wanted):
            digests[row.id] = row.digest
            keys[row.id] = row.key
        return digests, keys

    def _few(self, ids: Sequence[str]) -> Iterator[Any]:
        for id in ids:
            row = _KNOWN_ONE.first(self._connection, {"owner": self._owner.key, "id": id})
            if row is not None:
                yield row

    def _many(self, ids: Sequence[str]) -> Iterator[Any]:
        for chunk in chunks(ids):
            values = {"owner": self._owner.key, "ids": list(chunk)}
            yield from self._connection.execute(_KNOWN, values)
