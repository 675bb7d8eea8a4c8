"""Whoever has something stored, and what seals it.

Every look-up asks the database, as another process may have forgotten an owner in between; only the
box, which takes a key unwrapped, is remembered.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from antiphon.principal import Principal
from antiphon.store import schema, upserts
from antiphon.store.prepared import Prepared
from antiphon.store.sealing import Box, Sealer

_MAX_REMEMBERED = 1024

_BY_ID = select(schema.owners.c.key, schema.owners.c.data_key).where(
    schema.owners.c.id == bindparam("id")
)
_LOCKED = Prepared(_BY_ID.with_for_update(key_share=True))
_BY_KEY = select(schema.owners.c.id, schema.owners.c.data_key).where(
    schema.owners.c.key == bindparam("key")
)


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner's row: `key` in the database, `id` that of the principal, `box` for their bytes."""

    key: int
    id: str
    box: Box


class Owners:
    """Finds and makes owners. Safe to use from several threads."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._remembered: OrderedDict[int, tuple[bytes | None, Owner]] = OrderedDict()
        self._lock = threading.Lock()

    def owner_of(
        self, connection: Connection, principal: Principal, *, create: bool = False
    ) -> Owner | None:
        """The owner that a principal is, None if nothing is stored for them.

        With `create` there is always one, with a data key if the sealer wants one, and the row is
        locked until the transaction ends: writers of one owner take turns.
        """
        if create:
            return self.locked(connection, principal)
        row = connection.execute(_BY_ID, {"id": principal.id}).first()
        return None if row is None else self._owner(row.key, principal.id, row.data_key)

    def locked(self, connection: Connection, principal: Principal) -> Owner:
        """The owner that a principal is, made if there is none, the row locked."""
        row = _LOCKED.first(connection, {"id": principal.id})
        if row is None:
            connection.execute(
                upserts.insert(connection, schema.owners)
                .values(id=principal.id, data_key=self._sealer.new_data_key())
                .on_conflict_do_nothing()
            )
            row = _LOCKED.first(connection, {"id": principal.id})
        data_key = row.data_key
        if self._sealer.wants_key(data_key):
            data_key = self._sealer.new_data_key()
            connection.execute(
                update(schema.owners).where(schema.owners.c.key == row.key),
                {"data_key": data_key},
            )
        return self._owner(row.key, principal.id, data_key)

    def held(self, connection: Connection, principal: Principal, key: int) -> Owner:
        """The owner with this row, which must be there, locked as by `locked`."""
        if connection.dialect.name == "sqlite":  # Whoever writes has locked all of it.
            with self._lock:
                data_key, owner = self._remembered.get(key, (None, None))
            if owner is not None and not self._sealer.wants_key(data_key):
                return owner
        return self.locked(connection, principal)

    def of_key(self, connection: Connection, key: int) -> Owner:
        """The owner with this row.

        From memory where possible, so they may be gone: for work on rows of theirs that are there.
        """
        with self._lock:
            remembered = self._remembered.get(key)
        if remembered is not None:
            return remembered[1]
        row = connection.execute(_BY_KEY, {"key": key}).one()
        return self._owner(key, row.id, row.data_key)

    def drop(self, key: int) -> None:
        """Forget the box of an owner who is gone."""
        with self._lock:
            self._remembered.pop(key, None)

    def _owner(self, key: int, id: str, data_key: bytes | None) -> Owner:
        with self._lock:
            remembered = self._remembered.get(key)
            if remembered is not None and remembered[0] == data_key:
                self._remembered.move_to_end(key)
                return remembered[1]
        owner = Owner(key, id, self._sealer.box(data_key))
        with self._lock:
            self._remembered[key] = (data_key, owner)
            while len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return owner
