"""What a database holds at one moment, read beside whatever servers use it."""

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import Engine, select

from antiphon.store import schema


@dataclass(frozen=True)
class Row:
    """A stored response. `frames` are its events as they are stored, `worker` is the process that
    had its lease."""

    id: str
    status: str
    published: bool
    worker: str | None
    first_event: int
    next_event: int
    frames: tuple[bytes, ...]

    @property
    def active(self) -> bool:
        return self.status in ("queued", "in_progress")

    def is_made_by(self, pid: int) -> bool:
        """Whether this process had its lease."""
        return self.worker is not None and self.worker.split(":")[1] == str(pid)


Snapshot = dict[str, Row]


def snapshot(engine: Engine) -> Snapshot:
    """All stored responses, by id."""
    c = schema.responses.c
    columns = (c.key, c.id, c.status, c.published, c.worker, c.first_event, c.next_event)
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        rows = connection.execute(select(*columns)).all()
        frames = defaultdict(list)
        for key, sealed in connection.execute(
            select(schema.events.c.response, schema.events.c.frames).order_by(
                schema.events.c.response, schema.events.c.number
            )
        ):
            frames[key].append(bytes(sealed))
    return {
        row.id: Row(
            row.id,
            row.status,
            bool(row.published),
            row.worker,
            row.first_event,
            row.next_event,
            tuple(frames[row.key]),
        )
        for row in rows
    }


def num_active(engine: Engine) -> int:
    """How many responses are not at their end."""
    query = select(schema.responses.c.id).where(
        schema.responses.c.status.in_(("queued", "in_progress"))
    )
    with engine.connect() as connection:
        return len(connection.execute(query).all())
