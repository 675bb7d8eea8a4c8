"""Statements that run for nearly every token or that an answer's end waits for, without what Core
costs each time.

They are written in Core and compiled once; then the driver gets their text. What they are given
must be what the driver takes as it is: numbers, strings, bytes, booleans.
"""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import Connection, Delete, Insert, Select, Update

Values = Mapping[str, Any]


class _Compiled(NamedTuple):
    sql: str
    #: The names of its parameters in order, where they have none in the text.
    order: Sequence[str] | None
    constants: Values
    #: What its rows are made into.
    row: Callable[[Iterable[Any]], Any]

    def parameters(self, values: Values) -> Any:
        if self.constants:
            values = {**self.constants, **values}
        return values if self.order is None else tuple([values[name] for name in self.order])


def raw(connection: Connection) -> Any:
    """The driver's connection."""
    return connection.connection.dbapi_connection


class Prepared:
    """A statement with parameters. No `IN` with a list."""

    def __init__(self, statement: Insert | Update | Delete | Select[Any]) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, values: Values) -> int:
        """Run it once. How many rows it changed."""
        compiled = self._for(connection)
        cursor = raw(connection).execute(compiled.sql, compiled.parameters(values))
        count: int = cursor.rowcount
        cursor.close()
        return count

    def first(self, connection: Connection, values: Values) -> Any:
        """The first row that it returns, whose fields have the names of its columns; None without
        any."""
        compiled = self._for(connection)
        cursor = raw(connection).execute(compiled.sql, compiled.parameters(values))
        row = cursor.fetchone()
        cursor.close()
        return None if row is None else compiled.row(row)

    def many(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Run it once for each of `rows`."""
        if not rows:
            return
        compiled = self._for(connection)
        parameters = [compiled.parameters(row) for row in rows]
        cursor = raw(connection).cursor()
        if len(rows) == 1:
            cursor.execute(compiled.sql, parameters[0])
        else:
            cursor.executemany(compiled.sql, parameters)
        cursor.close()

    def each(self, connection: Connection, rows: Sequence[Values]) -> list[Any]:
        """Run one that returns at most one row, once for each of `rows`; those rows, as `first` has
        them."""
        if not rows:
            return []
        compiled = self._for(connection)
        cursor = raw(connection).cursor()
        found: list[Any] = []
        if connection.dialect.name == "sqlite" or len(rows) == 1:
            for row in rows:
                cursor.execute(compiled.sql, compiled.parameters(row))
                found.append(cursor.fetchone())
        else:
            # PostgreSQL gets all of them before it answers the first.
            parameters = [compiled.parameters(row) for row in rows]
            cursor.executemany(compiled.sql, parameters, returning=True)
            found.append(cursor.fetchone())
            while cursor.nextset():
                found.append(cursor.fetchone())
        cursor.close()
        return [None if row is None else compiled.row(row) for row in found]

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        known = self._compiled.get(name)
        if known is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect)
            constants = {
                name: value for name, value in compiled.params.items() if value is not None
            }
            order = tuple(compiled.positiontup) if compiled.positional else None
            columns = self._statement.exported_columns.keys()
            row = cast(Any, namedtuple)("row", columns)
            known = _Compiled(str(compiled), order, constants, row._make)
            self._compiled[name] = known
        return known
