"""What comes of an output that is read in pieces, in a form that does not show the pieces."""

from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.parser import DialectParser
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    ReasoningDelta,
    TextDelta,
    Tool,
)

#: Its arguments are of every kind, and some of more than one.
WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "$defs": {"days": {"type": "integer"}},
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"$ref": "#/$defs/days"},
            "share": {"type": "number"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]},
        },
    },
)
NOW = Tool("get_time")
PATCH = Tool("apply_patch", custom=True)
TOOLS = (WEATHER, NOW, PATCH)

Item = tuple[Any, ...]


def items(deltas: Iterable[Delta]) -> list[Item]:
    """Texts, reasoning and calls in their order. A call has its name, its arguments, and whether it
    was ended."""
    found: list[list[Any]] = []
    calls: dict[int, list[Any]] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text) | ReasoningDelta(text):
                kind = "text" if isinstance(delta, TextDelta) else "reasoning"
                assert text
                if found and found[-1][0] == kind:
                    found[-1][1] += text
                else:
                    found.append([kind, text])
            case CallStart(number, name, custom):
                assert number not in calls
                calls[number] = ["custom" if custom else "call", name, "", False]
                found.append(calls[number])
            case CallArguments(number, text):
                assert text and not calls[number][3]
                calls[number][2] += text
            case CallEnd(number):
                assert not calls[number][3]
                calls[number][3] = True
    return [tuple(item) for item in found]


def parser(dialect: str, tools: Sequence[Tool] = TOOLS, **options: Any) -> DialectParser:
    return DialectParser(DIALECTS[dialect], tools, **options)


def parsed(dialect: str, *pieces: str, tools: Sequence[Tool] = TOOLS, **options: Any) -> list[Item]:
    """What is in an output that comes in these pieces."""
    reader = parser(dialect, tools, **options)
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    deltas += reader.finish()
    assert reader.undeclared is None
    return items(deltas)


def call(name: str, arguments: str) -> Item:
    return ("call", name, arguments, True)
