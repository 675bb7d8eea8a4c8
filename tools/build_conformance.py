"""Makes the conformance suite's own copy of the schemas from the document.

`exact.json` holds what the server sends, as `openapi/` says; `must.json` is the reduction of it to
what is required of anyone, by the steps that `must.yaml` in the suite lists; `document.json` is the
whole document without its prose, for fuzzing. `build_spec` writes and checks all of them.
"""

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "conformance" / "src" / "responses_conformance" / "schemas"

#: What a server may send, and the suite judges.
ROOTS = (
    "Response",
    "StreamEvent",
    "Error",
    "ItemList",
    "ItemResource",
    "Conversation",
    "DeletedConversation",
    "DeletedResponse",
    "InputTokenCount",
    "ModelList",
    "ModelInfo",
    "OutputItem",
    "OutputContentPart",
)
_PROSE = ("description", "summary", "examples", "example", "externalDocs")
_LIMITS = ("pattern", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "format")
_RANGES = ("minimum", "maximum")


def generated(document: dict[str, Any]) -> dict[Path, str]:
    """The files of the suite that are made from the bundled document."""
    exact = _closure(document["components"]["schemas"])
    table = yaml.safe_load((TARGET / "must.yaml").read_text(encoding="utf-8"))
    must = {name: _Reduction(table, name).schema(schema) for name, schema in exact.items()}
    open_unions = {name for name in must if name != "StreamEvent"}
    files = {
        "exact.json": {name: _dispatched(schema, closed=True) for name, schema in exact.items()},
        "must.json": {
            name: _dispatched(schema, closed=name not in open_unions)
            for name, schema in must.items()
        },
        "document.json": _without_prose(document),
    }
    return {
        TARGET / name: json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
        for name, content in files.items()
    }


def _closure(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that `ROOTS` need, without prose, with references among themselves."""
    found: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _moved(_without_prose(schemas[name]))
            waiting += _references(schemas[name])
    return {name: found[name] for name in schemas if name in found}


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for child in node for name in _references(child)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"].rpartition("/")[2]] if isinstance(node.get("$ref"), str) else []
    return own + [name for child in node.values() for name in _references(child)]


def _moved(node: Any) -> Any:
    if isinstance(node, list):
        return [_moved(child) for child in node]
    if not isinstance(node, dict):
        return node
    moved = {key: _moved(child) for key, child in node.items() if key != "discriminator"}
    if isinstance(node.get("$ref"), str):
        moved["$ref"] = f"#/$defs/{node['$ref'].rpartition('/')[2]}"
    if "discriminator" in node:
        mapping = node["discriminator"]["mapping"]
        moved["x-tag"] = node["discriminator"]["propertyName"]
        moved["x-branches"] = {
            tag: f"#/$defs/{ref.rpartition('/')[2]}" for tag, ref in mapping.items()
        }
        del moved["oneOf"]
    return moved


def _without_prose(node: Any, inside: str = "") -> Any:
    if isinstance(node, list):
        return [_without_prose(child) for child in node]
    if not isinstance(node, dict):
        return node
    # Names of properties, and of components, are no keywords; answers need their description.
    names = inside in ("properties", "schemas", "mapping", "parameters", "headers")
    kept = {}
    for key, child in node.items():
        if not names and key in _PROSE:
            if key == "description" and inside == "response":
                kept[key] = "An answer."
            continue
        under = "response" if inside == "responses" else key
        kept[key] = _without_prose(child, under)
    return kept


def _dispatched(node: Any, *, closed: bool) -> Any:
    """Unions by tag as conditions, so that a mistake is told of the branch that was meant.

    Where they are not `closed`, a value of an unknown tag is allowed.
    """
    if isinstance(node, list):
        return [_dispatched(child, closed=closed) for child in node]
    if not isinstance(node, dict):
        return node
    null = {"type": "null"}
    if len(node.get("anyOf", ())) == 2 and node["anyOf"][1] == null:
        # Told so, a mistake is one of the value, and not of a choice between it and null.
        rest = {key: child for key, child in node.items() if key != "anyOf"}
        inner = _dispatched(node["anyOf"][0], closed=closed)
        return {**_dispatched(rest, closed=closed), "if": {"not": null}, "then": inner}
    if "x-tag" not in node:
        return {key: _dispatched(child, closed=closed) for key, child in node.items()}
    tag, branches = node["x-tag"], node["x-branches"]
    tagged: dict[str, Any] = {"type": "string"}
    if closed:
        tagged["enum"] = list(branches)
    return {
        "type": "object",
        "required": [tag],
        "properties": {tag: tagged},
        "allOf": [
            {"if": {"required": [tag], "properties": {tag: {"const": value}}}, "then": {"$ref": r}}
            for value, r in branches.items()
        ],
    }


class _Reduction:
    """One named schema, reduced by the table of `must.yaml`."""

    def __init__(self, table: dict[str, Any], name: str) -> None:
        self._table = table
        self._name = name

    def schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with only what is required of anyone."""
        reduced = dict(self._reduced(schema))
        if "properties" not in reduced:
            return reduced
        properties = reduced["properties"]
        wanted = self._table["required"].get(self._name)
        if wanted is None:
            wanted = ["type"] if "const" in properties.get("type", {}) else []
        unknown = set(wanted) - set(properties)
        if unknown:
            raise ValueError(f"must.yaml: {self._name} has no field {', '.join(sorted(unknown))}")
        reduced["required"] = list(wanted)
        reduced["properties"] = {
            key: self._property(key, child, optional=key not in wanted)
            for key, child in properties.items()
            if key not in self._table["elsewhere"]
        }
        return reduced

    def _property(self, name: str, schema: dict[str, Any], *, optional: bool) -> dict[str, Any]:
        wider = self._table["wider"].get(self._name, {})
        if self._name == "Response" and name in self._table["echoes"]:
            schema = {"type": self._table["echoes"][name]}
        elif name in wider:
            schema = {"type": wider[name]}
        elif name in self._table["times"]:
            schema = {"type": "number"}
        return {"anyOf": [schema, {"type": "null"}]} if optional else schema

    def _reduced(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self._reduced(child) for child in node]
        if not isinstance(node, dict):
            return node
        dropped = set(_LIMITS)
        if self._name not in self._table["bounded"]:
            dropped |= set(_RANGES)
        if self._name not in self._table["closed"]:
            dropped.add("enum")
        if node.get("additionalProperties") is False:
            dropped |= {"additionalProperties", "required"}
        return {
            key: self._properties(child) if key == "properties" else self._reduced(child)
            for key, child in node.items()
            if key not in dropped
        }

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        return {key: self._reduced(child) for key, child in properties.items()}
