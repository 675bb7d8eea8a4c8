"""How a run ends: its response becomes what it stays."""

import secrets
from typing import Any

import orjson
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from antiphon.spec.types import Response
from antiphon.store import schema
from antiphon.store.base import Lease
from antiphon.store.owners import Owner
from antiphon.store.session import notify
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
#: How a response ends that its conversation goes on from.
_CONTINUABLE = ("completed", "incomplete")

_BY_KEY = select(_RESPONSES).where(_RESPONSES.c.key == bindparam("key"))


def write_end(
    connection: Connection,
    shared: Shared,
    lease: Lease,
    response: Response,
    *,
    ready: frozenset[str],
    announce: bool,
) -> None:
    """Store the final response of a run, output included; its lease must have been looked at.

    `announce` has a webhook called if it is a background run. Raises `BlobsWanted` where others
    than `ready` are needed.
    """
    # As whoever accepts a response does: first the owner, then lines and conversations.
    owner = shared.owners.locked(connection, lease.owner)
    row = connection.execute(_BY_KEY, {"key": lease.key}).one()
    output = shared.lines.extend(
        connection, owner, row.line, row.output_end, response["output"], ready=ready
    )
    body = owner.box.seal(orjson.dumps({**response, "output": []}), f"response:{row.id}")
    # Sealing adds as much to one as to the other.
    grown = output.new_bytes + len(body) - len(row.body)
    now = shared.clock()
    connection.execute(
        update(_RESPONSES).where(_RESPONSES.c.key == row.key),
        {
            "line": output.line,
            "output_end": output.end,
            "total_bytes": row.total_bytes + output.num_bytes,
            "size": row.size + grown,
            "body": body,
            **_ended(shared, response["status"], now),
        },
    )
    connection.execute(
        update(schema.owners).where(schema.owners.c.key == owner.key),
        {"num_bytes": schema.owners.c.num_bytes + grown},
    )
    conversation: dict[str, Any] = {"active": None, "used_at": now}
    if response["status"] in _CONTINUABLE:
        conversation |= {"line": output.line, "length": output.end}
    _leave_conversation(connection, row, conversation)
    if announce and row.background:
        _announce(connection, owner, row.id, response["status"], now)
    _tell(connection, row)


def write_failure(connection: Connection, shared: Shared, lease: Lease) -> None:
    """End a run that cannot be read as failed, with whatever is stored of it."""
    row = connection.execute(_BY_KEY, {"key": lease.key}).first()
    if row is None or row.fence != lease.fence:
        return
    now = shared.clock()
    connection.execute(
        update(_RESPONSES).where(_RESPONSES.c.key == row.key), _ended(shared, "failed", now)
    )
    _leave_conversation(connection, row, {"active": None, "used_at": now})
    _tell(connection, row)


def _ended(shared: Shared, status: str, now: float) -> dict[str, Any]:
    """What the columns of an ended response say."""
    kept = shared.limits.retention_seconds
    return {
        "status": status,
        "request": None,
        "worker": None,
        "lease_until": None,
        "ended_at": now,
        "used_at": now,
        "expires_at": None if kept is None else now + kept,
        "log_until": now + shared.limits.event_log_seconds,
    }


def _leave_conversation(connection: Connection, row: Row[Any], values: dict[str, Any]) -> None:
    if row.conversation is not None:
        connection.execute(
            update(_CONVERSATIONS)
            .where(_CONVERSATIONS.c.key == row.conversation, _CONVERSATIONS.c.active == row.id)
            .values(values)
        )


def _announce(
    connection: Connection, owner: Owner, response_id: str, status: str, now: float
) -> None:
    id = f"evt_{secrets.token_hex(16)}"
    payload = {
        "type": f"response.{status}",
        "response_id": response_id,
        "created_at": int(now),
    }
    connection.execute(
        insert(schema.deliveries),
        {
            "id": id,
            "owner": owner.key,
            "payload": owner.box.seal(orjson.dumps(payload), f"delivery:{id}"),
            "created_at": now,
            "due_at": now,
        },
    )
    notify(connection, "delivery")


def _tell(connection: Connection, row: Row[Any]) -> None:
    notify(connection, row.id)
    if row.background:
        notify(connection, "queue")  # There is room for another.
