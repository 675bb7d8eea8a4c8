"""The schemas of JSON-Schema-Test-Suite as strict answers have them: typed, closed, in an object.

The suite is not here. `load` reads its folder `tests/draft2020-12`, which the source distribution
of `jsonschema` carries as `json/tests/draft2020-12`, or fetches that distribution.
"""

import copy
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from antiphon.schema_places import places

_SOURCE = "jsonschema==4.26.0"
_FOLDER = PurePosixPath("json/tests/draft2020-12")
#: These are about other documents, and about vocabularies.
_LEFT_OUT = ("refRemote", "vocabulary", "dynamicRef", "anchor")
#: The type that a keyword is about.
_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "string": (
        *("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
        "contentSchema",
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "object": (
        *("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
        *("maxProperties", "propertyNames", "dependentRequired", "dependentSchemas"),
        "unevaluatedProperties",
    ),
    "array": (
        *("items", "prefixItems", "contains", "minContains", "maxContains", "minItems"),
        *("maxItems", "uniqueItems", "unevaluatedItems"),
    ),
}
_SAYING = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")


class NamedSchema(NamedTuple):
    """A schema and where it comes from."""

    name: str
    schema: dict[str, Any]


def fetch(folder: Path) -> Path:
    """The suite's folder, after fetching it with pip into `folder` if it is not there."""
    found = sorted(folder.glob(f"*/{_FOLDER}"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-deps", "--no-binary", ":all:", "--quiet", "--dest", str(folder)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, _SOURCE], check=True)
        (archive,) = folder.glob("jsonschema-*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        found = sorted(folder.glob(f"*/{_FOLDER}"))
    return found[0]


def load(folder: Path) -> Iterator[NamedSchema]:
    """Each schema of the suite that says of what type its values are, or can be made to.

    A type is added where keywords tell it. Objects that do not say what else may be in them are
    closed and have all their properties, as the official clients make them for strict answers.
    """
    for path in sorted(folder.rglob("*.json")):
        if path.stem in _LEFT_OUT:
            continue
        for group in json.loads(path.read_text()):
            schema = group["schema"]
            if isinstance(schema, dict):
                typed = _typed(schema)
                if any(keyword in typed for keyword in _SAYING):
                    place = path.relative_to(folder).with_suffix("").as_posix()
                    yield NamedSchema(f"{place}: {group['description']}", _wrapped(typed))


def _typed(schema: Mapping[str, Any]) -> dict[str, Any]:
    typed = copy.deepcopy(dict(schema))
    typed.pop("$schema", None)
    for place in places(typed):
        inner = place.schema
        if not isinstance(inner, dict):
            continue
        kinds = [kind for kind, words in _KEYWORDS.items() if any(word in inner for word in words)]
        if kinds:
            inner.setdefault("type", kinds[0] if len(kinds) == 1 else kinds)
        kind = inner.get("type", ())
        if "object" in ([kind] if isinstance(kind, str) else kind):
            inner.setdefault("additionalProperties", False)
            if inner.get("properties"):
                required = {*inner.get("required", ()), *inner["properties"]}
                inner["required"] = sorted(required)
    return typed


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"value": _moved(schema)},
        "required": ["value"],
        "additionalProperties": False,
    }


def _moved(value: Any) -> Any:
    """A schema whose references lead to where it lies now."""
    if isinstance(value, list):
        return [_moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        keyword: f"#/properties/value{inner[1:]}"
        if keyword == "$ref" and isinstance(inner, str) and (inner == "#" or inner[:2] == "#/")
        else _moved(inner)
        for keyword, inner in value.items()
    }
