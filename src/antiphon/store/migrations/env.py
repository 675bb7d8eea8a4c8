"""What Alembic runs the revisions in: the transaction that its caller has begun."""

from alembic import context

from antiphon.store.migrations import VERSION_TABLE
from antiphon.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
