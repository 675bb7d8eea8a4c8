"""What Connexion is given of the document, and what it cannot say of it.

Connexion 3.3 reads OpenAPI 3.0 with JSON Schema Draft 4 and would silently ignore most of a 3.1
document. It gets a view with the paths, parameters, media types and security of the document, in
which every body schema is replaced by a pointer to the real one, and every parameter has one
beside its own; `validation` checks bodies by it and explains what is wrong with parameters.
"""

import re
from copy import deepcopy

from antiphon.spec.contract import Document
from antiphon.spec.explain import resolve

#: Where the view keeps the pointer to the schema of a body or a parameter.
SCHEMA_POINTER = "x-schema-pointer"

_METHODS = ("get", "put", "post", "delete", "patch")


def routing_view(document: Document) -> Document:
    """An OpenAPI 3.0.3 object that routes as `document` does."""
    view: Document = {
        "openapi": "3.0.3",
        "info": {key: document["info"][key] for key in ("title", "version")},
        "security": deepcopy(document["security"]),
        "paths": {},
        "components": {"securitySchemes": deepcopy(document["components"]["securitySchemes"])},
    }
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        view["paths"][path] = {
            method: _operation_view(document, path, method, [*shared])
            for method in _METHODS
            if method in item
        }
    return view


def _operation_view(document: Document, path: str, method: str, shared: list[Document]) -> Document:
    operation = document["paths"][path][method]
    parameters = [*shared, *operation.get("parameters", [])]
    view: Document = {
        "operationId": operation["operationId"],
        "parameters": [_parameter_view(document, parameter) for parameter in parameters],
        "responses": {"default": {"description": "See the document."}},
    }
    if "security" in operation:
        view["security"] = deepcopy(operation["security"])
    if "requestBody" in operation:
        base = f"#/paths/{_escaped(path)}/{method}/requestBody/content"
        view["requestBody"] = {
            "required": operation["requestBody"].get("required", False),
            "content": {
                media_type: {"schema": {SCHEMA_POINTER: _pointer(media, base, media_type)}}
                for media_type, media in operation["requestBody"]["content"].items()
            },
        }
    return view


def _parameter_view(document: Document, parameter: Document) -> Document:
    resolved = resolve(document, parameter)
    schema = dict(resolved["schema"])
    if not isinstance(schema.get("type"), str):
        raise ValueError(f"parameter {resolved['name']} has no single type")
    if "items" in schema:
        schema["items"] = resolve(document, schema["items"])
    return {
        "name": resolved["name"],
        "in": resolved["in"],
        "required": resolved.get("required", False),
        "schema": deepcopy(schema),
        SCHEMA_POINTER: f"{parameter['$ref']}/schema",
    }


def _pointer(media: Document, base: str, media_type: str) -> str:
    """Where the schema is: its component if it is a reference, its place in the path if not."""
    reference: str | None = media["schema"].get("$ref")
    return reference or f"{base}/{_escaped(media_type)}/schema"


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


class MethodTable:
    """The methods that each path of a document knows."""

    def __init__(self, document: Document) -> None:
        self._paths = [
            (_pattern(document, path, item), _methods(item))
            for path, item in document["paths"].items()
        ]

    def allowed(self, path: str) -> list[str]:
        """The methods for a request's path; empty if the document has no such path."""
        return next((methods for pattern, methods in self._paths if pattern.fullmatch(path)), [])


def _pattern(document: Document, path: str, item: Document) -> re.Pattern[str]:
    formats = {
        parameter["name"]: parameter["schema"].get("format")
        for parameter in (resolve(document, p) for p in item.get("parameters", []))
    }
    pattern = ""
    for part in re.split(r"(\{[^}]*\})", path):
        if part.startswith("{"):
            pattern += ".+" if formats.get(part[1:-1]) == "path" else "[^/]+"
        else:
            pattern += re.escape(part)
    return re.compile(pattern)


def _methods(item: Document) -> list[str]:
    """What a path can succeed with; an operation that only refuses is no method of it."""
    methods = [
        method.upper()
        for method in _METHODS
        if method in item and any(status.startswith("2") for status in item[method]["responses"])
    ]
    return sorted([*methods, "HEAD"] if "GET" in methods else methods)
