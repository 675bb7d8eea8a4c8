"""JSON Schemas that clients send: what is taken, and whether a text fits one."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import jsonschema_rs
import orjson

from antiphon.schema_places import LIST, MAP, ONE, Place, Schema, places, pointer_of, target

#: Those whose schemas are of the same value as the schema around them.
_SAME_VALUE = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}
#: Keywords that no grammar can hold a text to.
UNENFORCEABLE = frozenset(
    (
        *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems"),
        *("propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
        *("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
    )
)
FORMATS = frozenset(
    (
        *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6"),
        *("uuid", "uri"),
    )
)
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MOST_LAYERS = 512  # Of JSON; what is deeper is not looked at.
_BACKTRACKS = 100_000
_LONGEST_REASON = 300


class InvalidSchema(Exception):
    """A schema is not taken, because of `keyword` in the schema at `pointer`, an RFC 6901 pointer
    ('' for the whole); an empty `keyword` blames no single one."""

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        super().__init__(f"At '{pointer}': {reason}" if pointer else reason)
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """How large a schema may be: bytes of JSON, schemas inside one another, properties and values
    of enums in all."""

    num_bytes: int = 256 * 1024
    depth: int = 32
    properties: int = 2000
    enum_values: int = 10_000


def check_schema(schema: Schema, *, strict: bool, limits: SchemaLimits = SchemaLimits()) -> None:
    """Refuse a schema that is none of Draft 2020-12, leads outside itself or is too large.

    If `strict`, also one that a grammar cannot enforce as far as can be told by its keywords, or
    with an object that is open or has a property that is not required, or whose root is no object.
    Raises `InvalidSchema`. For a schema of 1 MiB it takes some 100 ms.
    """
    check_size(schema, limits)
    _check_draft(schema)
    found = list(places(schema))
    _check_counts(found, limits)
    by_pointer = {place.pointer: place.schema for place in found}
    _check_references(found, by_pointer)
    if strict:
        _check_root(by_pointer)
        for place in found:
            _check_strict(place.pointer, place.schema)


def why_not_taken(schema: Schema, *, strict: bool, limits: SchemaLimits) -> InvalidSchema | None:
    """What `check_schema` or `check_patterns` says of a schema; None if it is taken."""
    try:
        check_schema(schema, strict=strict, limits=limits)
        check_patterns(schema)
    except InvalidSchema as error:
        # Anew, as what was raised leads to this frame, and from it to what waits for it.
        return InvalidSchema(error.pointer, error.keyword, error.reason)
    return None


def check_size(schema: Schema, limits: SchemaLimits) -> str:
    """A schema as JSON. Raises `InvalidSchema` for one that is too large or nested too deeply."""
    try:
        written = orjson.dumps(schema)  # Stops at half as many layers.
    except TypeError:
        if _layers(schema) > _MOST_LAYERS:
            reason = f"it is nested in more than {_MOST_LAYERS} layers"
            raise InvalidSchema("", "", reason) from None
        written = json_text(schema).encode("utf-8", "surrogatepass")
    if len(written) > limits.num_bytes:
        reason = f"it has {len(written)} bytes, and {limits.num_bytes} are allowed"
        raise InvalidSchema("", "", reason)
    return written.decode("utf-8", "surrogatepass")


def enforceable(schema: Schema, *, strict: bool = True) -> dict[str, Any]:
    """A copy without keywords that change nothing, which a grammar would stumble over; if not
    `strict` also without those that cannot be enforced."""
    copy: dict[str, Any] = _trimmed(schema, strict)
    copy.pop("x-guidance", None)  # Options of the grammar engine are not the client's to set.
    return copy


def blame(schema: Schema, message: str) -> InvalidSchema:
    """The error that names the place a grammar engine's message is about, as far as it can be
    told."""
    if "oneOf" in message:
        keywords = ["oneOf"]
    elif "min/maxProperties" in message:
        keywords = ["minProperties", "maxProperties"]
    elif "patternProperty" in message:
        keywords = ["patternProperties"]
    elif "regex" in message:
        keywords = ["pattern", "patternProperties"]
    else:
        keywords = ["multipleOf"] if "multipleOf" in message else []
    found = [
        (place.pointer, keyword)
        for place in places(schema)
        for keyword in keywords
        if _has(place.schema, keyword) and _told(place.schema[keyword], message)
    ]
    pointer, keyword = found[0] if found else ("", "")
    reason = message.splitlines()[0].rstrip(":") if message else "it cannot be enforced"
    reason = reason[:_LONGEST_REASON]
    return InvalidSchema(pointer, keyword, f"'{keyword}': {reason}" if keyword else reason)


def check_patterns(schema: Schema) -> None:
    """Refuse a schema with a pattern that cannot be read, or only with too much memory.

    Raises `InvalidSchema`. It may take any time, as a pattern can be written to.
    """
    for place in places(schema):
        if not isinstance(place.schema, Mapping):
            continue
        found = [("pattern", place.schema.get("pattern"))]
        found += [("patternProperties", name) for name in place.schema.get("patternProperties", ())]
        for keyword, pattern in found:
            if not isinstance(pattern, str):
                continue
            try:
                _validator({"pattern": pattern})
            except (ValueError, jsonschema_rs.ValidationError):
                reason = f"'{keyword}': this is no pattern that can be used: {pattern}"
                raise InvalidSchema(place.pointer, keyword, reason[:_LONGEST_REASON]) from None


def validate_answer(text: str, schema: Schema) -> str | None:
    """What is wrong with a JSON text by a schema of Draft 2020-12, formats included; None if
    nothing is. The schema has been through `check_schema`."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"[:_LONGEST_REASON]
    try:
        _validator(schema).validate(value)
    except jsonschema_rs.ValidationError as error:
        place = pointer_of(error.instance_path)
        reason = f"at '{place}': {error.message}" if place else error.message
        return reason[:_LONGEST_REASON]
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return f"it cannot be compared with its schema: {error}"[:_LONGEST_REASON]
    return None


