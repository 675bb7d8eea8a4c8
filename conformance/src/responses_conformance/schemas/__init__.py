"""The shapes of what servers send: what is required of anyone, and antiphon's own."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs

from responses_conformance.findings import Findings, cut
from responses_conformance.texts import parsed_yaml

_MOST = 5  # Mistakes told of one value.


@cache
def _definitions(level: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"{level}.json").read_text(encoding="utf-8")
    definitions: dict[str, Any] = json.loads(text)
    return definitions


@cache
def _validator(level: str, name: str) -> Any:
    schema = {"$ref": f"#/$defs/{name}", "$defs": _definitions(level)}
    return jsonschema_rs.Draft202012Validator(schema)


@cache
def _required() -> dict[str, dict[str, str]]:
    text = files(__package__).joinpath("must.yaml").read_text(encoding="utf-8")
    required: dict[str, dict[str, str]] = parsed_yaml(text)["required"]
    return required


def document() -> dict[str, Any]:
    """antiphon's whole document, without its prose."""
    return _definitions("document")


class Schemas:
    """Judges values by the schemas of one level, or by both. `exact` asks for antiphon's own."""

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact
        self._levels = [("SHAPE-1", "must"), *([("SHAPE-2", "exact")] if exact else [])]
        self._tags = _tags(_definitions("must"))
        #: The types of all events that the API defines.
        self.event_kinds = frozenset(_tags(_definitions("must"), ["StreamEvent"]))

    def judge(self, name: str, value: Any, where: str, findings: Findings) -> None:
        """Judge a value by the schema of this name, at the second level only if the first holds."""
        for rule, level in self._levels:
            if name == "Error" and rule == "SHAPE-1":
                continue  # The FAULT rules say what is required of anyone.
            try:
                errors = list(_validator(level, name).iter_errors(value))
            except ValueError as deep:  # It is nested too deeply.
                findings.add(rule, where, f"it cannot be judged: {deep}")
                return
            for error in errors[:_MOST]:
                path = list(error.instance_path)
                place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
                findings.add(
                    rule,
                    f"{where}, {place.removeprefix('.')}" if place else where,
                    _said(error),
                    self._field(name, value, path, error),
                )
            if errors:
                return

    def _field(self, name: str, value: Any, path: list[Any], error: Any) -> str | None:
        """The field at fault, as `Schema.field`."""
        missing = getattr(error.kind, "property", None)
        steps = [*path, missing] if missing is not None else path
        if not steps:
            return None
        holder, schema = value, self._named(name, value)
        for step in steps[:-1]:
            holder = holder[step]
            if isinstance(holder, dict):
                schema = self._named(str(step), holder)
        return f"{schema}.{steps[-1]}"

    def _named(self, name: str, value: Any) -> str:
        """The name of the schema that a value is judged by, as far as its fields tell it."""
        if not isinstance(value, dict):
            return name
        if value.get("object") == "response" or name == "response":
            return "Response"
        fixed = {
            "usage": "Usage",
            "input_tokens_details": "InputTokensDetails",
            "output_tokens_details": "OutputTokensDetails",
            "error": "ResponseError",
        }
        return self._tags.get(value.get("type", ""), fixed.get(name, name))


def breaks_of_field(field: str) -> tuple[str, ...]:
    """Who needs a field, given as `Schema.field`; empty if that is not known."""
    schema, _, name = field.partition(".")
    said = _required().get(schema, {}).get(name, "")
    return tuple(part.strip() for part in said.split(";") if part.strip())


def _tags(definitions: dict[str, Any], unions: list[str] | None = None) -> dict[str, str]:
    """The schema of each tag of these unions: events, items and parts, unless others are named."""
    tags = {}
    for union in unions or ["StreamEvent", "OutputItem", "OutputContentPart"]:
        for branch in definitions[union]["allOf"]:
            tag = branch["if"]["properties"]["type"]["const"]
            tags[tag] = branch["then"]["$ref"].rpartition("/")[2]
    return tags


def _said(error: Any) -> str:
    return cut(str(error.message))
