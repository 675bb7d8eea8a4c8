"""The tables. What a client sent or got is in sealed bytes; columns hold only what is searched for.

The input and output of a response are a stretch of a line. A line is a list of items that only ever
grows: who continues its end appends, who continues from before its end, or finds that another has
appended, gets a copy of the references. So a chain of turns writes only its new items, no parent is
ever walked, and whatever a response refers to stays as it was. Places of a line are never used
twice, also when their items are gone.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite counts up only what it calls INTEGER.
_Key = BigInteger().with_variant(Integer(), "sqlite")

#: Whoever has something stored. `data_key` seals it and is itself sealed; None without encryption.
#: The counts are of responses and of their own bytes.
owners = Table(
    "owners",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("data_key", LargeBinary),
    Column("num_records", BigInteger, nullable=False, default=0),
    Column("num_bytes", BigInteger, nullable=False, default=0),
    sqlite_autoincrement=True,
)

#: `length` is the next free place.
lines = Table(
    "lines",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False, index=True),
    Column("length", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

#: One item each, whoever refers to it. Either `body` or, for large ones, `blob` holds it. `digest`
#: tells whether another content is the same; `size` is in bytes.
items = Table(
    "items",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False),
    Column("id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("body", LargeBinary),
    Column("blob", Text, ForeignKey("blobs.name")),
    UniqueConstraint("owner", "id"),
    sqlite_autoincrement=True,
)

# Few have one, and each page that a commit touches costs.
Index(
    None,
    items.c.blob,
    sqlite_where=items.c.blob.is_not(None),
    postgresql_where=items.c.blob.is_not(None),
)

line_items = Table(
    "line_items",
    metadata,
    Column("line", _Key, ForeignKey("lines.key"), primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("item", _Key, ForeignKey("items.key"), nullable=False, index=True),
    sqlite_with_rowid=False,
)

#: A response's history is its line up to `own_begin`, its own input up to `input_end`, its output
#: up to `output_end`. `total_bytes` is of all of these, `size` what it alone brought. `body` is the
#: response without output; `request` what is needed to make it, while it is active.
#: `lease_until` None with an active status: it waits for a worker.
responses = Table(
    "responses",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False),
    Column("line", _Key, ForeignKey("lines.key"), nullable=False, index=True),
    Column("own_begin", BigInteger, nullable=False),
    Column("input_end", BigInteger, nullable=False),
    Column("output_end", BigInteger, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("total_bytes", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("conversation", _Key, ForeignKey("conversations.key", ondelete="SET NULL"), index=True),
    Column("model", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("request", LargeBinary),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("expires_at", Float, index=True),
    Column("used_at", Float, nullable=False),
    Column("worker", Text),
    Column("lease_until", Float),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("published", Boolean, nullable=False, default=False),
    Column("first_event", BigInteger, nullable=False, default=0),
    Column("next_event", BigInteger, nullable=False, default=0),
    Column("event_bytes", BigInteger, nullable=False, default=0),
    Column("log_until", Float),
    Column("log_kept", Boolean, nullable=False, default=True),
    Index(None, "status", "lease_until"),
    Index(None, "owner", "used_at"),
    sqlite_autoincrement=True,
)

#: Events as they are sent: those that were committed together, from number `number` on.
events = Table(
    "events",
    metadata,
    Column("response", _Key, ForeignKey("responses.key"), primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("frames", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

#: A conversation is its line up to `length`. `active` is the response being made in it.
conversations = Table(
    "conversations",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False, index=True),
    Column("line", _Key, ForeignKey("lines.key"), nullable=False, index=True),
    Column("length", BigInteger, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=False),
    Column("active", Text),
    sqlite_autoincrement=True,
)

#: `name` is a digest of the client's key, `digest` one of the body.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("owner", _Key, ForeignKey("owners.key"), primary_key=True, autoincrement=False),
    Column("name", LargeBinary, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("response", Text, nullable=False),
    Column("created_at", Float, nullable=False, index=True),
)

#: What is kept outside the database. `touched_at` is when somebody last began to write it.
blobs = Table(
    "blobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("touched_at", Float, nullable=False),
)

#: Processes that make responses. `models` is JSON.
workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("models", Text, nullable=False),
    Column("seen_at", Float, nullable=False),
)

#: Webhook calls that are still to be made. `payload` is sealed.
deliveries = Table(
    "deliveries",
    metadata,
    Column("key", _Key, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("owner", _Key, ForeignKey("owners.key"), nullable=False, index=True),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due_at", Float, nullable=False, index=True),
    sqlite_autoincrement=True,
)
