"""Items too large for the database: put where blobs are before anything refers to them.

The row of a blob is written first, and says when. A sweep takes only blobs that nothing refers to
and that nobody has begun to write for a while, so what is put stays for as long as the transaction
that refers to it may take.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from antiphon.principal import Principal
from antiphon.store import schema, upserts
from antiphon.store.failures import StoreUnavailable
from antiphon.store.lines import BlobsWanted, blob_name
from antiphon.store.shared import Shared

T = TypeVar("T")
#: A transaction, given the names of the blobs that are in their place.
Work = Callable[[Connection, frozenset[str]], T]

# The first time finds out what is wanted, the second writes. More only if an owner is forgotten
# and made anew in between.
_MAX_TRIES = 4


async def write(shared: Shared, principal: Principal, work: Work[T], *, durable: bool = False) -> T:
    """Run `work` in a transaction, and again once the blobs that it wanted are there."""
    ready: frozenset[str] = frozenset()
    for _ in range(_MAX_TRIES):
        try:
            return await shared.db.write(partial(_with, work, ready), durable=durable)
        except BlobsWanted as wanted:
            ready |= await put(shared, principal, wanted.contents)
    raise StoreUnavailable("the owner of large items changes all the time")


async def put(shared: Shared, principal: Principal, contents: Sequence[bytes]) -> frozenset[str]:
    """Put contents of an owner where blobs are; their names."""
    blobs = shared.lines.blobs
    assert blobs is not None, "blobs are wanted only where there is a place for them"

    def announce(connection: Connection) -> dict[str, bytes]:
        owner = shared.owners.locked(connection, principal)
        sealed = {}
        for content in contents:
            name = blob_name(owner, content)
            sealed[name] = owner.box.seal(content, f"blob:{name}")
            values = {"owner": owner.key, "size": len(content), "touched_at": shared.clock()}
            connection.execute(
                upserts.insert(connection, schema.blobs)
                .values(name=name, **values)
                .on_conflict_do_update(index_elements=["name"], set_=values)
            )
        return sealed

    sealed = await shared.db.write(announce)
    for name, data in sealed.items():
        await asyncio.to_thread(blobs.put, name, data)
    return frozenset(sealed)


def _with(work: Work[T], ready: frozenset[str], connection: Connection) -> T:
    return work(connection, ready)
