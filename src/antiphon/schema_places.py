"""Where the schemas inside a JSON Schema lie."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

Schema = Mapping[str, Any]

#: Keywords whose value is a schema, a list of them, or an object of them.
ONE = (
    *("items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems"),
    *("unevaluatedProperties", "not", "if", "then", "else"),
)
LIST = ("prefixItems", "allOf", "anyOf", "oneOf")
MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class Place(NamedTuple):
    """A schema, its RFC 6901 pointer, the keyword that it is under, and how many are around it."""

    pointer: str
    schema: Any
    keyword: str = ""
    depth: int = 0


def places(schema: Schema) -> Iterator[Place]:
    """Every schema inside a schema, the outer ones first; it comes itself before them."""
    layer = [Place("", schema)]
    while layer:
        yield from layer
        layer = [below for place in layer for below in inner_places(place)]


def inner_places(place: Place) -> Iterator[Place]:
    """The schemas that are directly inside one."""
    schema, depth = place.schema, place.depth + 1
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        pointer = f"{place.pointer}/{keyword}"
        if keyword in ONE:
            yield Place(pointer, value, keyword, depth)
        elif keyword in LIST and isinstance(value, list):
            for number, one in enumerate(value):
                yield Place(f"{pointer}/{number}", one, keyword, depth)
        elif keyword in MAP and isinstance(value, Mapping):
            for name, one in value.items():
                yield Place(f"{pointer}/{_escaped(name)}", one, keyword, depth)


def target(reference: str, anchors: Mapping[str, str]) -> str | None:
    """The pointer that a `$ref` inside a schema names; None if it leads out of it."""
    if not reference.startswith("#"):
        return None
    name = unquote(reference[1:])
    return name if not name or name.startswith("/") else anchors.get(name)


def pointer_of(path: Sequence[str | int]) -> str:
    """The pointer of a path of keys and numbers."""
    return "".join(f"/{_escaped(step)}" for step in path)


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")
