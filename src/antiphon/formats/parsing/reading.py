"""What a codec's reader works with, and how the beginning of a call is read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.parsing.output import OpenCall, Output
from antiphon.formats.parsing.source import Mark, Marks, Source, Steps, Tokens, pieces

#: Characters of a call's name and id at most, and what is written about it.
LONGEST_HEADER = 400


@dataclass(frozen=True, slots=True)
class Reading:
    """One output that is read. The markers of `dialect` are as they stand in the source."""

    source: Source
    output: Output
    dialect: Dialect
    tokens: Tokens


class CallReader(Protocol):
    """Reads what stands behind the mark that opens a call, or behind that of a section."""

    def read(self) -> Steps[bool]:
        """Reads a call, or all that come together; False if none began, and then it is text."""
        ...


class Header:
    """The name of a call, with what is written around it."""

    def __init__(self, reading: Reading, ends: Sequence[Mark]) -> None:
        self._reading = reading
        self._ends = Marks(ends)
        row = reading.dialect
        # A name in quotes ends with them, whatever models write behind it.
        self._quoted = row.name_end.startswith('"')
        self._prefix = "".join(pieces(row.name_open))
        self._id = re.compile(rf"\s*{re.escape(row.id_open)}\s*{row.id_pattern}\s*$")
        self._has_id = bool(row.id_open)

    def read(self) -> Steps[tuple[OpenCall, str] | None]:
        """Opens the call, with the kind of mark that ended its name; None if no name is there."""
        yield from self._reading.source.space()
        text, mark = yield from self._reading.source.before(self._ends, LONGEST_HEADER)
        name = self._name(text)
        if mark is None or not name:
            return None
        return self._reading.output.call(name), mark.kind

    def _name(self, text: str) -> str:
        if self._has_id:
            text = self._id.sub("", text, count=1)
        text = text.strip().removeprefix(self._prefix).strip()
        if self._quoted:
            text = text.partition('"')[0]
        return text
