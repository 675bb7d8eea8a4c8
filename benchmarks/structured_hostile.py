"""Schemas and grammars that are made to be costly."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

_MOST_BYTES = 1 << 20


class Hostile(NamedTuple):
    """A name and the part of a request that holds it."""

    name: str
    body: dict[str, Any]


def hostile() -> Iterator[Hostile]:
    """Each of them once."""
    for name, schema, strict in _schemas():
        wanted = {"type": "json_schema", "name": "x", "strict": strict, "schema": schema}
        yield Hostile(name, {"text": {"format": wanted}})
    many = [_function(number) for number in range(128)]
    yield Hostile("128 strict tools of 15 properties", {"tools": many, "tool_choice": "required"})
    for syntax, name, definition in _grammars():
        tool = {
            "type": "custom",
            "name": "x",
            "format": {"type": "grammar", "syntax": syntax, "definition": definition},
        }
        yield Hostile(name, {"tools": [tool], "tool_choice": "required"})


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def _function(number: int) -> dict[str, Any]:
    properties = {f"property_{number}_{i}": {"type": "string"} for i in range(15)}
    parameters = _object(properties)
    name = f"function_{number}"
    return {"type": "function", "name": name, "strict": True, "parameters": parameters}


def _schemas() -> Iterator[tuple[str, dict[str, Any], bool]]:
    text = {"type": "string"}
    deep: dict[str, Any] = text
    for _ in range(200):
        deep = _object({"a": deep})
    yield "200 objects in one another", deep, True
    deep = text
    for _ in range(30):
        deep = _object({"a": deep})
    yield "30 objects in one another", deep, True
    doubling: dict[str, Any] = text
    for number in range(12):
        doubling = {"anyOf": [_object({f"a{number}": doubling}), _object({f"b{number}": doubling})]}
    yield "anyOf 12 deep, 4,096 leaves", _object({"a": doubling}), True
    names: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(30)
    }
    names["d30"] = text
    yield (
        "8 to the 30th ways by references",
        _object({"a": {"$ref": "#/$defs/d0"}}, **{"$defs": names}),
        True,
    )
    circle = {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}
    yield "a circle of references", _object({"a": {"$ref": "#/$defs/x"}}, **{"$defs": circle}), True
    optional = {"type": "object", "properties": {f"p{n}": text for n in range(2000)}}
    yield "2,000 optional properties", optional, False
    yield (
        "5,000 optional properties",
        {
            "type": "object",
            "properties": {f"p{n}": text for n in range(5000)},
        },
        False,
    )
    yield "2,000 properties", _object({f"p{n}": text for n in range(2000)}), True
    words = [f"value number {n}" for n in range(10_000)]
    yield "an enum of 10,000 words", _object({"a": {"enum": words}}), True
    yield (
        "a description of 1 MiB",
        _object({"a": {**text, "description": "x" * (_MOST_BYTES - 1000)}}),
        True,
    )
    wide: dict[str, Any] = {}
    while len(wide) < 4900:
        wide[f"property {len(wide)}"] = {"type": "string", "description": "x" * 130}
    yield "1 MiB of properties", _object(wide), True
    for pattern in (
        "^([a-z]{1,64} ){0,512}$",
        "^(((a{100}){100}){100}){100}$",
        "^[ab]*a[ab]{24}$",
        r"^(\p{L}{1,50}){50}$",
        "^(a+)+(?=b)$",
        "(" * 5000 + ")" * 5000,
    ):
        schema = _object({"a": {**text, "pattern": pattern}})
        yield f"pattern {pattern[:24]}", schema, True
    far = {"type": "number", "minimum": -1e300, "maximum": 1e300, "multipleOf": 1e-7}
    yield "numbers beyond all bounds", _object({"a": far}), True
    lengths = {"type": "string", "minLength": 100_000, "maxLength": 10_000_000}
    yield "a string of 100,000 to 10,000,000", _object({"a": lengths}), True
    items = {"type": "array", "items": text, "minItems": 50_000}
    yield "a list of 50,000", _object({"a": items}), True
    both = [_object({f"p{n}": {**text, "pattern": f"^x{n}"}}) for n in range(200)]
    yield "allOf 200 objects", _object({"a": {"allOf": both}}), True
    layers = json.loads("[" * 400 + "]" * 400)
    yield "an enum of 400 layers", _object({"a": {"enum": [layers]}}), True


def _grammars() -> Iterator[tuple[str, str, str]]:
    rules = "\n".join(f'r{n}: "a{n}" r{n + 1}?' for n in range(20_000))
    yield "lark", "20,000 rules of Lark", f'start: r0\n{rules}\nr20000: "end"'
    terminals = "\n".join(f"T{n}: /[a-z]{{{n % 9 + 1}}}x{n}/" for n in range(20_000))
    alternatives = " | ".join(f"T{n}" for n in range(20_000))
    yield "lark", "20,000 terminals of Lark", f"start: {alternatives}\n{terminals}"
    yield "lark", "Lark of parentheses", "start: " + "(" * 50_000 + '"a"' + ")" * 50_000
    yield "lark", "Lark that is none", "start: b\n" * 1000 + "c: ["
    yield "lark", "Lark that never ends", 'start: a\na: a "x" a | b\nb: a a'
    yield "lark", "Lark of many readings", 'start: s\ns: s s s | s s | "a" | "b"'
    yield "lark", "a literal of 200 KB", f'start: "{"x" * 200_000}"'
    yield "lark", "repetitions in one another", "start: a{0,1000}\na: b{0,1000}\nb: /x{0,1000}/"
    yield "regex", "a regex of a million ways", "((a?){100}){100}(a{100}){100}"
    yield "regex", "a regex of a wide window", "[ab]*a[ab]{300}"
    yield "regex", "a regex of 250 KB", "|".join(f"word{n}[0-9]{{3}}" for n in range(15_000))
