"""The JSON types that an argument may have, and those of a value."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from antiphon.turn import Tool

#: Every JSON type: where nothing is said, or more than is understood.
ANY = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})

_MOST_REFERENCES = 32  # That lead from one to the next.


def types_of(tool: Tool, key: str) -> frozenset[str]:
    """The types that an argument may have."""
    if tool.custom:
        return frozenset({"string"})
    parameters = tool.parameters or {}
    try:
        return _Types(parameters).of(properties_of(tool).get(key)) & ANY or ANY
    except RecursionError:
        return ANY


def properties_of(tool: Tool) -> Mapping[str, Any]:
    """The schemas of a function's arguments, by name."""
    parameters = tool.parameters or {}
    schema = resolved(parameters, parameters)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


#: No value.
NOTHING = object()


def parsed(text: str) -> Any:
    """The value of a JSON text, `NOTHING` if it is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NOTHING


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def type_names(value: Any) -> frozenset[str]:
    """The types that a value has."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            whole = {"integer"} if value.is_integer() else set()
            return frozenset({"number", *whole})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


class _Types:
    """The types that schemas of one document allow, as far as it is plain to see. Each schema is
    looked at once, however often it is referred to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, frozenset[str]] = {}

    def of(self, schema: Any) -> frozenset[str]:
        schema = resolved(schema, self._root)
        if not isinstance(schema, Mapping):
            return ANY
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = ANY  # What a schema that contains itself says of itself.
            known = ANY
            for stated in self._stated(schema):
                known &= stated
            self._known[id(schema)] = known
        return known

    def _stated(self, schema: Mapping[str, Any]) -> Iterator[frozenset[str]]:
        stated = schema.get("type")
        if isinstance(stated, str):
            yield _with_integers({stated})
        elif isinstance(stated, list):
            yield _with_integers({one for one in stated if isinstance(one, str)})
        if "const" in schema:
            yield type_names(schema["const"])
        if isinstance(choices := schema.get("enum"), list):
            yield frozenset().union(*map(type_names, choices))
        for word in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(word), list):
                yield frozenset().union(*map(self.of, choices))
        if isinstance(choices := schema.get("allOf"), list):
            yield from map(self.of, choices)


def _with_integers(types: set[str]) -> frozenset[str]:
    return frozenset(types | {"integer"} if "number" in types else types)


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a schema refers to inside the document, if it does; None for what is not there."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        schema = _at(root, reference[1:])
    return None


def _at(root: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        root = root.get(key) if isinstance(root, Mapping) else None
    return root
