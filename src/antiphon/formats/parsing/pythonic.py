"""Calls as Python writes them, in a list."""

from collections.abc import Iterator

from antiphon.formats.dialects.dialect import INPUT_KEY, RAW_INPUT_OPEN
from antiphon.formats.parsing.arguments import read_raw_input
from antiphon.formats.parsing.literals import Malformed, PythonLiterals, word_as_json
from antiphon.formats.parsing.output import OpenCall
from antiphon.formats.parsing.reading import LONGEST_HEADER, Reading
from antiphon.formats.parsing.source import Mark, Marks, Steps, escaped, pieces
from antiphon.formats.parsing.values import properties_of
from antiphon.turn import Tool

# What ends a name, and what cannot be in one.
_NAME_END = Marks([Mark("call", ("(",)), *(Mark("none", (char,)) for char in "[]){},:;'\"\n<>")])
_NOTHING = Marks([])
_RAW = Marks([Mark("raw", pieces(RAW_INPUT_OPEN))])


class PythonicCalls:
    """Reads `[f(a=1), g()]`. Only names of tools make calls; anything else is text."""

    def __init__(self, reading: Reading) -> None:
        self._source = reading.source
        self._output = reading.output
        self._literals = PythonLiterals(reading.source)

    def read(self) -> Steps[bool]:
        """See `CallReader.read`."""
        began = False
        if not (yield from self._literals.skip("[")):
            return False
        while True:
            self._source.keep()
            name = yield from self._name()
            if name is None:
                if began:
                    self._source.back()
                return began
            if not began and self._output.declared(name) is None:
                return False
            call = self._output.call(name)
            began = True
            self._source.forget()
            try:
                yield from self._arguments(call)
            except Malformed:
                yield from self._source.until(
                    _NOTHING, lambda text: None
                )  # What it means, who knows.
            if not (yield from self._literals.skip(",")):
                yield from self._literals.skip("]")
                return True

    def _name(self) -> Steps[str | None]:
        yield from self._source.space()
        text, mark = yield from self._source.before(_NAME_END, LONGEST_HEADER)
        return text.strip() or None if mark and mark.kind == "call" else None

    def _arguments(self, call: OpenCall) -> Steps[None]:
        """Reads from behind the opening parenthesis, and ends the call. Raises `Malformed`."""
        source, literals = self._source, self._literals
        if call.tool.custom and (yield from source.space()) == "<":
            if not (yield from source.mark(_RAW)):
                raise Malformed
            yield from read_raw_input(source, call)
            if not (yield from literals.skip(")")):
                raise Malformed
            call.end()
            return
        places = _names_by_place(call.tool)
        first = True
        while not (yield from literals.skip(")")):
            if not first and not (yield from literals.skip(",")):
                raise Malformed
            if (yield from literals.skip(")")):
                break
            yield from self._argument(call, "{" if first else ", ", places)
            first = False
        call.write("{}" if first else "}")
        call.end()

    def _argument(self, call: OpenCall, before: str, places: Iterator[str]) -> Steps[None]:
        """Reads one argument; one without a name is the next of those that the function has."""
        literals = self._literals
        word = ""
        if (yield from self._source.space()) not in "[{(\"'":
            word = yield from literals.word()
            named = yield from literals.skip("=")
        else:
            named = False
        key = word if named else next(places, "")
        if not key:
            raise Malformed
        call.write(f'{before}"{escaped(INPUT_KEY if call.tool.custom else key)}": ')
        if word and not named:
            call.write(word_as_json(word))
        else:
            yield from literals.value(call.write)


def _names_by_place(tool: Tool) -> Iterator[str]:
    return iter((INPUT_KEY,) if tool.custom else tuple(properties_of(tool)))
