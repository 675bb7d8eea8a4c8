"""How a run ends: its response becomes what it stays."""

import secrets
from typing import Any

import orjson
from sqlalchemy import Connection, bindparam, func, insert, null, select, update

from antiphon.store import schema
from antiphon.store.events import Kept
from antiphon.store.owners import Owner
from antiphon.store.prepared import Prepared
from antiphon.store.records import Append, Lease
from antiphon.store.removal import count_responses, prune_lines
from antiphon.store.session import notify
from antiphon.store.shared import Shared

_RESPONSES = schema.responses
_CONVERSATIONS = schema.conversations
#: How a response ends that its conversation goes on from.
_CONTINUABLE = ("completed", "incomplete")

#: Those of a row of `responses` that its end needs.
ROW = select(
    _RESPONSES.c.key,
    _RESPONSES.c.id,
    _RESPONSES.c.owner,
    _RESPONSES.c.fence,
    _RESPONSES.c.conversation,
    _RESPONSES.c.background,
    _RESPONSES.c.published,
    _RESPONSES.c.line,
    _RESPONSES.c.output_end,
    _RESPONSES.c.total_bytes,
    _RESPONSES.c.size,
    _RESPONSES.c.first_event,
    _RESPONSES.c.event_bytes,
    func.length(_RESPONSES.c.body).label("body_bytes"),
)
_BY_KEY = Prepared(ROW.where(_RESPONSES.c.key == bindparam("at")))
_ENDED: dict[str, Any] = {
    "status": bindparam("how"),
    "request": null(),
    "worker": null(),
    "lease_until": null(),
    "ended_at": bindparam("now"),
    "used_at": bindparam("now"),
    "expires_at": bindparam("kept_until"),
    "log_until": bindparam("told_until"),
}
_AT = update(_RESPONSES).where(_RESPONSES.c.key == bindparam("at"))
_FAIL = Prepared(_AT.values(_ENDED))
_END = Prepared(
    _AT.values(
        output_end=bindparam("end"),
        total_bytes=bindparam("num_bytes"),
        size=bindparam("own_bytes"),
        body=bindparam("sealed"),
        published=bindparam("output"),
        first_event=bindparam("kept_from"),
        next_event=bindparam("kept_to"),
        event_bytes=bindparam("kept_bytes"),
        **_ENDED,
    )
)
# Rare, and SQLite writes an index anew even if a column stays what it was.
_MOVE = Prepared(_AT.values(line=bindparam("on")))


def write_end(
    connection: Connection,
    shared: Shared,
    entry: Append,
    row: Any,
    kept: Kept,
    *,
    ready: frozenset[str],
    announce: bool,
) -> None:
    """Store the final response of a run, output included. `row` is one of `ROW`, locked, and
    `kept` what is kept of the run's events, which were written.

    `announce` has a webhook called if it is a background run. Raises `BlobsWanted` where others
    than `ready` are needed.
    """
    response = entry.end
    assert response is not None
    # As whoever accepts a response does: first the owner, then lines and conversations.
    owner = shared.owners.held(connection, entry.lease.owner, row.owner)
    output = shared.lines.extend(
        connection, owner, row.line, row.output_end, response["output"], ready=ready
    )
    body = owner.box.seal(orjson.dumps({**response, "output": []}), f"response:{row.id}")
    # Sealing adds as much to one as to the other.
    grown = output.new_bytes + len(body) - row.body_bytes
    now = shared.clock()
    _END.run(
        connection,
        {
            "at": row.key,
            "end": output.end,
            "num_bytes": row.total_bytes + output.num_bytes,
            "own_bytes": row.size + grown,
            "sealed": body,
            "output": bool(row.published) or entry.published,
            "kept_from": kept.first,
            "kept_to": kept.end,
            "kept_bytes": kept.num_bytes,
            **_ended(shared, response["status"], now),
        },
    )
    if output.line != row.line:
        _MOVE.run(connection, {"at": row.key, "on": output.line})
    count_responses(connection, owner.key, 0, grown)
    end = (output.line, output.end) if response["status"] in _CONTINUABLE else None
    _leave_conversation(connection, row, now, end)
    if announce and row.background:
        _announce(connection, owner, row.id, response["status"], now)
    _tell(connection, row)


def write_failure(connection: Connection, shared: Shared, lease: Lease) -> None:
    """End a run that cannot be read as failed, with whatever is stored of it."""
    row = _BY_KEY.first(connection, {"at": lease.key})
    if row is None or row.fence != lease.fence:
        return
    now = shared.clock()
    _FAIL.run(connection, {"at": row.key, **_ended(shared, "failed", now)})
    _leave_conversation(connection, row, now, None)
    _tell(connection, row)


def _ended(shared: Shared, status: str, now: float) -> dict[str, Any]:
    """What `_ENDED` is given."""
    kept = shared.limits.retention_seconds
    return {
        "how": status,
        "now": now,
        "kept_until": None if kept is None else now + kept,
        "told_until": now + shared.limits.event_log_seconds,
    }


def _leave_conversation(
    connection: Connection, row: Any, now: float, end: tuple[int, int] | None
) -> None:
    """Let a conversation go on, from `end` of a line or, if that is None, from where it was."""
    if row.conversation is None:
        return
    mine = (_CONVERSATIONS.c.key == row.conversation) & (_CONVERSATIONS.c.active == row.id)
    line = connection.scalar(select(_CONVERSATIONS.c.line).where(mine))
    if line is None:
        return
    values: dict[str, Any] = {"active": None, "used_at": now}
    if end is not None:
        values |= {"line": end[0], "length": end[1]}
    connection.execute(update(_CONVERSATIONS).where(mine), values)
    if end is not None and end[0] != line:
        prune_lines(connection, [line])


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


def _tell(connection: Connection, row: Any) -> None:
    notify(connection, row.id)
    if row.background:
        notify(connection, "queue")  # There is room for another.
