"""What must hold of the document beyond being valid OpenAPI.

Every object, enum and union has a name and a description; output objects say everything they may
hold; every operation is described and has examples of its request and its success; examples fit;
parameters are simple enough for the router; and the coverage names everything exactly once.
"""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from openapi_spec_validator import OpenAPIV31SpecValidator

Schema = dict[str, Any]

_SCALARS = {"string", "integer", "number", "boolean", "null"}
_KEYWORDS = {
    *("$ref", "additionalProperties", "anyOf", "const", "contentMediaType", "contentSchema"),
    *("description", "discriminator", "enum", "format", "items", "maxItems", "maxLength"),
    *("maxProperties", "maximum", "minItems", "minLength", "minimum", "not", "oneOf", "pattern"),
    *("properties", "propertyNames", "required", "type"),
}
#: What is asked of conversations.
_CONVERSATION_BODIES = ("CreateConversation", "UpdateConversation", "CreateConversationItems")
_METHODS = ("get", "put", "post", "delete", "patch")
_NULL = {"type": "null"}
#: Objects of options, and the request field each stands in. Each option is covered by itself.
_NESTED_OPTIONS = {
    "ReasoningOptions": "reasoning",
    "TextOptions": "text",
    "StreamOptions": "stream_options",
}


def problems(document: Schema, coverage: dict[str, Any]) -> list[str]:
    """Everything that is wrong, one sentence each."""
    return [
        *(str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()),
        *_schema_problems(document["components"]["schemas"]),
        *_operation_problems(document),
        *_example_problems(document),
        *_coverage_problems(document, coverage),
    ]


def _schema_problems(schemas: dict[str, Schema]) -> Iterator[str]:
    for name, schema in schemas.items():
        for place, keyword in _unknown_keywords(schema):
            # Most often the end of a description that YAML cut at an unquoted comma.
            yield f"{name}{place} has a keyword {keyword!r}"
        if not schema.get("description"):
            yield f"{name} has no description"
        for place, child in _children(schema):
            if not _may_be_anonymous(child):
                yield f"{name}{place} has a shape of its own and no name"
        for field, child in schema.get("properties", {}).items():
            if not (child.get("description") or "$ref" in child or "const" in child):
                yield f"{name}.{field} has no description"


def _unknown_keywords(schema: Schema) -> Iterator[tuple[str, str]]:
    for keyword in schema:
        if keyword not in _KEYWORDS:
            yield "", keyword
    for place, child in _children(schema):
        for inner, keyword in _unknown_keywords(child):
            yield place + inner, keyword


def _children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for field, child in schema.get("properties", {}).items():
        yield f".{field}", child
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield f" {keyword}", schema[keyword]
    for keyword in ("anyOf", "oneOf", "allOf"):
        for number, child in enumerate(schema.get(keyword, ())):
            yield f" {keyword}[{number}]", child


def _may_be_anonymous(schema: Schema) -> bool:
    if "$ref" in schema:
        return True
    if "anyOf" in schema:
        # A named schema or null is no shape of its own.
        return (
            len(schema["anyOf"]) == 2
            and schema["anyOf"][1] == _NULL
            and "$ref" in schema["anyOf"][0]
        )
    types = schema.get("type")
    types = {types} if isinstance(types, str) else set(types or ())
    if "array" in types:
        return types <= {"array", "null"} and _may_be_anonymous(schema.get("items", {}))
    if "enum" in schema:
        # A tag that may be null.
        return len(schema["enum"]) == 2 and None in schema["enum"]
    return bool(types) and types <= _SCALARS and "oneOf" not in schema


def operations(document: Schema) -> Iterator[tuple[str, str, Schema, list[Schema]]]:
    """Path, method, operation and its resolved parameters, for each operation."""
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                operation = item[method]
                parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
                yield path, method, operation, [_resolved(document, p) for p in parameters]


