"""What goes into a store and comes out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from antiphon.principal import Principal
from antiphon.spec.types import Response

#: An item as the API shows it, with its id.
ItemBody = Mapping[str, Any]
Order = Literal["asc", "desc"]
#: The states that pass.
ACTIVE = ("queued", "in_progress")


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
    claims it. `frames` are its first events, from number 0, stored with it, as `Append` has them.
    `model` is what it is claimed by, where the response's own `model` is an alias of it.
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
    """Events of one run to be committed. `frames` begin with number `first`; each ends with an
    empty line and has no other.

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
