"""The contract of a store: how it is asked.

Everything belongs to a principal, the first argument of every method that a client's request leads
to: what belongs to another looks exactly like what does not exist. Runs are worked on under leases;
a lease's methods need no principal, as only the store hands leases out.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from antiphon.principal import Principal
from antiphon.store.records import (
    Accepted,
    Append,
    Conversation,
    EventPage,
    Heartbeat,
    History,
    Idempotency,
    ItemBody,
    Lease,
    NewResponse,
    Order,
    Page,
    Record,
    Run,
    StoreCounters,
)


class Signals(Protocol):
    """Tells of changes, whichever process made them.

    Topics are response ids (its events or status changed), `queue` (something waits for a worker),
    `cancel` (somebody wants a run cancelled) and `workers` (one came, went or has other models).
    Wake-ups may be spurious, never lost: take a waiter first, look second, wait third.
    """

    def waiter(self, topic: str) -> Awaitable[None]:
        """Becomes done at the next change. May be cancelled or forgotten."""
        ...


class Responses(Protocol):
    """Stored responses, as clients see them."""

    async def history(self, principal: Principal, response_id: str) -> History:
        """All input and output up to the end of a response.

        Raises `NotFound`, `StillActive`, `NotContinuable` or `Corrupt`.
        """
        ...

    async def history_bytes(self, principal: Principal, response_id: str) -> int:
        """How many bytes `history` would read. Raises `NotFound`."""
        ...

    async def items(self, principal: Principal, ids: Sequence[str]) -> Sequence[ItemBody]:
        """Items of the principal by their ids, in that order. Raises `NotFound`."""
        ...

    async def create(self, principal: Principal, new: NewResponse) -> Accepted:
        """Store an accepted response, on disk before it returns if it is a background one.

        Raises `NotFound`, `StillActive` or `NotContinuable` for what it continues,
        `ConversationBusy`, `KeyReused`, `TooDeep`, `TooLarge` or `TooMany`.
        """
        ...

    async def made_with(self, principal: Principal, idempotency: Idempotency) -> str | None:
        """The id of the response that was made with an idempotency key. Raises `KeyReused`."""
        ...

    async def retrieve(self, principal: Principal, response_id: str) -> Record:
        """Raises `NotFound` or `Corrupt`."""
        ...

    async def delete(self, principal: Principal, response_id: str) -> None:
        """Forget a response and what only it needs. Raises `NotFound` or `StillActive`."""
        ...

    async def input_items(
        self,
        principal: Principal,
        response_id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        """The whole input of a response, history included. Raises `NotFound`, also for `after`."""
        ...

    async def request_cancel(self, principal: Principal, response_id: str) -> Record:
        """Note that a response is to be cancelled, if it is active, and tell its worker.

        Raises `NotFound`.
        """
        ...

    async def events(
        self, principal: Principal, response_id: str, number: int, *, limit: int = 500
    ) -> EventPage:
        """At most `limit` events from `number` on. Raises `NotFound`."""
        ...


class Runs(Protocol):
    """Stored responses, as workers see them."""

    async def claim(
        self, worker: str, models: Sequence[str] | None, held: Sequence[Lease] = ()
    ) -> Run | None:
        """Take a lease on the run that waits longest, or whose worker is gone: queued ones for one
        of `models` (None for any) first come first served. None if there is none. It is none of
        those `held`, the worker's own, which it may have been too slow to prolong.

        The status becomes `in_progress` in the store once the first events are appended.
        """
        ...

    async def claim_queued(self, worker: str, response_id: str) -> Run | None:
        """Take a lease on this run if it is queued and nobody has it, to cancel it."""
        ...

    async def append(self, batch: Sequence[Append]) -> Sequence[Lease]:
        """Commit events in one transaction and tell their readers. Returns the leases that were
        lost, of which nothing was written. Raises `StoreUnavailable`, and then nothing was."""
        ...

    async def heartbeat(self, worker: str, leases: Sequence[Lease]) -> Heartbeat:
        """Prolong a worker's leases."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a run up, so that another process may take it at once."""
        ...


class Conversations(Protocol):
    """Stored conversations. Items are listed as in `Responses.input_items`."""

    async def create(
        self, principal: Principal, metadata: Mapping[str, str], items: Sequence[ItemBody]
    ) -> Conversation: ...
    async def retrieve(self, principal: Principal, conversation_id: str) -> Conversation: ...
    async def update(
        self, principal: Principal, conversation_id: str, metadata: Mapping[str, str]
    ) -> Conversation: ...
    async def delete(self, principal: Principal, conversation_id: str) -> None:
        """Forget a conversation. Responses made in it stay whole. Raises `ConversationBusy`."""
        ...

    async def history_bytes(self, principal: Principal, conversation_id: str) -> int:
        """How many bytes `history` would read."""
        ...

    async def history(self, principal: Principal, conversation_id: str) -> History:
        """Its items as they are now. Raises `ConversationBusy` while a response is being made."""
        ...

    async def add_items(
        self, principal: Principal, conversation_id: str, items: Sequence[ItemBody]
    ) -> Sequence[ItemBody]:
        """Append items; returns them as stored. Raises `ConversationBusy`."""
        ...

    async def list_items(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page: ...
    async def item(self, principal: Principal, conversation_id: str, item_id: str) -> ItemBody: ...
    async def delete_item(
        self, principal: Principal, conversation_id: str, item_id: str
    ) -> Conversation: ...


class Blobs(Protocol):
    """Bytes by name. Names are content hashes, so putting one twice changes nothing.

    Called on the store's threads, never on the event loop's. Raises `StoreUnavailable`.
    """

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes:
        """Raises `Corrupt` if it is not there."""
        ...

    def delete(self, name: str) -> None:
        """Nothing happens if it is not there."""
        ...


@dataclass(frozen=True, slots=True)
class Store:
    """Everything that is kept, in its parts."""

    responses: Responses
    runs: Runs
    conversations: Conversations
    signals: Signals
    counters: StoreCounters = field(default_factory=StoreCounters)
