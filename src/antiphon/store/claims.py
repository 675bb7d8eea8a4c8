"""Runs that wait for a worker: which is next, and all that a worker needs of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import ColumnElement, Connection, or_, select, update

from antiphon.principal import Principal
from antiphon.spec.types import Response
from antiphon.store import schema
from antiphon.store.events import read_events
from antiphon.store.failures import Corrupt
from antiphon.store.items import object_of
from antiphon.store.records import ACTIVE, History, Lease, Run
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_OWNERS = schema.owners


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which run is wanted: this one if it is queued, or any for one of `models`; None for all. Not
    one of `held`, by its key."""

    models: Sequence[str] | None = None
    response_id: str | None = None
    held: Sequence[int] = ()

    def condition(self) -> ColumnElement[bool]:
        """Whether a row of `responses` is such a run."""
        c = _RESPONSES.c
        if self.response_id is not None:
            return (c.id == self.response_id) & (c.status == "queued")
        active: ColumnElement[bool] = c.status.in_(ACTIVE)
        if self.held:
            active &= c.key.not_in(self.held)
        if self.models is None:
            return active
        # To end a run that has published something no model is needed.
        return active & (c.model.in_(self.models) | c.published)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A lease that was taken. `taken_over` is whether somebody had it, and for too long."""

    lease: Lease
    taken_over: bool
    created_at: float


def claim(shared: Shared, worker: str, wanted: Wanted, connection: Connection) -> Claimed | None:
    """Take a lease on the wanted run that waits longest and that nobody has."""
    now = shared.clock()
    c = _RESPONSES.c
    row = connection.execute(
        select(c.key, c.id, c.fence, c.lease_until, c.created_at, _OWNERS.c.id.label("owner"))
        .join_from(_RESPONSES, _OWNERS, c.owner == _OWNERS.c.key)
        .where(wanted.condition(), or_(c.lease_until.is_(None), c.lease_until <= now))
        # Not by key alone: who goes by keys passes all that ever ended.
        .order_by(c.created_at, c.key)
        .limit(1)
        .with_for_update(skip_locked=True, of=_RESPONSES, key_share=True)
    ).first()
    if row is None:
        return None
    lease = Lease(row.id, row.key, Principal(row.owner), row.fence + 1)
    connection.execute(
        update(_RESPONSES).where(c.key == row.key),
        {
            "fence": lease.fence,
            "worker": worker,
            "lease_until": now + shared.limits.lease_seconds,
        },
    )
    return Claimed(lease, row.lease_until is not None, row.created_at)


def load(shared: Shared, claimed: Claimed, connection: Connection) -> Run | None:
    """The run that was claimed, None if it was lost since. Raises `Corrupt`."""
    lease = claimed.lease
    row = connection.execute(
        select(_RESPONSES).where(
            _RESPONSES.c.key == lease.key,
            _RESPONSES.c.fence == lease.fence,
            _RESPONSES.c.status.in_(ACTIVE),
        )
    ).first()
    if row is None:
        return None
    owner = shared.owners.owner_of(connection, lease.owner)
    if owner is None or row.request is None:
        raise Corrupt(f"response:{row.id} has no owner, or no request")
    box = owner.box
    place = f"response:{row.id}"
    response = object_of(box.open(row.body, place), place) | {"status": row.status}
    place = f"request:{row.id}"
    request = object_of(box.open(row.request, place), place)
    items = shared.lines.read_line(connection, row.line, 0, row.input_end, owner)
    page = read_events(connection, row, 0, row.next_event, box)
    return Run(
        lease=lease,
        response=cast(Response, response),
        request=request,
        history=History(items[: row.own_begin], row.depth),
        items=items[row.own_begin :],
        first_event=page.first,
        frames=page.frames,
        published=row.published,
        cancel_requested=row.cancel_requested,
        created_at=row.created_at,
    )
