"""Room for a new response: those used longest ago go, never active ones."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select, true

from antiphon.store import schema
from antiphon.store.failures import TooMany
from antiphon.store.owners import Owner
from antiphon.store.records import StoreLimits
from antiphon.store.removal import Removed, remove_responses
from antiphon.store.rows import ended

_OWNERS = schema.owners
_RESPONSES = schema.responses
#: How many are looked at in one go.
_BATCH = 50
# Those of everybody are searched without an index. So a little more goes than must, or every new
# response would search.
_SPARE = 1 / 64

_COUNTS_OF_OWNER = select(_OWNERS.c.num_records, _OWNERS.c.num_bytes)
_COUNTS = select(func.sum(_OWNERS.c.num_records), func.sum(_OWNERS.c.num_bytes))


def make_room(connection: Connection, owner: Owner, limits: StoreLimits) -> Removed:
    """Remove what is too much now that a new response is there.

    Raises `TooMany` if what is left cannot go.
    """
    removed = Removed()
    own = _Room(limits.owner_records, limits.owner_bytes, "of this key", spare=0)
    if own.is_limited:
        counts = _COUNTS_OF_OWNER.where(_OWNERS.c.key == owner.key)
        removed += own.make(connection, counts, _RESPONSES.c.owner == owner.key)
    everybody = _Room(limits.max_records, limits.max_bytes, "in all", spare=_SPARE)
    if everybody.is_limited:
        removed += everybody.make(connection, _COUNTS, true())
    return removed


class _Room:
    def __init__(
        self, max_records: int | None, max_bytes: int | None, whose: str, *, spare: float
    ) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._whose = whose
        self._spare = spare

    @property
    def is_limited(self) -> bool:
        return self._max_records is not None or self._max_bytes is not None

    def make(
        self, connection: Connection, counts: Select[Any], candidates: ColumnElement[bool]
    ) -> Removed:
        removed = Removed()
        records, num_bytes = map(int, connection.execute(counts).one())
        if self._fits(records, num_bytes, 0):
            return removed
        while not self._fits(records, num_bytes, self._spare):
            keys: list[int] = []
            for row in connection.execute(_oldest(candidates)).all():
                if self._fits(records, num_bytes, self._spare):
                    break
                keys.append(row.key)
                records -= 1
                num_bytes -= row.size
            if not keys:
                break
            removed += remove_responses(connection, keys)
        self._check(records, num_bytes)
        return removed

    def _fits(self, records: int, num_bytes: int, spare: float) -> bool:
        return all(
            limit is None or count <= limit - int(limit * spare)
            for count, limit in ((records, self._max_records), (num_bytes, self._max_bytes))
        )

    def _check(self, records: int, num_bytes: int) -> None:
        if self._max_records is not None and records > self._max_records:
            raise TooMany(f"stored responses {self._whose}", self._max_records)
        if self._max_bytes is not None and num_bytes > self._max_bytes:
            raise TooMany(f"bytes of stored responses {self._whose}", self._max_bytes)


def _oldest(candidates: ColumnElement[bool]) -> Select[Any]:
    return (
        select(_RESPONSES.c.key, _RESPONSES.c.size)
        .where(ended(), candidates)
        .order_by(_RESPONSES.c.used_at, _RESPONSES.c.key)
        .limit(_BATCH)
        .with_for_update(skip_locked=True)
    )
