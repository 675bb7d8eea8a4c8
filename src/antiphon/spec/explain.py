"""Says what is wrong with a value that a schema refused.

A validator's own report of a failed union is a list of every branch's complaints. Here the document
is walked along the failing children only: a union is narrowed to the branch that the value was
meant for, by JSON type, then by its tags (properties with a fixed value), then by the fewest
missing properties. So the error names one place and one mistake.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from antiphon import errors

Schema = dict[str, Any]
Path = tuple[str | int, ...]

_SHOWN = 64  # Characters of a wrong value that a message shows.

_TYPE_NAMES = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}


def resolve(document: Schema, node: Schema) -> Schema:
    """What a node of a document stands for, after following its references."""
    while "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


def dotted(path: Path) -> str | None:
    """A path as clients know it: `input[3].content[0].type`; None for the body itself."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text or None


def shown(value: object) -> str:
    """A wrong value for a message, cut so that no conversation ends up in it."""
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        return f"'{cut}'"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return str(value)
    return _TYPE_NAMES[json_type(value)]


def json_type(value: object) -> str:
    """The name that JSON Schema has for the type of a parsed JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def has_type(value: object, names: Iterable[str]) -> bool:
    """Whether a value is of one of the named types. 16.0 is an integer, as in JSON Schema."""
    own = json_type(value)
    allowed = set(names)
    if own in allowed:
        return True
    if own == "integer":
        return "number" in allowed
    return (
        own == "number" and "integer" in allowed and isinstance(value, float) and value.is_integer()
    )


def listed(values: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(values) == 1:
        return values[0]
    return f"{', '.join(values[:-1])} and {values[-1]}"


class Explainer:
    """Explains refusals by one document. `accepts` is the compiled check of a pointer."""

    def __init__(self, document: Schema, accepts: Callable[[str, object], bool]) -> None:
        self._document = document
        self._accepts = accepts

    def explain(self, pointer: str, value: object, path: Path = ()) -> errors.InvalidRequest:
        """The first mistake in `value`, which stands at `path` of a request and which the schema at
        `pointer` refused."""
        found = self._walk({"$ref": pointer}, value, path)
        # A refusal that the walk cannot place is still a refusal.
        return found or errors.InvalidValue(
            f"Invalid {_quoted(path)}: it does not fit the document.", param=dotted(path)
        )

    def _resolve(self, schema: Schema) -> Schema:
        return resolve(self._document, schema)

    def _walk(self, schema: Schema, value: object, path: Path) -> errors.InvalidRequest | None:
        if "$ref" in schema and self._accepts(schema["$ref"], value):
            return None
        schema = self._resolve(schema)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            return self._union(branches, value, path)
        types = _types(schema)
        if types and not has_type(value, types):
            return self._wrong_type(types, value, path)
        allowed = _fixed_values(schema)
        if allowed is not None and value not in allowed:
            return self._wrong_value(allowed, value, path)
        if "not" in schema and self._walk(schema["not"], value, path) is None:
            return errors.InvalidValue(f"Invalid value: {shown(value)}.", param=dotted(path))
        if isinstance(value, str):
            return _check_string(schema, value, path)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _check_number(schema, value, path)
        if isinstance(value, list):
            return self._array(schema, value, path)
        if isinstance(value, dict):
            return self._object(schema, value, path)
        return None

    def _array(self, schema: Schema, value: list[Any], path: Path) -> errors.InvalidRequest | None:
        if len(value) < schema.get("minItems", 0):
            return errors.ArrayTooShort(
                f"Invalid {_quoted(path)}: expected at least {schema['minItems']} entries.",
                param=dotted(path),
            )
        if len(value) > schema.get("maxItems", len(value)):
            return errors.ArrayTooLong(
                f"Invalid {_quoted(path)}: at most {schema['maxItems']} entries are allowed, "
                f"but there are {len(value)}.",
                param=dotted(path),
            )
        for index, child in enumerate(value):
            found = self._walk(schema.get("items", {}), child, (*path, index))
            if found:
                return found
        return None

    def _object(
        self, schema: Schema, value: dict[str, Any], path: Path
    ) -> errors.InvalidRequest | None:
        for name in schema.get("required", ()):
            if name not in value:
                return _missing((*path, name))
        if len(value) > schema.get("maxProperties", len(value)):
            return errors.TooManyProperties(
                f"Invalid {_quoted(path)}: at most {schema['maxProperties']} pairs are allowed, "
                f"but there are {len(value)}.",
                param=dotted(path),
            )
        longest = schema.get("propertyNames", {}).get("maxLength")
        if longest is not None and any(len(name) > longest for name in value):
            return errors.StringTooLong(
                f"Invalid {_quoted(path)}: a key may have at most {longest} characters.",
                param=dotted(path),
            )
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, child in value.items():
            if name in properties:
                found = self._walk(properties[name], child, (*path, name))
            elif isinstance(others, dict):
                found = self._walk(others, child, (*path, name))
            elif others is False:
                found = errors.UnknownParameter(
                    f"Unknown parameter: {_quoted((*path, name))}.", param=dotted((*path, name))
                )
            else:
                found = None
            if found:
                return found
        return None

    def _union(
        self, branches: Sequence[Schema], value: object, path: Path
    ) -> errors.InvalidRequest | None:
        flat = self._flatten(branches)
        fitting = [b for b in flat if not _types(b) or has_type(value, _types(b))]
        if not fitting:
            return self._wrong_type(sorted({t for b in flat for t in _types(b)}), value, path)
        if isinstance(value, dict):
            found = self._narrow(fitting, value, path)
            if isinstance(found, errors.InvalidRequest):
                return found
            fitting = [found]
        mistakes = [self._walk(branch, value, path) for branch in fitting]
        if None in mistakes:
            return None
        # The branch that got furthest is the one that was meant.
        return max(
            (m for m in mistakes if m), key=lambda m: (m.param or "").count(".") + _brackets(m)
        )

    def _flatten(self, branches: Sequence[Schema]) -> list[Schema]:
        flat: list[Schema] = []
        for branch in branches:
            schema = self._resolve(branch)
            inner = schema.get("anyOf") or schema.get("oneOf")
            flat += self._flatten(inner) if inner else [schema]
        return flat

    def _narrow(
        self, branches: list[Schema], value: dict[str, Any], path: Path
    ) -> Schema | errors.InvalidRequest:
        """The one branch that `value` was meant for, or what keeps it from being any."""
        tags = list(dict.fromkeys(tag for b in branches for tag in self._tags(b)))
        if "type" not in value:
            # What may leave its type out was meant rather than what needs it.
            branches = [b for b in branches if "type" not in b.get("required", ())] or branches
        for tag in tags:
            tagged = [b for b in branches if tag in self._tags(b)]
            if tag not in value or not tagged:
                continue
            matching = [b for b in tagged if value[tag] in self._tags(b)[tag]]
            untagged = [b for b in branches if tag not in self._tags(b) and not _forbids(b, tag)]
            if not matching and not untagged:
                allowed = list(dict.fromkeys(v for b in tagged for v in self._tags(b)[tag]))
                if not any(has_type(value[tag], [json_type(v)]) for v in allowed):
                    return self._wrong_type(["string"], value[tag], (*path, tag))
                return self._wrong_value(allowed, value[tag], (*path, tag))
            branches = matching or untagged
        if len(branches) > 1 and tags and tags[0] not in value:
            required = {name for b in branches for name in b.get("required", ())}
            if not required & set(value):
                return _missing((*path, tags[0]))
        return min(branches, key=lambda b: sum(n not in value for n in b.get("required", ())))

    def _tags(self, schema: Schema) -> dict[str, list[Any]]:
        """The properties of a schema that have fixed values: what tells it from its neighbours."""
        tags = {}
        for name, child in schema.get("properties", {}).items():
            fixed = _fixed_values(self._resolve(child))
            if fixed is not None and name in ("type", "role"):
                tags[name] = fixed
        return tags

    def _wrong_type(self, types: Sequence[str], value: object, path: Path) -> errors.InvalidRequest:
        expected = [_TYPE_NAMES[t] for t in types if t != "null"] or ["null"]
        names = " or ".join([", ".join(expected[:-1]), expected[-1]] if expected[1:] else expected)
        got = _TYPE_NAMES[json_type(value)]
        if not path:
            return errors.InvalidType(f"The body must be {names}, but it is {got}.")
        return errors.InvalidType(
            f"Invalid type for {_quoted(path)}: expected {names}, but got {got} instead.",
            param=dotted(path),
        )

    def _wrong_value(
        self, allowed: Sequence[object], value: object, path: Path
    ) -> errors.InvalidRequest:
        names = [shown(v) for v in allowed if v is not None]
        verb = "value is" if len(names) == 1 else "values are"
        return errors.InvalidValue(
            f"Invalid value: {shown(value)}. Supported {verb}: {listed(names)}.",
            param=dotted(path),
        )


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _fixed_values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    if schema.get("type") == "null":
        return [None]
    enum = schema.get("enum")
    return list(enum) if enum is not None else None


def _forbids(schema: Schema, name: str) -> bool:
    return name in schema.get("not", {}).get("required", ())


def _quoted(path: Path) -> str:
    return f"'{dotted(path)}'" if path else "the body"


def _brackets(error: errors.InvalidRequest) -> int:
    return (error.param or "").count("[")


def _missing(path: Path) -> errors.InvalidRequest:
    return errors.MissingParameter(
        f"Missing required parameter: {_quoted(path)}.", param=dotted(path)
    )


def _check_string(schema: Schema, value: str, path: Path) -> errors.InvalidRequest | None:
    if len(value) < schema.get("minLength", 0):
        return errors.StringTooShort(
            f"Invalid {_quoted(path)}: expected at least {schema['minLength']} character(s).",
            param=dotted(path),
        )
    if len(value) > schema.get("maxLength", len(value)):
        return errors.StringTooLong(
            f"Invalid {_quoted(path)}: at most {schema['maxLength']} characters are allowed, "
            f"but there are {len(value)}.",
            param=dotted(path),
        )
    return None


def _check_number(schema: Schema, value: float, path: Path) -> errors.InvalidRequest | None:
    whole = "integer" in _types(schema)
    if value < schema.get("minimum", value):
        below = errors.IntegerBelowMinimum if whole else errors.DecimalBelowMinimum
        return below(
            f"Invalid {_quoted(path)}: expected at least {schema['minimum']}, but got {value}.",
            param=dotted(path),
        )
    if value > schema.get("maximum", value):
        above = errors.IntegerAboveMaximum if whole else errors.DecimalAboveMaximum
        return above(
            f"Invalid {_quoted(path)}: expected at most {schema['maximum']}, but got {value}.",
            param=dotted(path),
        )
    return None
