"""Literals of Python and of Gemma, turned to JSON as they come.

Both are lists, objects, strings, numbers and constants in their own spelling. What is none of these
is taken for a string, as models leave quotes out now and then.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.formats.dialects.dialect import GEMMA_QUOTE
from antiphon.formats.parsing.arguments import read_json
from antiphon.formats.parsing.source import (
    TOKEN_CHARACTERS,
    Ended,
    Mark,
    Marks,
    Source,
    Steps,
    Tokens,
    escaped,
)
from antiphon.formats.parsing.values import NOTHING, parsed

Write = Callable[[str], None]

_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(
    r"[+-]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9_]*\.?[0-9_]*([eE][+-]?[0-9]+)?)"
)
_MOST_DIGITS = 4000  # Python reads no longer ones.
_DEEPEST = 64
_STRING = re.compile(r"([rRbBuUfF]{0,2})('''|\"\"\"|'|\")")
_MAYBE_STRING = re.compile(r"[rRbBuUfF]{0,2}('{1,2}|\"{1,2})?")
_WORD_END = re.compile(f"[,:=()\\[\\]{{}}\\s{TOKEN_CHARACTERS}]")
_GEMMA_WORD_END = re.compile(f"[,:\\[\\]{{}}<{TOKEN_CHARACTERS}]")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_CODES = {"x": 2, "u": 4, "U": 8}  # How many digits follow.
_CLOSER = {"[": "]", "(": ")", "{": "}"}


class Malformed(Exception):
    """What is no literal."""


def word_as_json(word: str) -> str:
    """A word without quotes as JSON: a constant, a number, or else a string."""
    known = _WORDS.get(word, word)
    if parsed(known) is not NOTHING:
        return known
    if len(word) < _MOST_DIGITS and _NUMBER.fullmatch(word):
        for read in (_whole_number, float):
            try:
                return json.dumps(read(word), allow_nan=False)
            except ValueError:
                continue
    return f'"{escaped(word)}"'


def _whole_number(text: str) -> int:
    return int(text, 0)


def python_as_json(text: str) -> str | None:
    """A Python literal as JSON, None if it is none."""
    source = Source()
    source.add(text)
    source.ended = True
    written: list[str] = []
    try:
        for _ in PythonLiterals(source).value(written.append):
            pass
    except (Ended, Malformed):
        return None
    if source.text[source.at :].strip() or parsed("".join(written)) is NOTHING:
        return None
    return "".join(written)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where two spellings differ: what ends a word, and whether lists may be in parentheses."""

    word_end: re.Pattern[str]
    openers: str


class _Literals:
    """Reads literals of one spelling. `Malformed` if there is none."""

    _SHAPE: _Shape

    def __init__(self, source: Source) -> None:
        self._source = source

    def value(self, write: Write, depth: int = 0) -> Steps[None]:
        """Reads a literal."""
        first = yield from self._source.space()
        if first in self._SHAPE.openers:
            if depth == _DEEPEST:
                raise Malformed
            self._source.at += 1
            if first == "{":
                yield from self._object(write, depth)
            else:
                yield from self._list(write, _CLOSER[first], depth)
        elif not (yield from self._string(write)):
            write(word_as_json((yield from self._word())))

    def word(self) -> Steps[str]:
        """Reads a name, or a key without quotes."""
        yield from self._source.space()
        return (yield from self._word())

    def skip(self, char: str) -> Steps[bool]:
        """Reads over a character if it comes next."""
        found = (yield from self._source.space()) == char
        self._source.at += found
        return found

    def key(self) -> Steps[str]:
        """Reads the key of an object, with or without quotes."""
        parts: list[str] = []
        yield from self._source.space()
        if (yield from self._string(parts.append)):
            return "".join(parts)
        return f'"{escaped((yield from self._word()))}"'

    def _string(self, write: Write) -> Steps[bool]:
        """Reads a string, if there is one, and writes it with quotes."""
        raise NotImplementedError

    def _object(self, write: Write, depth: int) -> Steps[None]:
        write("{")
        first = True
        while not (yield from self.skip("}")):
            if not first and not (yield from self.skip(",")):
                raise Malformed
            if (yield from self.skip("}")):
                break
            key = yield from self.key()
            if not (yield from self.skip(":")):
                raise Malformed
            write(("" if first else ", ") + key + ": ")
            yield from self.value(write, depth + 1)
            first = False
        write("}")

    def _list(self, write: Write, closer: str, depth: int) -> Steps[None]:
        write("[")
        first = True
        while not (yield from self.skip(closer)):
            if not first and not (yield from self.skip(",")):
                raise Malformed
            if (yield from self.skip(closer)):
                break
            if not first:
                write(", ")
            yield from self.value(write, depth + 1)
            first = False
        write("]")

    def _word(self) -> Steps[str]:
        source = self._source
        word = ""
        while True:
            found = self._SHAPE.word_end.search(source.text, source.at)
            end = found.start() if found else len(source.text)
            word += source.text[source.at : end]
            source.at = end
            if found:
                break
            yield from source.more()
        if not word.strip():
            raise Malformed
        return word.strip()


