"""The calls of a turn, as a dialect spells them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from antiphon.formats.dialects.dialect import (
    GEMMA_QUOTE,
    INPUT_KEY,
    RAW_INPUT_CLOSE,
    RAW_INPUT_OPEN,
    Dialect,
    Params,
)
from antiphon.formats.grammars.held import Document, held
from antiphon.formats.grammars.lark import Lark, Piece, quoted, regex_of, slashed
from antiphon.formats.grammars.values import Literals, any_gemma, any_python, text_until
from antiphon.turn import TextGrammar, Tool

_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
_INPUT = {
    "type": "object",
    "properties": {INPUT_KEY: {"type": "string"}},
    "required": [INPUT_KEY],
    "additionalProperties": False,
}
_TYPES = ("string", "number", "boolean", "null", "object", "array")
_ANY_KEY = r'/[^<>"=(){},:\[\]\s][^<>"=(){},:\[\]\n]{0,100}/'
_ANY_WORD = r"/[A-Za-z_][A-Za-z0-9_]{0,100}/"


class Unenforceable(Exception):
    """The arguments of a strict function cannot be held to their schema as the model's family
    writes them: the root of the schema is no plain object."""

    def __init__(self, tool: str) -> None:
        super().__init__(f"the parameters of {tool} are not a plain object")
        self.tool = tool


class Calls:
    """Writes the rules of calls of `tools`: one, or with `several` any number.

    A call goes on to the end of the turn: what closes it and what comes behind it are a part of
    it. Where a custom tool has a grammar of its own, the turn may end with its input as well.
    Raises `Unenforceable`.
    """

    def __init__(
        self, lark: Lark, dialect: Dialect, tools: Sequence[Tool], *, several: bool
    ) -> None:
        self._lark = lark
        self._row = dialect
        bracket = "[" if dialect.array else ""
        self.section = dialect.section_open
        #: What the first call begins with behind `section`, up to its name.
        self.opening = bracket + dialect.before_name
        self._more = lark.reserved()
        #: All from the name of the first call on.
        self.named = lark.rule(" | ".join(map(self._call, tools)))
        #: All from `opening` on. The name is in one piece with it: where a text may begin alike,
        #: only the name tells that it is none.
        self.whole = lark.rule(" | ".join(self._call(tool, self.opening) for tool in tools))
        lark.define(self._more, self._after(several=several and dialect.parallel))

    def _after(self, *, several: bool) -> str:
        row, lark = self._row, self._lark
        end = lark.spelled(("]" if row.array else "") + row.section_close)
        if row.bare:
            # Only where it was opened; which of both it was is not told apart.
            close = lark.spelled(row.section_close)
            end = ('"]" ' if row.array else "") + (f"({close})?" if close else "")
        if not end.strip():
            end = '("\\n")?' if row.separator.startswith("\n") else '""'
        if not several:
            return end
        return f"{lark.spelled(row.separator + row.before_name)} {self.named} | {end}"

    def _call(self, tool: Tool, before: str = "") -> str:
        row, lark = self._row, self._lark
        escaped = row.codec == "envelope" or row.before_name.endswith('"')
        name = json.dumps(tool.name, ensure_ascii=False)[1:-1] if escaped else tool.name
        pieces = lark.pieces(before)
        if pieces and not pieces[-1].is_token:
            name = pieces.pop().text + name
        begin = self._with_id(name) if row.id_open else self._joined(name, row.after_name)
        begin = f"{lark.joined(pieces)} {begin}".lstrip()
        if tool.custom and tool.grammar is not None:
            opened, closed = self._around_input()
            own = lark.other(own_grammar(tool.grammar))
            rest = f"{closed} {lark.spelled(row.after_arguments)} {self._more}"
            if row.codec == "gemma":
                rest = f'{closed} "}}" {lark.spelled(row.after_arguments)} {self._more}'
            return f"{begin} {opened} {own} ({rest})?"
        end = f"{lark.spelled(row.after_arguments)} {self._more}"
        return f"{begin} {self._arguments(tool)} {end}"

    def _joined(self, name: str, behind: str) -> str:
        """A name and what stands behind it. A name is a text, whatever is in it."""
        pieces = self._lark.pieces(behind)
        if pieces and not pieces[0].is_token:
            name += pieces.pop(0).text
        return f"{quoted(name)} {self._lark.joined(pieces)}".rstrip()

    def _with_id(self, name: str) -> str:
        row, lark = self._row, self._lark
        id_ = slashed(row.id_pattern.replace("+", "{1,6}"))
        return f"{self._joined(name, row.id_open)} {id_} {lark.spelled(row.after_name)}"

    def _around_input(self) -> tuple[str, str]:
        """What stands before and behind the input of a custom tool that has a grammar."""
        row, lark = self._row, self._lark
        match row.codec:
            case "params":
                assert row.params is not None
                told = _key_end(row.params, "string")
                return lark.spelled(row.params.open + INPUT_KEY + told), lark.spelled(
                    row.params.close
                )
            case "gemma":
                (quote,) = GEMMA_QUOTE
                return f"{quoted(f'{{{INPUT_KEY}:')} {lark.spelled(quote)}", lark.spelled(quote)
            case _:
                return quoted(RAW_INPUT_OPEN), quoted(RAW_INPUT_CLOSE)

    # --- arguments ---

    def _arguments(self, tool: Tool) -> str:
        schema: Mapping[str, Any] | None = None
        if tool.custom:
            schema = _INPUT
        elif tool.parameters is None:
            schema = _NOTHING
        elif tool.strict:
            schema = held(tool.parameters, strict=True)
        match self._row.codec:
            case "params":
                return self._params(tool, schema)
            case "pythonic":
                return self._pythonic(tool, schema)
            case "gemma":
                return self._gemma(schema)
            case _:
                return self._lark.json({"type": "object"} if schema is None else schema)

    def _params(self, tool: Tool, schema: Mapping[str, Any] | None) -> str:
        params = self._row.params
        assert params is not None
        if schema is None:
            values = [
                f"{self._lark.joined(self._lark.pieces(params.open))} {_ANY_KEY} "
                f"{self._lark.spelled(_key_end(params, kind))} {self._until_close({})}"
                for kind in _told_kinds(params)
            ]
            return f"({' | '.join(values)})*"
        document = Document(schema)
        members = document.members(schema)
        if members is None:
            raise Unenforceable(tool.name)
        return " ".join(self._param(key, inner, document) for key, inner in members.items())

    def _param(self, key: str, schema: Any, document: Document) -> str:
        params, lark = self._row.params, self._lark
        assert params is not None
        ways = []
        for one in document.variants(schema):
            kind = one.get("type", "object") if isinstance(one, Mapping) else "object"
            kind = "number" if kind == "integer" else kind
            begin = lark.spelled(params.open)
            begin = f"{begin} {self._joined(key, _key_end(params, kind))}"
            if kind == "string":
                ways.append(f"{begin} {self._until_close(one)}")
            else:
                value = lark.json(document.alone(one))
                ways.append(f"{begin} {value} {lark.spelled(params.close)}")
        return f"({' | '.join(ways)})"

    def _until_close(self, schema: Mapping[str, Any]) -> str:
        """A string and what closes it. Neither that nor the end of a call may be in it."""
        params, row = self._row.params, self._row
        assert params is not None
        ends = [piece for piece in self._lark.pieces(row.call_close) if piece.text.strip()]
        never = ""
        if len(row.call_close.split()) > 1 and not any(piece.is_token for piece in ends):
            never = r"\s*".join(map(regex_of, row.call_close.split()))
        return text_until(self._lark, schema, params.close, never=never)

    def _pythonic(self, tool: Tool, schema: Mapping[str, Any] | None) -> str:
        if schema is None:
            pair = f'{_ANY_WORD} "=" {any_python(self._lark)}'
            return f"({pair} (/, ?/ {pair})*)?"
        literals = Literals(self._lark, schema, python=True)
        members = literals.properties(schema)
        if members is None:
            raise Unenforceable(tool.name)
        pairs = [f"{quoted(f'{key}=')} {value}" for key, value in members]
        return ' ", " '.join(pairs) or '""'

    def _gemma(self, schema: Mapping[str, Any] | None) -> str:
        if schema is None:
            pair = f'{_ANY_KEY} ":" {any_gemma(self._lark)}'
            return f'"{{" ({pair} ("," {pair})*)? "}}"'
        return Literals(self._lark, schema, python=False).value(schema)


def own_grammar(grammar: TextGrammar) -> str:
    """A custom tool's grammar, as one that may be compiled by itself."""
    if grammar.syntax == "regex":
        return f"start: {slashed(grammar.definition)}"
    return grammar.definition


