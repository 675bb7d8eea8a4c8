"""Calls whose arguments come one by one between marks, as in XML.

Nothing is escaped in them. So a closing mark counts only with what has to follow it, and a value
that may be a string is told from JSON by the function's schema.
"""

from collections.abc import Callable

from antiphon.formats.dialects.dialect import INPUT_KEY
from antiphon.formats.parsing.arguments import read_arguments
from antiphon.formats.parsing.literals import python_as_json
from antiphon.formats.parsing.output import OpenCall
from antiphon.formats.parsing.reading import LONGEST_HEADER, Header, Reading
from antiphon.formats.parsing.source import Mark, Marks, Steps, escaped, is_token, pieces
from antiphon.formats.parsing.values import (
    ANY,
    NOTHING,
    parsed,
    properties_of,
    type_names,
    types_of,
)
from antiphon.turn import Tool

_STRING = frozenset({"string"})
_WHOLE = "\0"  # Stands for all arguments among the keys that were seen.
_WORDS = {"True": "true", "False": "false", "None": "null"}  # Templates print Python's words.
_WRAPPERS = ("arguments", "parameters", "input")  # Some models put everything into one argument.


def as_json(text: str, types: frozenset[str]) -> str:
    """An argument as JSON: what the text says if it may be that, else the text as a string."""
    bare = text.strip()
    bare = _WORDS.get(bare, bare)
    value = parsed(bare)
    if value is NOTHING and bare[:1] in ("[", "{"):
        bare = python_as_json(bare) or bare
        value = parsed(bare)
    wanted = value is not NOTHING and bool(type_names(value) & types)
    if isinstance(value, str) and types != ANY:
        wanted = "string" not in types  # Quotes are a part of a text.
    return bare if wanted else f'"{escaped(text)}"'


class ParamCalls:
    """Reads `NAME name_end`, arguments, `call_close`."""

    def __init__(self, reading: Reading) -> None:
        row = reading.dialect
        assert row.params is not None
        self._source = reading.source
        self._shape = row.params
        _, told, behind = row.params.key_end.rpartition("}")
        self._key_end = Marks([Mark("end", pieces(behind if told else row.params.key_end))])
        opens, closes = pieces(row.params.open), pieces(row.params.close)
        call_closes = pieces(row.call_close)
        after_close = () if is_token(closes[0]) else (opens[0], call_closes[0])
        ends = [Mark("close", closes, after_close)]
        if len(call_closes) > 1 or is_token(call_closes[0]):
            ends.append(Mark("call", call_closes))  # The argument's own mark was forgotten.
        self._value_end = Marks(ends)
        # What is left of a closing mark is no text behind a call.
        nexts = [Mark("param", opens), Mark("call", call_closes[:1])]
        self._next = Marks(nexts)
        name_end = pieces(row.name_end)
        self._header = Header(
            reading, [Mark("end", name_end)] if name_end else [*nexts, Mark("end", ("\n",))]
        )

    def read(self) -> Steps[bool]:
        """See `CallReader.read`."""
        source = self._source
        found = yield from self._header.read()
        if found is None:
            return False
        call, kind = found
        source.forget()
        if kind == "end" and (yield from source.space()) == "{":
            yield from read_arguments(source, call)  # JSON all the same.
            return True
        seen: set[str] = set()
        while kind != "call":
            if kind == "param":
                kind = yield from self._param(call, seen)
            else:
                kind = (yield from source.until(self._next, lambda text: None)).kind
        if not seen:
            call.write("{")
        if _WHOLE not in seen:
            call.write("}")
        call.end()
        return True

    def _param(self, call: OpenCall, seen: set[str]) -> Steps[str]:
        """Reads an argument, from behind its opening mark; the kind of mark that ended it."""
        source = self._source
        text, mark = yield from source.before(self._key_end, LONGEST_HEADER)
        if mark is None:
            return ""
        key, told_string = self._key(text)
        if self._shape.key_end.endswith("\n") and (yield from source.char()) == "\n":
            source.at += 1
        write = call.write
        if key in seen or _WHOLE in seen:
            write = _nowhere
        types = types_of(call.tool, key)
        if told_string and "string" in types:
            types = _STRING
        if call.tool.custom:
            key = INPUT_KEY
        begin = f'{", " if seen else "{"}"{escaped(key)}": '
        if types == _STRING:
            write(begin + '"')
            kind = yield from self._value(lambda text: write(escaped(text)))
            write('"')
        else:
            parts: list[str] = []
            kind = yield from self._value(parts.append)
            value = "".join(parts)
            if not seen and _is_whole(call.tool, key, value):
                write(value.strip())
                seen.add(_WHOLE)
            else:
                write(begin + as_json(value, types))
        seen.add(key)
        return kind

    def _value(self, write: Callable[[str], None]) -> Steps[str]:
        less = self._shape.close.startswith("\n")
        return (yield from self._source.until(self._value_end, write, less_newline=less)).kind

    def _key(self, text: str) -> tuple[str, bool]:
        """The name of an argument, and whether its value is said to be a string."""
        if not self._shape.open.endswith('"'):
            return text.strip(), False
        key, _, attributes = text.partition('"')
        told = "{string}" in self._shape.key_end and 'string="true' in attributes
        return key, told or ("{type}" in self._shape.key_end and 'type="string' in attributes)


def _is_whole(tool: Tool, key: str, value: str) -> bool:
    """Whether an argument is all arguments in one."""
    declared = properties_of(tool)
    if key not in _WRAPPERS or not declared or key in declared:
        return False
    return isinstance(parsed(value), dict)


def _nowhere(text: str) -> None:
    """Drops what is read."""
