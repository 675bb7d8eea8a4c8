"""Writes grammars in llguidance's Lark."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from antiphon.schemas import json_text

#: Blanks between parts of a JSON text, as it is usually laid out. With any at all, a small model
#: loses its way in them.
_BLANKS = " |\\n{1,2}[ \\t]{0,20}"
_OPTIONS = {"whitespace_pattern": _BLANKS, "json_allow_general_unicode_escapes": True}
#: Escapes that mean the same in a Python string.
_PYTHON_OPTIONS = {"whitespace_pattern": _BLANKS, "json_allowed_escapes": 'nrtbf\\"'}
ANYTHING = "(?s:.*)"


class Piece(NamedTuple):
    """A part of a marker: a token's content, or a text."""

    text: str
    is_token: bool


class Lark:
    """A grammar that is being written.

    `marks` are tokens by their content, which are never part of a text; `ends` those of them that
    end a turn: a marker is written only up to one. `cuts` are literals of their own in markers: of
    two literals that begin alike, one must not end where the other goes on like what follows it.
    Rules are named in the order in which they are written.
    """

    def __init__(
        self, marks: Mapping[str, int], ends: Collection[int], cuts: Iterable[str] = ()
    ) -> None:
        self._marks = marks
        self._ends = ends
        longest_first = sorted({*marks, *cuts}, key=len, reverse=True)
        self._any_mark = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._names: dict[str, str] = {}
        self._lines: list[str] = []
        self._others: dict[str, str] = {}

    # --- parts ---

    def pieces(self, marker: str) -> list[Piece]:
        """A marker in tokens and texts between them."""
        found, at = [], 0
        for mark in self._any_mark.finditer(marker):
            text = mark.group()
            found += [Piece(marker[at : mark.start()], False), Piece(text, text in self._marks)]
            at = mark.end()
        return [piece for piece in (*found, Piece(marker[at:], False)) if piece.text]

    def spelled(self, marker: str) -> str:
        """An expression of a marker; nothing is written from a token on that ends the turn."""
        return self.joined(self.pieces(marker))

    def joined(self, pieces: Iterable[Piece]) -> str:
        """An expression of pieces; nothing is written from a token on that ends the turn."""
        parts = []
        for text, is_token in pieces:
            if is_token and self._marks[text] in self._ends:
                break
            parts.append(self.token(text) if is_token else quoted(text))
        return " ".join(parts)

    def token(self, mark: str) -> str:
        """An expression of a token."""
        return f"<[{self._marks[mark]}]>"

    def is_token(self, text: str) -> bool:
        """Whether a text is one token that is a mark."""
        return text in self._marks

    def json(
        self, schema: Mapping[str, Any], *, python: bool = False, lenient: bool = False
    ) -> str:
        """An expression of JSON that fits a schema; with `python`, of what Python reads alike; if
        `lenient`, as far as it can be held to it."""
        options = _PYTHON_OPTIONS if python else _OPTIONS
        guided = {**schema, "x-guidance": {**options, "lenient": lenient}}
        return self.rule(f"%json {json_text(guided)}")

    def before(self, text: str, marker: str) -> str:
        """An expression of what a text expression allows, up to a marker and with it.

        The first text of a marker ends what comes before it. Blanks at its beginning may be left
        out where a token comes next: as far as the text allows them they are its own.
        """
        pieces = self.pieces(marker)
        if len(pieces) > 1 and not pieces[0].text.strip():
            blanks = pieces.pop(0)
            return f"{text} ({quoted(blanks.text)})? {self.joined(pieces)}"
        return self.before_pieces(text, pieces)

    def before_pieces(self, text: str, pieces: Sequence[Piece]) -> str:
        """As `before`, of a marker in pieces."""
        first, *rest = pieces
        if first.is_token:
            return f"{text} {self.joined(pieces)}"
        lazy = self.rule(f"{text} {quoted(first.text)}", lazy=True)
        return f"{lazy} {self.joined(rest)}".rstrip()

    def other(self, grammar: str) -> str:
        """An expression of a grammar of its own, written by somebody else."""
        name = self._others.setdefault(grammar, f"own_{len(self._others)}")
        return f"@{name}"

    # --- rules ---

    def rule(self, expression: str, *, lazy: bool = False) -> str:
        """The name of a rule for an expression; the same for the same one."""
        return self._named(expression, "r", "[lazy]" if lazy else "")

    def terminal(self, expression: str) -> str:
        """The name of a terminal for an expression."""
        return self._named(expression, "T", "")

    def reserved(self) -> str:
        """A name for a rule that refers to itself; `define` it."""
        name = f"r{len(self._names)}"
        self._names[name] = name
        return name

    def define(self, name: str, expression: str) -> None:
        """Write the rule of a reserved name."""
        self._lines.append(f"{name}: {expression}")

    def text(self, start: str) -> str:
        """The whole grammar."""
        lark = "\n".join([f"start: {start}", *self._lines])
        if not self._others:
            return lark
        others = [{"name": name, "lark_grammar": text} for text, name in self._others.items()]
        grammars = [{"lark_grammar": lark}, *others]
        return json.dumps({"grammars": grammars}, ensure_ascii=False)

    def _named(self, expression: str, kind: str, options: str) -> str:
        key = f"{kind}{options}: {expression}"
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{kind}{len(self._names)}"
            self._lines.append(f"{name}{options}: {expression}")
        return name


def quoted(text: str) -> str:
    """A text as a literal."""
    return json.dumps(text, ensure_ascii=False)


def slashed(pattern: str) -> str:
    """A regex between slashes."""
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            out.append(pattern[at : at + 2])
            at += 2
            continue
        out.append({"/": "\\/", "\n": "\\n", "\r": "\\r"}.get(char, char))
        at += 1
    return f"/{''.join(out)}/"


def without(texts: Iterable[str]) -> str:
    """An expression of all texts that contain none of these."""
    found = "|".join(regex_of(text) for text in texts)
    anything = slashed(ANYTHING)
    return f"{anything} & ~{slashed(f'{ANYTHING}(?:{found}){ANYTHING}')}" if found else anything


def regex_of(text: str) -> str:
    """A regex of one text."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&~-])", r"\\\1", text)
