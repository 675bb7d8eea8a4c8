"""Webhook calls that are still to be made, kept where several processes can share them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from sqlalchemy import Connection, Row, delete, func, select, update

from antiphon.store.database import Database
from antiphon.store.failures import Corrupt
from antiphon.store.schema import deliveries, owners
from antiphon.store.sealing import Sealer

_logger = structlog.get_logger("antiphon.store")

#: A call that somebody has claimed and not told of any more is due again after so long.
CLAIM_SECONDS = 60.0
#: What cannot be read is looked at again, as another key ring may be in place by then.
_UNREADABLE_SECONDS = 3600.0
#: And is not kept for longer than this.
_UNREADABLE_KEPT_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A call to be made: its id is the same at every attempt, of which this is number `attempt`.

    `type` is such as `response.completed`, `created_at` when the response ended, `queued_at` when
    the call was stored.
    """

    id: str
    type: str
    response_id: str
    created_at: int
    queued_at: float
    attempt: int


class SqlDeliveries:
    """Calls in the table `deliveries`. Whoever ends a background run writes them there.

    The payload is `{"type": "response.completed", "response_id": "resp_…", "created_at": 1}`,
    sealed at the place `delivery:<id>`.
    """

    def __init__(self, database: Database, sealer: Sealer, clock: Callable[[], float]) -> None:
        self._database = database
        self._sealer = sealer
        self._clock = clock

    async def due(self, limit: int) -> Sequence[Delivery]:
        """Claim calls that are due, longest first. Nobody else gets them for `CLAIM_SECONDS`."""
        due_at = await self.next_due()
        if due_at is None or due_at > self._clock():
            return ()  # Without a transaction that writes: this is asked often.
        return await self._database.write(lambda connection: self._claim(connection, limit))

    async def next_due(self) -> float | None:
        """When the next call is due, claimed ones included; in seconds since 1970."""
        return await self._database.read(
            lambda connection: connection.scalar(select(func.min(deliveries.c.due_at)))
        )

    async def remove(self, delivery: Delivery) -> None:
        """The call was made, or is given up."""
        remove = delete(deliveries).where(deliveries.c.id == delivery.id)
        await self._database.write(lambda connection: connection.execute(remove))

    async def retry(self, delivery: Delivery, at: float) -> None:
        """The call failed and is due again at `at`, unless somebody else has claimed it since."""
        mine = (deliveries.c.id == delivery.id) & (deliveries.c.attempts == delivery.attempt)
        postpone = update(deliveries).where(mine).values(due_at=at)
        await self._database.write(lambda connection: connection.execute(postpone))

    def _claim(self, connection: Connection, limit: int) -> Sequence[Delivery]:
        now = self._clock()
        rows = connection.execute(
            select(deliveries, owners.c.data_key)
            .join(owners, owners.c.key == deliveries.c.owner)
            .where(deliveries.c.due_at <= now)
            .order_by(deliveries.c.due_at, deliveries.c.key)
            .limit(limit)
            .with_for_update(of=deliveries, skip_locked=True)
        ).all()
        claimed = []
        for row in rows:
            this = deliveries.c.key == row.key
            try:
                delivery = self._opened(row)
            except Corrupt as error:
                _logger.error("webhook unreadable", webhook_id=row.id, reason=str(error))
                if now > row.created_at + _UNREADABLE_KEPT_SECONDS:
                    connection.execute(delete(deliveries).where(this))
                    continue
                due_at = now + _UNREADABLE_SECONDS
            else:
                claimed.append(delivery)
                due_at = now + CLAIM_SECONDS
            connection.execute(
                update(deliveries).where(this).values(due_at=due_at, attempts=row.attempts + 1)
            )
        return claimed

    def _opened(self, row: Row[Any]) -> Delivery:
        box = self._sealer.box(row.data_key)
        payload = orjson.loads(box.open(row.payload, f"delivery:{row.id}"))
        return Delivery(
            id=row.id,
            type=payload["type"],
            response_id=payload["response_id"],
            created_at=payload["created_at"],
            queued_at=row.created_at,
            attempt=row.attempts + 1,
        )
