"""Values as families write them where it is not in JSON: as a text between marks, as Python does,
or as Gemma does. Whatever is rare is left in JSON, which all of them take as well."""

import json
from collections.abc import Mapping
from typing import Any

from antiphon.formats.dialects.dialect import GEMMA_QUOTE
from antiphon.formats.grammars.held import Document, says_only
from antiphon.formats.grammars.lark import ANYTHING, Lark, quoted, regex_of, slashed, without
from antiphon.formats.grammars.patterns import string_patterns

_WORDS = {"true": "True", "false": "False", "null": "None"}
_OF_ARRAYS = ("type", "items", "minItems", "maxItems")
#: Numbers, as JSON and Python write them alike, none of them too large for a float.
NUMBER = r"/-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?/"
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf"}


def text_until(lark: Lark, schema: Mapping[str, Any], closer: str, *, never: str = "") -> str:
    """An expression of a string as it is, up to a marker and with it. What matches the regex
    `never` is not in it."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        texts = [quoted(value) for value in values if isinstance(value, str)]
        return f"({' | '.join(texts)}) {lark.spelled(closer)}"
    patterns = [slashed(pattern) for pattern in string_patterns(schema)]
    mark = next((piece for piece in lark.pieces(closer) if piece.text.strip()), None)
    parts = patterns or [slashed(ANYTHING)]
    if mark is not None and not mark.is_token:
        word = regex_of(mark.text.strip())
        never = f"{never}|{word}" if never else word
    if never:
        parts.append(f"~{slashed(f'{ANYTHING}(?:{never}){ANYTHING}')}")
    return lark.before(lark.terminal(" & ".join(parts)), closer)


class Literals:
    """Writes rules of values inside arguments in Python's or Gemma's spelling."""

    def __init__(self, lark: Lark, schema: Mapping[str, Any], *, python: bool) -> None:
        self._lark = lark
        self._document = Document(schema)
        self._python = python
        self._known: dict[int, str] = {}

    def properties(self, schema: Any) -> list[tuple[str, str]] | None:
        """The keys of an object that has no others and may leave none out, each with an expression
        of its value. None for an object that is not so plain."""
        members = self._document.members(schema)
        if members is None:
            return None
        return [(key, self.value(inner)) for key, inner in members.items()]

    def value(self, schema: Any) -> str:
        """An expression of a value."""
        resolved = self._document.resolved(schema)
        known = self._known.get(id(resolved))
        if known is not None:
            return known
        name = self._known[id(resolved)] = self._lark.reserved()
        variants = [self._variant(one) for one in self._document.variants(resolved)]
        self._lark.define(name, " | ".join(variants))
        return name

    def _variant(self, schema: Any) -> str:
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        if kind is not None and ("enum" in schema or "const" in schema):
            values = schema.get("enum", [schema.get("const")])
            if all(isinstance(value, (str, bool)) or value is None for value in values):
                return f"({' | '.join(map(self._constant, values))})"
        elif kind == "string":
            return self._string(schema)
        elif kind == "number" and not set(schema) & _BOUNDS:
            return NUMBER
        elif kind == "boolean" and self._python:
            return '("True" | "False")'
        elif kind == "null" and self._python:
            return '"None"'
        elif kind == "object":
            members = self.properties(schema)
            if members is not None:
                pairs = [f"{self._key(key)} {value}" for key, value in members]
                return f'"{{" {self._joined(pairs)} "}}"'
        elif kind == "array" and "items" in schema and says_only(schema, *_OF_ARRAYS):
            return self._array(schema)
        return self._lark.json(self._document.alone(schema), python=self._python)

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        value = self.value(schema["items"])
        if most == 0:
            return '"[" "]"'
        rest = f"{max(least - 1, 0)},{'' if most is None else int(most) - 1}"
        items = value if most == 1 else f"{value} ({self._comma} {value}){{{rest}}}"
        return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'

    def _string(self, schema: Mapping[str, Any]) -> str:
        if self._python:
            # In single quotes as well, as Python's own writing has it.
            inner = self._lark.terminal(_in_single_quotes(schema))
            single = self._lark.terminal(f'"\'" {inner} "\'"')
            return f"{single} | {self._lark.json(self._document.alone(schema), python=True)}"
        (quote,) = GEMMA_QUOTE
        return f"{self._lark.spelled(quote)} {text_until(self._lark, schema, quote)}"

    def _constant(self, value: str | bool | None) -> str:
        if isinstance(value, str):
            if self._python:
                double = json.dumps(value, ensure_ascii=False)
                same = repr(value) == f"'{value}'" and double == f'"{value}"'
                return f"{quoted(repr(value))} | {quoted(double)}" if same else quoted(double)
            (quote,) = GEMMA_QUOTE
            return self._lark.spelled(quote) + f" {quoted(value)} " + self._lark.spelled(quote)
        word = json.dumps(value)
        return quoted(_WORDS[word] if self._python else word)

    def _key(self, key: str) -> str:
        if self._python:
            return quoted(f"{json.dumps(key, ensure_ascii=False)}: ")
        return quoted(f"{key}:")

    @property
    def _comma(self) -> str:
        return '", "' if self._python else '","'

    def _joined(self, expressions: list[str]) -> str:
        return f" {self._comma} ".join(expressions)


def _in_single_quotes(schema: Mapping[str, Any]) -> str:
    """What stands in single quotes for a string; without escapes if it has to look in some way."""
    if "pattern" in schema or "format" in schema:
        return " & ".join(map(slashed, [*string_patterns(schema), r"[^'\\\n]*"]))
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    times = f"{{{least},{'' if most is None else int(most)}}}"
    return slashed(rf"""(?:[^'\\\n]|\\[nrtbf\\'"]){times}""")


def any_python(lark: Lark) -> str:
    """An expression of any Python literal."""
    name = lark.reserved()
    string = lark.terminal(r'/"([^"\\\n]|\\[nrtbf\\"\'])*"/ | /\'([^\'\\\n]|\\[nrtbf\\"\'])*\'/')
    words = '"True" | "False" | "None"'
    pair = f"{string} /: ?/ {name}"
    lark.define(
        name,
        f'{string} | {NUMBER} | {words} | "[" ({name} (/, ?/ {name})*)? "]"'
        f' | "{{" ({pair} (/, ?/ {pair})*)? "}}"',
    )
    return name


def any_gemma(lark: Lark) -> str:
    """An expression of any value as Gemma writes it."""
    name = lark.reserved()
    (quote,) = GEMMA_QUOTE
    string = f"{lark.spelled(quote)} {lark.before(lark.terminal(without([])), quote)}"
    if not lark.is_token(quote):
        string = f"{lark.spelled(quote)} {text_until(lark, {}, quote)}"
    words = '"true" | "false" | "null"'
    pair = f'/[^:,{{}}\\[\\]<>"\\n]{{1,200}}/ ":" {name}'
    lark.define(
        name,
        f'{string} | {NUMBER} | {words} | "[" ({name} ("," {name})*)? "]"'
        f' | "{{" ({pair} ("," {pair})*)? "}}"',
    )
    return name
