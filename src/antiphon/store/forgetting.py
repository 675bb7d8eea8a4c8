"""Forgetting an owner: everything they stored, and last the key that sealed it."""

from collections.abc import Callable

from sqlalchemy import Connection, delete, select

from antiphon.principal import Principal
from antiphon.store import schema
from antiphon.store.base import Blobs
from antiphon.store.conversation_rows import remove_conversations
from antiphon.store.failures import NotFound, StillActive
from antiphon.store.owners import Owner
from antiphon.store.records import ACTIVE, Swept
from antiphon.store.removal import prune_lines, remove_items, remove_responses
from antiphon.store.session import notify
from antiphon.store.shared import Shared

_OWNERS = schema.owners
_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
_LINES = schema.lines
_ITEMS = schema.items
_BLOBS = schema.blobs
#: How many go in one transaction, as nobody else can write meanwhile; of blobs, which may be far
#: away, fewer.
_BATCH = 50
_BLOBS_AT_ONCE = 8


async def forget(shared: Shared, principal: Principal, *, force: bool) -> Swept:
    """Remove everything of an owner, the data key included.

    Raises `NotFound` if nothing is stored for them, and `StillActive` if a response is being made;
    with `force`, whoever makes it loses it.
    """
    owner = await shared.db.read(lambda connection: shared.owners.owner_of(connection, principal))
    if owner is None:
        raise NotFound(principal.id)
    if not force:
        await shared.db.read(lambda connection: _check_idle(connection, owner))
    forgetting = _Forgetting(shared, owner, force)
    swept = Swept(
        responses=await forgetting.repeat(forgetting.responses),
        conversations=await forgetting.repeat(forgetting.conversations),
        blobs=await forgetting.repeat(forgetting.blobs),
    )
    await shared.db.write(forgetting.rest, durable=True)
    shared.owners.drop(owner.key)
    await shared.db.checkpoint()
    return swept


class _Forgetting:
    """The steps, each a transaction that removes some and says how many."""

    def __init__(self, shared: Shared, owner: Owner, force: bool) -> None:
        self._shared = shared
        self._owner = owner
        self._force = force

    async def repeat(self, step: Callable[[Connection], int]) -> int:
        count = 0
        while removed := await self._shared.db.write(step):
            count += removed
        return count

    def responses(self, connection: Connection) -> int:
        query = select(_RESPONSES.c.key, _RESPONSES.c.id, _RESPONSES.c.status).where(
            _RESPONSES.c.owner == self._owner.key
        )
        if not self._force:
            query = query.where(_RESPONSES.c.status.not_in(ACTIVE))
        found = connection.execute(query.limit(_BATCH).with_for_update()).all()
        for row in found:
            if row.status in ACTIVE:
                notify(connection, row.id, "cancel")
        removed = remove_responses(connection, [row.key for row in found])
        self._shared.lines.forget(removed.lines)
        return removed.responses

    def conversations(self, connection: Connection) -> int:
        found = connection.execute(
            select(_CONVERSATIONS.c.key, _CONVERSATIONS.c.line)
            .where(_CONVERSATIONS.c.owner == self._owner.key)
            .limit(_BATCH)
            .with_for_update()
        ).all()
        remove_conversations(connection, {row.key: row.line for row in found})
        self._shared.lines.forget(row.line for row in found)
        return len(found)

    def blobs(self, connection: Connection) -> int:
        names = connection.execute(
            select(_BLOBS.c.name)
            .where(
                _BLOBS.c.owner == self._owner.key,
                _BLOBS.c.name.not_in(select(_ITEMS.c.blob).where(_ITEMS.c.blob.is_not(None))),
            )
            .limit(_BLOBS_AT_ONCE)
            .with_for_update()
        ).scalars()
        found = list(names)
        if found and self._shared.lines.blobs is not None:
            _delete_all(self._shared.lines.blobs, found)
        connection.execute(delete(_BLOBS).where(_BLOBS.c.name.in_(found)))
        return len(found)

    def rest(self, connection: Connection) -> None:
        """What came meanwhile, all that is left, and the owner."""
        key = self._owner.key
        connection.execute(select(_OWNERS.c.key).where(_OWNERS.c.key == key).with_for_update())
        if not self._force:
            _check_idle(connection, self._owner)
        while self.responses(connection) or self.conversations(connection):
            pass
        lines = connection.execute(select(_LINES.c.key).where(_LINES.c.owner == key)).scalars()
        prune_lines(connection, list(lines))
        items = connection.execute(select(_ITEMS.c.key).where(_ITEMS.c.owner == key)).scalars()
        remove_items(connection, list(items))
        while self.blobs(connection):
            pass
        for table in (schema.idempotency_keys, schema.deliveries):
            connection.execute(delete(table).where(table.c.owner == key))
        connection.execute(delete(_OWNERS).where(_OWNERS.c.key == key))


def _check_idle(connection: Connection, owner: Owner) -> None:
    active = connection.execute(
        select(_RESPONSES.c.id)
        .where(_RESPONSES.c.owner == owner.key, _RESPONSES.c.status.in_(ACTIVE))
        .limit(1)
    ).scalar()
    if active is not None:
        raise StillActive(active)


def _delete_all(blobs: Blobs, names: list[str]) -> None:
    for name in names:
        blobs.delete(name)
