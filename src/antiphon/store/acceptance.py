"""The transaction that stores an accepted response."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, func, insert, select, text

from antiphon.principal import Principal
from antiphon.store import conversation_rows, events, rows, schema, upserts
from antiphon.store.eviction import make_room
from antiphon.store.failures import (
    ConversationBusy,
    KeyReused,
    NotContinuable,
    StillActive,
    TooDeep,
    TooLarge,
    TooMany,
)
from antiphon.store.lines import Extended
from antiphon.store.owners import Owner
from antiphon.store.records import ACTIVE, Accepted, Idempotency, Lease, NewResponse, StoreLimits
from antiphon.store.removal import Removed, count_responses
from antiphon.store.session import notify
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_KEYS = schema.idempotency_keys
# Made once, as making them costs more than running them.
_INSERT = insert(_RESPONSES)
#: What PostgreSQL locks while active background responses are counted: "antiphon" in ASCII.
_COUNTING = int.from_bytes(b"antiphon")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a response continues: a line up to `length`, and what is before it."""

    line: int | None = None
    length: int = 0
    depth: int = 0
    num_bytes: int = 0
    conversation: int | None = None


class Acceptance:
    """One response on its way into the store. `removed` is what had to make room for it."""

    def __init__(self, shared: Shared, principal: Principal, new: NewResponse) -> None:
        self._shared = shared
        self._principal = principal
        self._new = new
        self._now = shared.clock()
        self.removed = Removed()

    def store(self, connection: Connection, ready: frozenset[str]) -> Accepted:
        """Store it. Raises what `Responses.create` does, and `BlobsWanted`."""
        new = self._new
        limits = self._shared.limits
        owner = self._shared.owners.locked(connection, self._principal)
        if new.idempotency is not None:
            existing = made_with(connection, owner, new.idempotency, limits, self._now)
            if existing is not None:
                return Accepted(existing=existing)
        if new.background:
            _check_active(connection, owner, limits)
        origin = self._origin(connection, owner)
        if limits.max_depth is not None and origin.depth >= limits.max_depth:
            raise TooDeep(limits.max_depth)
        extended = self._shared.lines.extend(
            connection, owner, origin.line, origin.length, new.items, ready=ready
        )
        key = self._insert(connection, owner, origin, extended)
        if origin.conversation is not None:
            conversation_rows.set_active(connection, origin.conversation, new.response["id"])
        if new.idempotency is not None:
            self._remember(connection, owner, new.idempotency)
        self.removed = make_room(connection, owner, limits)
        if new.worker is None:
            notify(connection, "queue")
            return Accepted()
        return Accepted(Lease(new.response["id"], key, self._principal, fence=1))

    def _origin(self, connection: Connection, owner: Owner) -> Origin:
        if self._new.conversation is not None:
            return self._in_conversation(connection, owner, self._new.conversation)
        previous = self._new.response["previous_response_id"]
        if previous is None:
            return Origin()
        parent = rows.keep(connection, owner, previous, self._now)
        check_continuable(parent)
        return Origin(parent.line, parent.output_end, parent.depth + 1, parent.total_bytes)

    def _in_conversation(self, connection: Connection, owner: Owner, id: str) -> Origin:
        row = conversation_rows.lock(connection, owner, id)
        if conversation_rows.is_busy(connection, row):
            raise ConversationBusy(id)
        num_bytes = conversation_rows.num_bytes(connection, row)
        return Origin(row.line, row.length, 0, num_bytes, row.key)

    def _insert(
        self, connection: Connection, owner: Owner, origin: Origin, extended: Extended
    ) -> int:
        new = self._new
        response = new.response
        id = response["id"]
        plain = orjson.dumps(response)
        request = orjson.dumps(new.request)
        size = len(plain) + extended.new_bytes
        total = origin.num_bytes + extended.num_bytes
        if total + len(plain) > self._shared.limits.entry_bytes:
            raise TooLarge(self._shared.limits.entry_bytes)
        row: Mapping[str, Any] = {
            "id": id,
            "owner": owner.key,
            "line": extended.line,
            "own_begin": origin.length,
            "input_end": extended.end,
            "output_end": extended.end,
            "depth": origin.depth,
            "total_bytes": total,
            "size": size,
            "conversation": origin.conversation,
            "model": new.model or response["model"],
            "status": response["status"],
            "background": new.background,
            "body": owner.box.seal(plain, f"response:{id}"),
            "request": owner.box.seal(request, f"request:{id}"),
            "created_at": self._now,
            "used_at": self._now,
            "worker": new.worker,
            "lease_until": None,
            "fence": 0,
            "next_event": len(new.frames),
            "event_bytes": sum(map(len, new.frames)),
        }
        if new.worker is not None:
            row = {**row, "lease_until": self._now + self._shared.limits.lease_seconds, "fence": 1}
        result = connection.execute(_INSERT, row)
        assert result.inserted_primary_key is not None
        key: int = result.inserted_primary_key[0]
        events.write(connection, list(events.rows_of(owner.box, key, id, 0, new.frames)))
        count_responses(connection, owner.key, 1, size)
        return key

    def _remember(self, connection: Connection, owner: Owner, key: Idempotency) -> None:
        values = {
            "digest": _digest(owner, key),
            "response": self._new.response["id"],
            "created_at": self._now,
        }
        connection.execute(
            upserts.insert(connection, _KEYS)
            .values(owner=owner.key, name=_name(owner, key), **values)
            .on_conflict_do_update(index_elements=["owner", "name"], set_=values)
        )


def made_with(
    connection: Connection, owner: Owner, key: Idempotency, limits: StoreLimits, now: float
) -> str | None:
    """The response that an idempotency key made. Raises `KeyReused`."""
    row = connection.execute(
        select(_KEYS.c.digest, _KEYS.c.response).where(
            _KEYS.c.owner == owner.key,
            _KEYS.c.name == _name(owner, key),
            _KEYS.c.created_at > now - limits.idempotency_seconds,
        )
    ).first()
    if row is None:
        return None
    there = connection.execute(
        select(_RESPONSES.c.key).where(_RESPONSES.c.id == row.response, rows.unexpired(now))
    ).first()
    if there is None:
        return None
    if row.digest != _digest(owner, key):
        raise KeyReused
    id: str = row.response
    return id


def check_continuable(row: Any) -> None:
    """Raises `StillActive` or `NotContinuable` where a response cannot be continued."""
    if rows.is_active(row):
        raise StillActive(row.id)
    if row.status not in ("completed", "incomplete"):
        raise NotContinuable(row.id)


def _check_active(connection: Connection, owner: Owner, limits: StoreLimits) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
    active = (
        select(func.count())
        .select_from(_RESPONSES)
        .where(_RESPONSES.c.status.in_(ACTIVE), _RESPONSES.c.background)
    )
    if connection.execute(active).scalar_one() >= limits.max_active_background:
        raise TooMany("active background responses", limits.max_active_background)
    own = active.where(_RESPONSES.c.owner == owner.key)
    if connection.execute(own).scalar_one() >= limits.max_active_background_per_owner:
        raise TooMany(
            "active background responses of this key", limits.max_active_background_per_owner
        )


def _name(owner: Owner, key: Idempotency) -> bytes:
    return owner.box.digest(b"idempotency key " + key.key.encode())


def _digest(owner: Owner, key: Idempotency) -> bytes:
    return owner.box.digest(b"idempotency body " + key.digest)
