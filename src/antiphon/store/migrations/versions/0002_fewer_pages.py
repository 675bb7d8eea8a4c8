"""Events that were committed together are one row; indices that the end of a response need not
touch."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # A row of before is one of a single event.
    op.execute("ALTER TABLE events RENAME COLUMN frame TO frames")
    op.drop_index(op.f("ix_responses_worker"), "responses")
    op.drop_index(op.f("ix_items_blob"), "items")
    op.create_index(
        op.f("ix_items_blob"),
        "items",
        ["blob"],
        sqlite_where=sa.text("blob IS NOT NULL"),
        postgresql_where=sa.text("blob IS NOT NULL"),
    )
