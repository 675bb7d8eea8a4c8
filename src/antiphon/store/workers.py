"""The processes that make responses, known to all that share the database."""

from collections.abc import Callable, Sequence
from functools import partial

import orjson
from sqlalchemy import Connection, delete, insert, select, update

from antiphon.store.database import Database
from antiphon.store.records import WorkerInfo
from antiphon.store.schema import workers
from antiphon.store.session import notify

#: What tells that a worker came, went or has other models.
TOPIC = "workers"


class SqlWorkers:
    """Workers in the table `workers`. `clock` gives seconds since 1970."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def announce(self, info: WorkerInfo) -> None:
        """Say that a worker is there, and which models it has. Say it again when that changes."""
        values = {"models": orjson.dumps(list(info.models)).decode(), "seen_at": self._clock()}

        def work(connection: Connection) -> None:
            known = connection.execute(
                update(workers).where(workers.c.id == info.id).values(values)
            )
            if not known.rowcount:
                connection.execute(insert(workers).values(id=info.id, **values))
            notify(connection, TOPIC)

        await self._database.write(work)

    async def seen(self, worker: str) -> bool:
        """Say that a worker is still there. False if it is not known any more: announce it."""

        def work(connection: Connection) -> bool:
            known = connection.execute(
                update(workers).where(workers.c.id == worker).values(seen_at=self._clock())
            )
            return bool(known.rowcount)

        return await self._database.write(work)

    async def live(self, within_seconds: float) -> Sequence[WorkerInfo]:
        """Those that were seen in the last so many seconds."""
        return await self._database.read(partial(_live, self._clock() - within_seconds))

    async def remove(self, worker: str) -> None:
        """Say that a worker has gone."""

        def work(connection: Connection) -> None:
            connection.execute(delete(workers).where(workers.c.id == worker))
            notify(connection, TOPIC)

        await self._database.write(work)


def _live(since: float, connection: Connection) -> list[WorkerInfo]:
    rows = connection.execute(
        select(workers).where(workers.c.seen_at >= since).order_by(workers.c.id)
    )
    return [WorkerInfo(row.id, orjson.loads(row.models)) for row in rows]