def _operation_problems(document: Schema) -> Iterator[str]:
    for path, method, operation, parameters in operations(document):
        name = f"{method.upper()} {path}"
        for field in ("operationId", "summary", "description", "tags"):
            if not operation.get(field):
                yield f"{name} has no {field}"
        for parameter in parameters:
            if not isinstance(parameter["schema"].get("type"), str):
                yield f"{name}: parameter {parameter['name']} has no single type"
        content = operation.get("requestBody", {}).get("content", {})
        if any(not media.get("examples") for media in content.values()):
            yield f"{name} has no example of its request"
        success = operation["responses"].get("200")
        media_types = _resolved(document, success)["content"].values() if success else ()
        if any(not media.get("examples") for media in media_types):
            yield f"{name} has no example of its answer"


def _example_problems(document: Schema) -> Iterator[str]:
    registry = jsonschema_rs.Registry([("urn:document", document)], draft=jsonschema_rs.Draft202012)
    for place, media in _media(document):
        for name, example in media.get("examples", {}).items():
            value = _resolved(document, example)["value"]
            schema = media["schema"]
            if "$ref" in schema:
                schema = {"$ref": f"urn:document{schema['$ref']}"}
            validator = jsonschema_rs.Draft202012Validator(schema, registry=registry)
            for error in validator.iter_errors(value):
                yield f"{place}: example {name} does not fit: {error.message}"


def _media(node: Any, place: str = "") -> Iterator[tuple[str, Schema]]:
    if isinstance(node, dict):
        for key, child in node.items():
            if key == "content" and isinstance(child, dict):
                for kind, media in child.items():
                    if isinstance(media, dict) and "schema" in media:
                        yield f"{place} {kind}", media
            else:
                yield from _media(child, f"{place}/{key}")


def _coverage_problems(document: Schema, coverage: dict[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    fields = set(schemas["CreateResponse"]["properties"])
    fields |= set(schemas["CountInputTokens"]["properties"])
    yield from _compared("request", {p.split(".")[0] for p in coverage["request"]}, fields)
    for option, prefix in _NESTED_OPTIONS.items():
        covered = {p.split(".")[1] for p in coverage["request"] if p.startswith(f"{prefix}.")}
        yield from _compared(f"request {prefix}", covered, set(schemas[option]["properties"]))
    expected = {
        "conversation": {n for body in _CONVERSATION_BODIES for n in schemas[body]["properties"]},
        "include": set(schemas["IncludeValue"]["enum"]),
        "tools": set(schemas["KnownToolType"]["enum"]),
        "input_items": _tags(schemas, "InputItem"),
        "content_parts": _tags(schemas, "InputContentPart")
        | _tags(schemas, "AssistantContentPart"),
        "output_items": _tags(schemas, "OutputItem"),
        "events": _tags(schemas, "StreamEvent"),
    }
    for section, names in expected.items():
        yield from _compared(section, set(coverage[section]), names)
    sections = {name: coverage[name] for name in ("request", *expected)}
    for overlay in ("stateless", "unsummarised"):
        for section, lines in coverage[overlay].items():
            for name in sorted(lines.keys() - coverage[section].keys()):
                yield f"coverage: {overlay} {section} names {name}, of which {section} says nothing"
        sections |= {f"{overlay} {name}": lines for name, lines in coverage[overlay].items()}
    for section, lines in sections.items():
        for name, line in lines.items():
            if line["status"] not in ("served", "dropped", "rejected"):
                yield f"coverage: {section} {name} is {line['status']}"


def _compared(section: str, covered: set[str], declared: set[str]) -> Iterator[str]:
    for name in sorted(declared - covered):
        yield f"coverage: {section} says nothing of {name}"
    for name in sorted(covered - declared):
        yield f"coverage: {section} names {name}, which the document does not"


def _tags(schemas: dict[str, Schema], union: str) -> set[str]:
    tags: set[str] = set()
    for branch in schemas[union].get("oneOf") or schemas[union]["anyOf"]:
        tag = schemas[branch["$ref"].rpartition("/")[2]]["properties"]["type"]
        tags |= set(tag.get("enum", ())) | {tag.get("const")}
    return tags - {None}


def _resolved(document: Schema, node: Schema) -> Schema:
    while "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node
