"""A store over one database for tests, and short ways to put things there."""

import asyncio
import functools
import inspect
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select

from antiphon.principal import Principal
from antiphon.store import schema
from antiphon.store.base import Blobs
from antiphon.store.conversations import SqlConversations
from antiphon.store.database import Database
from antiphon.store.lines import Lines
from antiphon.store.owners import Owners
from antiphon.store.records import (
    Append,
    Idempotency,
    Lease,
    NewResponse,
    StoreCounters,
    StoreLimits,
)
from antiphon.store.responses import SqlResponses
from antiphon.store.retention import Sweeper
from antiphon.store.runs import SqlRuns
from antiphon.store.sealing import PlainSealer, Sealer
from antiphon.store.shared import Shared

ANNA = Principal("key_anna")
BERT = Principal("key_bert")

#: Events of every response that is put there: its first and its last.
CREATED, ENDED = b"event: created\n\n", b"event: ended\n\n"

_numbers = itertools.count()


def said(text: str, id: str | None = None, role: str = "user") -> dict[str, Any]:
    """A message item."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {
        "id": id or f"msg_{next(_numbers)}",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": [{"type": kind, "text": text}],
    }


def answered(text: str, id: str | None = None) -> dict[str, Any]:
    """A message item of the model's."""
    return said(text, id, "assistant")


def body_of(id: str, **fields: Any) -> dict[str, Any]:
    """A response, so far as the store looks into one."""
    return {
        "id": id,
        "object": "response",
        "status": "in_progress",
        "model": "toy",
        "previous_response_id": None,
        "output": [],
        "metadata": {},
        **fields,
    }


class DictBlobs:
    """Blobs in a dict, and what was done with them."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self.held[name] = data

    def get(self, name: str) -> bytes:
        return self.held[name]

    def delete(self, name: str) -> None:
        self.held.pop(name, None)


class Kept:
    """The parts of a store. `now` is its clock."""

    def __init__(
        self,
        url: str,
        *,
        limits: StoreLimits | None = None,
        sealer: Sealer | None = None,
        blobs: Blobs | None = None,
        cache_bytes: int = 2**20,
    ) -> None:
        self.now = 1_000_000.0
        self.url = url
        self.db = Database.open(url)
        self.lines = Lines(blobs, cache_bytes)
        self.counters = StoreCounters()
        self.shared = Shared(
            self.db,
            Owners(sealer or PlainSealer()),
            self.lines,
            limits or StoreLimits(),
            self.counters,
            lambda: self.now,
        )
        self.responses = SqlResponses(self.shared)
        self.conversations = SqlConversations(self.shared)
        self.runs = SqlRuns(self.shared)
        self.sweeper = Sweeper(self.shared)

    async def begin(
        self,
        owner: Principal,
        items: Sequence[Mapping[str, Any]] = (),
        *,
        previous: str | None = None,
        conversation: str | None = None,
        idempotency: Idempotency | None = None,
        background: bool = False,
        worker: str | None = "worker",
        **fields: Any,
    ) -> Lease:
        """Accept a response; its lease, made up if no worker is named."""
        id = f"resp_{next(_numbers)}"
        body = body_of(id, previous_response_id=previous, **fields)
        accepted = await self.responses.create(
            owner,
            NewResponse(
                response=body,
                items=items,
                request={"input": "…"},
                worker=worker,
                conversation=conversation,
                idempotency=idempotency,
                background=background,
                frames=(CREATED,),
            ),
        )
        return accepted.lease or Lease(accepted.existing or id, 0, owner, 0)

    async def end(
        self,
        lease: Lease,
        output: Sequence[Mapping[str, Any]] = (),
        status: str = "completed",
        **fields: Any,
    ) -> str:
        """End a run; the id of its response."""
        id = lease.response_id
        record = await self.responses.retrieve(lease.owner, id)
        end = {**record.response, "status": status, "output": list(output), **fields}
        lost = await self.runs.append(
            [Append(lease, record.next_event, (ENDED,), published=True, durable=True, end=end)]
        )
        assert not lost
        return id

    async def respond(
        self,
        owner: Principal,
        items: Sequence[Mapping[str, Any]],
        output: Sequence[Mapping[str, Any]] = (),
        **options: Any,
    ) -> str:
        """Make a whole response; its id."""
        return await self.end(await self.begin(owner, items, **options), output)

    async def count(self, table: Any, *where: Any) -> int:
        """How many rows there are."""
        query = select(func.count()).select_from(table).where(*where)
        return await self.db.read(lambda connection: connection.execute(query).scalar_one())

    async def counts(self) -> dict[str, int]:
        """How many rows each table has that holds content."""
        tables = (
            *(schema.responses, schema.conversations, schema.lines, schema.line_items),
            *(schema.items, schema.events, schema.idempotency_keys, schema.blobs),
        )
        return {table.name: await self.count(table) for table in tables}


def stored(**options: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Any]:
    """Makes a test of a coroutine function that takes `kept`, run on every kind of database.

    Options are those of `Kept`; a function stands for one made anew for each test.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
        others = [p for p in inspect.signature(test).parameters.values() if p.name != "kept"]
        url = inspect.Parameter("store_url", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([url, *others])

        @functools.wraps(test)
        def run(*args: Any, **named: Any) -> None:
            fixtures = signature.bind(*args, **named).arguments
            made = {name: value() if callable(value) else value for name, value in options.items()}
            kept = Kept(fixtures.pop("store_url"), **made)
            try:
                asyncio.run(test(kept=kept, **fixtures))
            finally:
                kept.db.close()

        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    return decorate
