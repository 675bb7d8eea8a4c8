"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# SQLite counts up only what it calls INTEGER.
_Key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("key", _Key, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("data_key", sa.LargeBinary()),
        sa.Column("num_records", sa.BigInteger(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_owners")),
        sa.UniqueConstraint("id", name=op.f("uq_owners_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "blobs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_blobs_owner")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_blobs")),
    )
    op.create_index(op.f("ix_blobs_owner"), "blobs", ["owner"])
    op.create_table(
        "deliveries",
        sa.Column("key", _Key, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_deliveries_owner")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("id", name=op.f("uq_deliveries_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_deliveries_due_at"), "deliveries", ["due_at"])
    op.create_index(op.f("ix_deliveries_owner"), "deliveries", ["owner"])
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", _Key, autoincrement=False, nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_idempotency_keys_owner")),
        sa.PrimaryKeyConstraint("owner", "name", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"])
    op.create_table(
        "lines",
        sa.Column("key", _Key, nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_lines_owner")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_lines")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_lines_owner"), "lines", ["owner"])
    op.create_table(
        "conversations",
        sa.Column("key", _Key, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("line", _Key, nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.Column("active", sa.Text()),
        sa.ForeignKeyConstraint(["line"], ["lines.key"], name=op.f("fk_conversations_line")),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_conversations_owner")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_conversations")),
        sa.UniqueConstraint("id", name=op.f("uq_conversations_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_conversations_line"), "conversations", ["line"])
    op.create_index(op.f("ix_conversations_owner"), "conversations", ["owner"])
    op.create_table(
        "items",
        sa.Column("key", _Key, nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary()),
        sa.Column("blob", sa.Text()),
        sa.ForeignKeyConstraint(["blob"], ["blobs.name"], name=op.f("fk_items_blob")),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_items_owner")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_items")),
        sa.UniqueConstraint("owner", "id", name=op.f("uq_items_owner_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_items_blob"), "items", ["blob"])
    op.create_table(
        "line_items",
        sa.Column("line", _Key, autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("item", _Key, nullable=False),
        sa.ForeignKeyConstraint(["item"], ["items.key"], name=op.f("fk_line_items_item")),
        sa.ForeignKeyConstraint(["line"], ["lines.key"], name=op.f("fk_line_items_line")),
        sa.PrimaryKeyConstraint("line", "position", name=op.f("pk_line_items")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_line_items_item"), "line_items", ["item"])
    op.create_table(
        "responses",
        sa.Column("key", _Key, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", _Key, nullable=False),
        sa.Column("line", _Key, nullable=False),
        sa.Column("own_begin", sa.BigInteger(), nullable=False),
        sa.Column("input_end", sa.BigInteger(), nullable=False),
        sa.Column("output_end", sa.BigInteger(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("conversation", _Key),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("request", sa.LargeBinary()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("expires_at", sa.Float()),
        sa.Column("used_at", sa.Float(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("lease_until", sa.Float()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("first_event", sa.BigInteger(), nullable=False),
        sa.Column("next_event", sa.BigInteger(), nullable=False),
        sa.Column("event_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_until", sa.Float()),
        sa.Column("log_kept", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.key"],
            name=op.f("fk_responses_conversation"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(["line"], ["lines.key"], name=op.f("fk_responses_line")),
        sa.ForeignKeyConstraint(["owner"], ["owners.key"], name=op.f("fk_responses_owner")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_responses")),
        sa.UniqueConstraint("id", name=op.f("uq_responses_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_responses_conversation"), "responses", ["conversation"])
    op.create_index(op.f("ix_responses_expires_at"), "responses", ["expires_at"])
    op.create_index(op.f("ix_responses_line"), "responses", ["line"])
    op.create_index(op.f("ix_responses_owner_used_at"), "responses", ["owner", "used_at"])
    op.create_index(op.f("ix_responses_status_lease_until"), "responses", ["status", "lease_until"])
    op.create_index(op.f("ix_responses_worker"), "responses", ["worker"])
    op.create_table(
        "events",
        sa.Column("response", _Key, autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["response"], ["responses.key"], name=op.f("fk_events_response")),
        sa.PrimaryKeyConstraint("response", "number", name=op.f("pk_events")),
        sqlite_with_rowid=False,
    )
