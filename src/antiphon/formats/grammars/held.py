"""JSON Schemas made ready for a grammar."""

from collections.abc import Iterator, Mapping
from typing import Any

from antiphon.formats.grammars.patterns import FORMAT_PATTERNS
from antiphon.schema_places import LIST, MAP, ONE
from antiphon.schemas import enforceable

_ROOT = "root"
#: A small model may go on with digits for ever.
_MOST_INTEGER = 2**53 - 1
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_MOST_REFERENCES = 64
#: Ways to go on that a grammar is allowed are used up by so many in one object.
_MOST_OPTIONAL = 200


def held(schema: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """A schema as texts can be held to it; if not `strict`, as far as they can.

    Formats become patterns: of what a grammar takes for one, not all is. Integers without bounds
    get those within which every reader of JSON knows them exactly.
    """
    found: dict[str, Any] = _with_patterns(enforceable(schema, strict=strict), strict)
    return found


def _with_patterns(schema: Any, strict: bool, *, bounded: bool = True) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ONE:
            copy[keyword] = _with_patterns(value, strict)
        elif keyword in LIST:
            # Each part of `allOf` says something of the same value.
            inner = keyword != "allOf"
            copy[keyword] = [_with_patterns(one, strict, bounded=inner) for one in value]
        elif keyword in MAP:
            copy[keyword] = {name: _with_patterns(one, strict) for name, one in value.items()}
        elif keyword in _COUNTS and isinstance(value, float):
            copy[keyword] = int(value)  # 2.0 is as good as 2.
        else:
            copy[keyword] = value
    if bounded:
        copy |= _integer_bounds(copy)
    pattern = FORMAT_PATTERNS.get(copy.get("format", ""))
    if pattern is not None:
        del copy["format"]
        whole = {"pattern": f"^(?:{pattern})$"}
        copy |= {"allOf": [*copy.get("allOf", ()), whole]} if "pattern" in copy else whole
    optional = set(copy.get("properties", ())) - set(copy.get("required", ()))
    if not strict and len(optional) > _MOST_OPTIONAL:
        for keyword in ("properties", "patternProperties", "additionalProperties", "required"):
            copy.pop(keyword, None)
    return copy


def _integer_bounds(schema: Mapping[str, Any]) -> dict[str, int]:
    """The bounds that a schema of integers leaves open."""
    kinds = schema.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if "integer" not in kinds or "number" in kinds or {"enum", "const", "allOf"} & schema.keys():
        return {}
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    bounds = {}
    if low is None and (high is None or high > -_MOST_INTEGER):
        bounds["minimum"] = -_MOST_INTEGER
    if high is None and (low is None or low < _MOST_INTEGER):
        bounds["maximum"] = _MOST_INTEGER
    return bounds


class Document:
    """A schema whose parts are looked at one by one."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._moved = _moved(root)

    def resolved(self, schema: Any) -> Any:
        """What a schema refers to, if it does nothing but refer."""
        for _ in range(_MOST_REFERENCES):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                return schema
            if not says_only(schema, "$ref"):
                return schema
            schema = self._at(schema["$ref"])
        return schema

    def variants(self, schema: Any) -> Iterator[Any]:
        """The schemas of which a value fits one, each of one type as far as that is plain."""
        schema = self.resolved(schema)
        if not isinstance(schema, Mapping):
            yield schema
            return
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and says_only(schema, keyword):
                for one in schema[keyword]:
                    yield from self.variants(one)
                return
        kinds = schema.get("type")
        if isinstance(kinds, list):
            for kind in kinds:
                yield {**schema, "type": kind}
        elif kinds is None and ("enum" in schema or "const" in schema):
            for kind, values in _by_kind(schema.get("enum", [schema.get("const")])).items():
                yield {**schema, "type": kind, "enum": values}
        else:
            yield schema

    def members(self, schema: Any) -> Mapping[str, Any] | None:
        """The properties of an object that has no others and may leave none out; None for one that
        is not so plain."""
        schema = self.resolved(schema)
        if not isinstance(schema, Mapping) or not says_only(schema, *_OF_OBJECTS):
            return None
        properties: Mapping[str, Any] = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return None
        return None if set(properties) - set(schema.get("required", ())) else properties

    def alone(self, schema: Any) -> dict[str, Any]:
        """A part as a schema by itself."""
        if schema is True or schema == {}:
            return {}
        if not isinstance(schema, Mapping):
            return {"not": {}}
        moved = _moved(schema)
        return {**moved, "$defs": {_ROOT: self._moved}} if _refers(moved) else dict(moved)

    def _at(self, reference: str) -> Any:
        found: Any = self.root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found.get(key)
        return found


def says_only(schema: Mapping[str, Any], *keywords: str) -> bool:
    """Whether a schema says nothing of a value but by these keywords."""
    return not set(schema) & _SAYING - set(keywords)


_OF_OBJECTS = ("type", "properties", "required", "additionalProperties")
#: Keywords that say something of a value.
_SAYING = frozenset(
    (
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "required"),
        *("additionalProperties", "patternProperties", "items", "prefixItems", "minItems"),
        *("maxItems", "minProperties", "maxProperties", "pattern", "format", "minLength"),
        *("maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "$ref"),
    )
)


def _by_kind(values: list[Any]) -> dict[str, list[Any]]:
    kinds: dict[str, list[Any]] = {}
    for value in values:
        match value:
            case None:
                kind = "null"
            case bool():
                kind = "boolean"
            case int() | float():
                kind = "number"
            case str():
                kind = "string"
            case list():
                kind = "array"
            case _:
                kind = "object"
        kinds.setdefault(kind, []).append(value)
    return kinds


def _moved(schema: Any) -> Any:
    """A schema whose references lead to where the whole document lies in a part of it."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in MAP:
            copy[keyword] = {name: _moved(one) for name, one in value.items()}
        elif keyword in ONE or keyword in LIST:
            copy[keyword] = _moved(value)
        elif keyword == "$ref" and (value == "#" or value.startswith("#/")):
            copy[keyword] = f"#/$defs/{_ROOT}{value[1:]}"
        else:
            copy[keyword] = value
    return copy


def _refers(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_refers, schema))
    if not isinstance(schema, Mapping):
        return False
    return "$ref" in schema or any(map(_refers, schema.values()))
