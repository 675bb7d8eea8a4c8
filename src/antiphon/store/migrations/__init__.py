"""Brings a database's tables up to date, with Alembic.

An up-to-date one is told by a single query, and Alembic is not even imported.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from antiphon.errors import StartError

#: The newest revision; a test holds it against the folder `versions`.
HEAD = "0002"
#: Alembic's table, by a name that tells whose it is.
VERSION_TABLE = "antiphon_version"
FOLDER = Path(__file__).parent
#: Any number, but the same in all processes.
_LOCK = 0x616E7469


def bring_up_to_date(connection: Connection, shown: str) -> None:
    """Make the tables, or change those of an older antiphon, in one transaction that other
    processes wait for. Raises `StartError` for a database that is newer, or somebody else's.

    The connection has no transaction. `shown` names the database in messages.
    """
    revision = _revision(connection, shown)
    connection.rollback()
    if revision == HEAD:
        return
    with _alone(connection):
        if _revision(connection, shown) != HEAD:
            _upgrade(connection)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """A transaction in which no other process changes tables."""
    if connection.dialect.name == "sqlite":
        # The driver begins nothing by itself.
        connection.connection.cursor().execute("BEGIN IMMEDIATE")
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        yield


def _revision(connection: Connection, shown: str) -> str | None:
    """The database's revision, None for an empty one."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        revision = str(found.scalar_one())
        if revision > HEAD:
            raise StartError(
                f"The database {shown} was written by a newer antiphon. "
                "Install that one again, or choose another database."
            )
        return revision
    if tables:
        raise StartError(
            f"The database {shown} holds something else. Choose an empty one for antiphon."
        )
    return None


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    command.upgrade(config, "head")
