"""What a store keeps and how it is asked.

Everything belongs to a principal, the first argument of every method that a client's request leads
to: what belongs to another looks exactly like what does not exist. Runs are worked on under leases;
a lease's methods need no principal, as only the store hands leases out.

    StoreError                the store is at fault
    ├── StoreUnavailable      it cannot be reached, is full or failed; trying again may help
    └── Corrupt               what was stored cannot be read any more
    Refused                   what is asked for cannot be had
    ├── NotFound              unknown, foreign, deleted or expired
    ├── StillActive           the response is queued or running
    ├── NotContinuable        the response failed or was cancelled
    ├── ConversationBusy      another response is being made in the conversation
    ├── KeyReused             the idempotency key was used with another body
    ├── TooDeep               the chain of responses is too long
    ├── TooLarge              the response and its history are too many bytes
    └── TooMany               a limit on records, bytes or active runs is reached
    LeaseLost                 another process has taken the run over
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from antiphon.principal import Principal
from antiphon.spec.types import Response

#: An item as the API shows it, with its id.
ItemBody = Mapping[str, Any]
Order = Literal["asc", "desc"]
#: The states that pass.
ACTIVE = ("queued", "in_progress")


class StoreError(Exception):
    """The store is at fault."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is full or has failed. Trying again may help."""


class Corrupt(StoreError):
    """What was stored cannot be read any more. It is never made up again."""


class Refused(Exception):
    """What is asked for cannot be had."""


class NotFound(Refused):
    """It is unknown, belongs to another, was deleted or has expired. `what` is its id."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class StillActive(Refused):
    """The response is queued or running."""


class NotContinuable(Refused):
    """The response failed or was cancelled."""


class ConversationBusy(Refused):
    """Another response is being made in the conversation."""


class KeyReused(Refused):
    """The idempotency key was used with another body."""


class TooDeep(Refused):
    """The chain of responses is too long. `limit` is the longest there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooLarge(Refused):
    """The response and its history are too many bytes. `limit` is the most there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooMany(Refused):
    """A limit is reached: `what` names it, such as `active responses of this key`."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit


class LeaseLost(Exception):
    """Another process has taken the run over. Nothing was written."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much is kept and for how long. None is without limit; bytes are of serialised JSON.

    Past `max_records` or `max_bytes` (of all owners, and of each) the responses used longest ago
    go, never active ones. `retention_seconds` count from a response's end, `event_log_seconds`
    those that its events stay. A run keeps its last `events_per_run` events, and of them no more
    than `event_bytes_per_run`; but in any case all that were committed together last.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    owner_records: int | None = None
    owner_bytes: int | None = None
    entry_bytes: int = 64 * 2**20
    max_depth: int | None = None
    retention_seconds: float | None = 30 * 86400.0
    event_log_seconds: float = 900.0
    events_per_run: int = 4096
    event_bytes_per_run: int = 2 * 2**20
    max_active_background: int = 16
    max_active_background_per_owner: int = 4
    lease_seconds: float = 15.0
    idempotency_seconds: float = 86400.0


@dataclass(frozen=True, slots=True)
class History:
    """The items before a turn, oldest first, each once. `depth` counts the responses behind."""

    items: Sequence[ItemBody] = ()
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A key that a client chose, and a digest of the body it was sent with."""

    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A response as it is accepted.

    `response` is in progress or queued and has no output; what it continues is in it
    (`previous_response_id`) or in `conversation`, never both. `items` are the new input alone, with
    ids. An item whose id and content are stored already is the same item; if the content differs
    the new one is stored under a fresh id. `request` is what another process needs, beside the
    items, to make the response. `worker` makes it now and gets a lease; None leaves it to whoever
    claims it. `frames` are its first events, from number 0, stored with it. `model` is what it is
    claimed by, where the response's own `model` is an alias of it.
    """

    response: Response
    items: Sequence[ItemBody]
    request: Mapping[str, Any]
    worker: str | None
    conversation: str | None = None
    idempotency: Idempotency | None = None
    background: bool = False
    frames: Sequence[bytes] = ()
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write the events and the end of a run. `fence` grows whenever it changes hands;
    a write with an old one is refused."""

    response_id: str
    key: int
    owner: Principal
    fence: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a `NewResponse`: `lease` if a worker was named. `existing` is the id of the
    response that its idempotency key already made; then nothing was stored."""

    lease: Lease | None = None
    existing: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A stored response as it stands, without output while it is active.

    Events from `first_event` up to (not including) `next_event` are kept; `log_kept` is whether
    any log is. `cancel_requested` is whether somebody wants it cancelled.
    """

    response: Response
    first_event: int
    next_event: int
    log_kept: bool
    cancel_requested: bool = False

    @property
    def active(self) -> bool:
        """Whether it will still change."""
        return self.response["status"] in ACTIVE


@dataclass(frozen=True, slots=True)
class Page:
    """Some items of a list, and whether there are more."""

    items: Sequence[ItemBody]
    has_more: bool


@dataclass(frozen=True, slots=True)
class EventPage:
    """Frames of events in order, the first being number `first`. `ended` is whether the run had
    ended and no event follows the last of them.

    `first` is larger than what was asked for if older events are not kept any more.
    """

    first: int
    frames: Sequence[bytes]
    ended: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A run that a worker has claimed.

    `history` and `items` are the input, `request` as it was accepted. `published` is whether output
    was published before: then it can only be ended. `frames` is its log so far, as far as kept.
    `created_at` is when it was accepted.
    """

    lease: Lease
    response: Response
    request: Mapping[str, Any]
    history: History
    items: Sequence[ItemBody]
    first_event: int
    frames: Sequence[bytes]
    published: bool
    cancel_requested: bool
    created_at: float

    @property
    def next_event(self) -> int:
        """The number that its next event has."""
        return self.first_event + len(self.frames)


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one run to be committed. `frames` begin with number `first`.

    `published` is whether there is output among them; `durable` whether they must be on disk, not
    only safe from the death of this process. `end` is the final response, output included, if these
    are the last.
    """

    lease: Lease
    first: int
    frames: Sequence[bytes]
    published: bool = False
    durable: bool = False
    end: Response | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The fate of a worker's runs: those to be cancelled, and those it has lost, by lease."""

    cancelled: Sequence[str] = ()
    lost: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A stored conversation without its items."""

    id: str
    created_at: int
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A process that makes responses, and the models it has: mappings with `name`, `created`,
    `context_window`, `temperature`, `top_p` and `aliases`, a list. Its default comes first."""

    id: str
    models: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts of what is stored now, whoever owns it."""

    responses: int = 0
    queued: int = 0
    running: int = 0
    conversations: int = 0
    items: int = 0
    item_bytes: int = 0
    events: int = 0
    event_bytes: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    workers: int = 0


@dataclass(slots=True)
class StoreCounters:
    """What happened since the start of this process."""

    hits: int = 0
    misses: int = 0
    writes: int = 0
    evictions: int = 0
    expirations: int = 0
    rejections: int = 0
    takeovers: int = 0
    events: int = 0
    event_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    responses: int = 0
    event_logs: int = 0
    conversations: int = 0
    blobs: int = 0


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
