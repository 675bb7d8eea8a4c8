"""Statements that run for nearly every token, without what Core costs each time.

They are written in Core and compiled once; then the driver gets their text. What they are given
must be what the driver takes as it is: numbers, strings, bytes, booleans.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Delete, Insert, Update

Values = Mapping[str, Any]


class _Compiled(NamedTuple):
    sql: str
    #: The names of its parameters in order, where they have none in the text.
    order: Sequence[str] | None
    constants: Values

    def parameters(self, values: Values) -> Any:
        values = {**self.constants, **values}
        return values if self.order is None else tuple(values[name] for name in self.order)


class Prepared:
    """A statement with parameters, for the connections of one store. No `IN` with a list."""

    def __init__(self, statement: Insert | Update | Delete) -> None:
        self._statement = statement
        self._compiled: _Compiled | None = None

    def many(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Run it once for each of `rows`."""
        compiled = self._for(connection)
        parameters = [compiled.parameters(row) for row in rows]
        cursor = connection.connection.cursor()
        if len(rows) == 1:
            cursor.execute(compiled.sql, parameters[0])
        elif rows:
            cursor.executemany(compiled.sql, parameters)
        cursor.close()

    def each(self, connection: Connection, rows: Sequence[Values]) -> list[tuple[Any, ...] | None]:
        """Run one that returns at most one row, once for each of `rows`; those rows."""
        compiled = self._for(connection)
        cursor: Any = connection.connection.cursor()
        found: list[tuple[Any, ...] | None] = []
        if connection.dialect.name == "sqlite" or len(rows) == 1:
            for row in rows:
                cursor.execute(compiled.sql, compiled.parameters(row))
                found.append(cursor.fetchone())
        elif rows:
            # PostgreSQL gets all of them before it answers the first.
            parameters = [compiled.parameters(row) for row in rows]
            cursor.executemany(compiled.sql, parameters, returning=True)
            found.append(cursor.fetchone())
            while cursor.nextset():
                found.append(cursor.fetchone())
        cursor.close()
        return found

    def _for(self, connection: Connection) -> _Compiled:
        if self._compiled is None:
            compiled: Any = self._statement.compile(dialect=connection.dialect)
            constants = {
                name: value for name, value in compiled.params.items() if value is not None
            }
            order = tuple(compiled.positiontup) if compiled.positional else None
            self._compiled = _Compiled(str(compiled), order, constants)
        return self._compiled
