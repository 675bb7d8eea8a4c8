"""`INSERT … ON CONFLICT`, which SQLite and PostgreSQL both have and SQL has not."""

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert(connection: Connection, table: Table) -> "postgresql.Insert | sqlite.Insert":
    """An insert with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