def _validator(schema: Schema) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        {keyword: inner for keyword, inner in schema.items() if keyword != "$schema"},
        validate_formats=True,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        offline=True,
    )


def json_text(value: Any) -> str:
    """A value as JSON. Unlike `json.dumps`, it does not hold up other threads for long."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # Nested deeply, numbers beyond 64 bits, or halves of surrogate pairs.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- what is taken ---


def _layers(value: Any) -> int:
    """How deep objects and lists are nested, counted no further than one beyond what is allowed."""
    layer, number = [value], 0
    while layer and number <= _MOST_LAYERS:
        below: list[Any] = []
        for one in layer:
            if isinstance(one, Mapping):
                below += one.values()
            elif isinstance(one, list):
                below += one
        layer, number = below, number + 1
    return number


def _check_draft(schema: Schema) -> None:
    try:
        jsonschema_rs.meta.validate({**schema, "$schema": _DRAFT})
    except jsonschema_rs.ValidationError as error:
        # The path may lead on from the keyword into its value.
        path = list(error.instance_path)
        known = {place.pointer for place in places(schema)}
        end = next((n for n in range(len(path), 0, -1) if pointer_of(path[: n - 1]) in known), 0)
        keyword = str(path[end - 1]) if end else ""
        reason = f"'{keyword}': {error.message}" if keyword else error.message
        pointer = pointer_of(path[: max(end - 1, 0)])
        raise InvalidSchema(pointer, keyword, reason[:_LONGEST_REASON]) from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema("", "", str(error)[:_LONGEST_REASON]) from None


def _check_counts(found: list[Place], limits: SchemaLimits) -> None:
    properties = values = 0
    for pointer, schema, _, depth in found:
        if depth > limits.depth:
            reason = f"there are more than {limits.depth} schemas inside one another"
            raise InvalidSchema(pointer, "", reason)
        if not isinstance(schema, Mapping):
            continue
        properties += len(schema.get("properties", ()))
        values += len(schema.get("enum", ()))
        if properties > limits.properties:
            reason = f"there are more than {limits.properties} properties"
            raise InvalidSchema(pointer, "properties", reason)
        if values > limits.enum_values:
            reason = f"there are more than {limits.enum_values} values of enums"
            raise InvalidSchema(pointer, "enum", reason)


def _check_references(found: list[Place], by_pointer: Mapping[str, Any]) -> None:
    anchors = {p.schema["$anchor"]: p.pointer for p in found if _has(p.schema, "$anchor")}
    leads: dict[str, list[str]] = {place.pointer: [] for place in found}
    for pointer, schema, keyword, _ in found:
        if keyword in _SAME_VALUE:
            outer = pointer.rsplit("/", 2 if keyword in LIST or keyword in MAP else 1)[0]
            leads[outer].append(pointer)
        if pointer and _has(schema, "$id"):
            raise InvalidSchema(pointer, "$id", "'$id' is allowed at the root alone")
        if _has(schema, "$ref"):
            place = target(schema["$ref"], anchors)
            if place is None or place not in by_pointer:
                reason = f"'$ref' leads to no schema in this one: {schema['$ref']}"
                raise InvalidSchema(pointer, "$ref", reason[:_LONGEST_REASON])
            leads[pointer].append(place)
    _check_no_circle(leads)


def _check_no_circle(leads: Mapping[str, list[str]]) -> None:
    """Refuse a schema of a value that is defined by itself, of the same value."""
    done: set[str] = set()
    for start in leads:
        path: list[tuple[str, Iterator[str]]] = []
        on_path: set[str] = set()
        step: str | None = start
        while step is not None or path:
            if step is not None and step not in done:
                if step in on_path:
                    raise InvalidSchema(step, "$ref", "'$ref' leads back to the same value")
                on_path.add(step)
                path.append((step, iter(leads.get(step, ()))))
            step = next(path[-1][1], None) if path else None
            if step is None and path:
                left, _ = path.pop()
                on_path.discard(left)
                done.add(left)


# --- what is strict ---


def _check_root(by_pointer: Mapping[str, Any]) -> None:
    root = by_pointer[""]
    while "type" not in root and "$ref" in root:  # In no circle, as was seen before.
        found = by_pointer.get(target(root["$ref"], {}) or "")
        if not isinstance(found, Mapping) or found is root:
            break
        root = found
    if root.get("type") != "object":
        raise InvalidSchema("", "type", "the root of a strict schema has the 'type' object")


def _check_strict(pointer: str, schema: Any) -> None:
    if not isinstance(schema, Mapping):
        return
    for keyword in schema:
        if keyword in UNENFORCEABLE and not _idle(schema, keyword):
            raise InvalidSchema(pointer, keyword, f"'{keyword}' cannot be enforced")
    if "format" in schema and schema["format"] not in FORMATS:
        reason = f"the 'format' {schema['format']} cannot be enforced"
        raise InvalidSchema(pointer, "format", reason[:_LONGEST_REASON])
    kinds = schema.get("type", ())
    if "object" not in ([kinds] if isinstance(kinds, str) else kinds) and (
        "properties" not in schema
    ):
        return
    if schema.get("additionalProperties") is not False:
        reason = "a strict schema has 'additionalProperties': false in every object"
        raise InvalidSchema(pointer, "additionalProperties", reason)
    missing = sorted(set(schema.get("properties", ())) - set(schema.get("required", ())))
    if missing:
        reason = f"a strict schema has every property in 'required', and {missing[0]} is not"
        raise InvalidSchema(pointer, "required", reason[:_LONGEST_REASON])


def _idle(schema: Schema, keyword: str) -> bool:
    """Whether a keyword changes nothing where it stands."""
    value = schema[keyword]
    match keyword:
        case "uniqueItems":
            return value is False
        case "minContains" | "maxContains":
            return "contains" not in schema
        case "if":
            return "then" not in schema and "else" not in schema
        case "then" | "else":
            return "if" not in schema
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            return not value
        case "propertyNames" | "unevaluatedItems" | "unevaluatedProperties":
            return value is True or value == {}
        case _:
            return False


def _trimmed(schema: Any, strict: bool) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in UNENFORCEABLE and (not strict or _idle(schema, keyword)):
            continue
        if keyword in ONE:
            copy[keyword] = _trimmed(value, strict)
        elif keyword in LIST:
            copy[keyword] = [_trimmed(one, strict) for one in value]
        elif keyword in MAP:
            copy[keyword] = {name: _trimmed(one, strict) for name, one in value.items()}
        elif strict or keyword != "format" or value in FORMATS:
            copy[keyword] = value
    return copy


def _has(schema: Any, keyword: str) -> bool:
    return isinstance(schema, Mapping) and keyword in schema


def _told(value: Any, message: str) -> bool:
    """Whether a pattern is the one that a message is about; other values always are."""
    if isinstance(value, str):
        return value in message
    if isinstance(value, Mapping):
        return any(pattern in message for pattern in value)
    return True


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of JSON")