class PythonLiterals(_Literals):
    """Literals as Python writes them."""

    _SHAPE = _Shape(_WORD_END, "[({")

    def _string(self, write: Write) -> Steps[bool]:
        source = self._source
        found = None
        while True:
            maybe = _MAYBE_STRING.match(source.text, source.at)
            assert maybe is not None
            found = _STRING.match(source.text, source.at)
            if maybe.end() < len(source.text) or source.ended:
                break
            yield from source.more()
        if not found:
            return False
        prefix, quote = found.groups()
        if source.text.startswith(quote[0] * 2, found.start(2)) and len(quote) == 1:
            source.at = found.end() + 1  # An empty string, and not the beginning of a long one.
            write('""')
            return True
        source.at = found.end()
        write('"')
        yield from self._inside(write, quote, raw="r" in prefix.lower())
        write('"')
        return True

    def _inside(self, write: Write, quote: str, *, raw: bool) -> Steps[None]:
        source = self._source
        ends = Marks([Mark("end", (quote,)), Mark("escape", ("\\",))])
        while True:
            mark = yield from source.until(ends, lambda text: write(escaped(text)))
            if mark.kind == "end":
                return
            char = yield from source.char()
            source.at += 1
            if raw:
                write(escaped("\\" + char))
            elif char in _CODES:
                write(escaped((yield from self._coded(char))))
            else:
                write(escaped(_ESCAPES.get(char, "\\" + char)))

    def _coded(self, kind: str) -> Steps[str]:
        """The character of an escape that gives its code."""
        source = self._source
        digits = ""
        while len(digits) < _CODES[kind] and (yield from source.char()) in "0123456789abcdefABCDEF":
            digits += source.text[source.at]
            source.at += 1
        code = int(digits, 16) if len(digits) == _CODES[kind] else -1
        if not 0 <= code <= 0x10FFFF:
            return f"\\{kind}{digits}"
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)


class GemmaLiterals(_Literals):
    """Literals as Gemma writes them: strings between marks of their own, keys without."""

    _SHAPE = _Shape(_GEMMA_WORD_END, "[{")

    def __init__(self, source: Source, tokens: Tokens) -> None:
        super().__init__(source)
        self._quote = Marks([Mark("quote", (tokens.coded(GEMMA_QUOTE[0]),))])

    def _string(self, write: Write) -> Steps[bool]:
        if (yield from self._source.char()) == '"':  # JSON's own, by mistake.
            yield from read_json(self._source, write)
            return True
        if not (yield from self._source.mark(self._quote)):
            return False
        write('"')
        yield from self._source.until(self._quote, lambda text: write(escaped(text)))
        write('"')
        return True