def input_close(dialect: Dialect) -> str:
    """What closes a call of a custom tool that has a grammar, behind its input. Where a turn ends
    inside of one, it has ended with the input: this comes before the token that ended it."""
    match dialect.codec:
        case "params":
            assert dialect.params is not None
            return dialect.params.close + dialect.call_close
        case "gemma":
            return GEMMA_QUOTE[0] + "}" + dialect.call_close
        case "pythonic":
            return RAW_INPUT_CLOSE + ")"
        case _:
            return RAW_INPUT_CLOSE


def first_pieces(lark: Lark, opening: str) -> list[Piece]:
    """The pieces of a marker, the first of them no longer than what tells it from a text."""
    pieces = lark.pieces(opening)
    first = pieces[0]
    word = first.text.split(maxsplit=1)[0] if first.text.strip() else first.text
    if first.is_token or word == first.text:
        return pieces
    return [Piece(word, False), Piece(first.text[len(word) :], False), *pieces[1:]]


def _key_end(params: Params, kind: str) -> str:
    told = params.key_end.replace("{string}", "true" if kind == "string" else "false")
    return told.replace("{type}", kind)


def _told_kinds(params: Params) -> Iterator[str]:
    """A type for each way to write what stands behind a key."""
    seen = set()
    for kind in _TYPES:
        told = _key_end(params, kind)
        if told not in seen:
            seen.add(told)
            yield kind
