"""The bundled document and what is compiled from it.

`openapi.json` and `coverage.json` beside this file are made from `openapi/` by
`tools/build_spec.py`. Validators are compiled once for each schema, over one shared registry:
compiling is a matter of milliseconds, checking one of microseconds.
"""

from functools import cache
from importlib import resources
from typing import Any

import jsonschema_rs
import orjson

from antiphon.errors import InvalidRequest
from antiphon.spec.explain import Explainer

Document = dict[str, Any]

_URI = "antiphon:openapi"


class Contract:
    """A document and the checks it stands for."""

    def __init__(self, document: Document, coverage: dict[str, Any]) -> None:
        self.document = document
        self.coverage = coverage
        self._registry = jsonschema_rs.Registry([(_URI, document)], draft=jsonschema_rs.Draft202012)
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}
        events = document["components"]["schemas"]["StreamEvent"]["discriminator"]["mapping"]
        self._event_validators = {
            tag: self._validator(events[tag])
            for tag, line in coverage["events"].items()
            if line["status"] == "served"
        }
        self._explainer = Explainer(document, self.accepts)

    def body_schemas(self) -> list[str]:
        """Pointers to the schemas of all request bodies."""
        operations = [o for path in self.document["paths"].values() for o in path.values()]
        bodies = [o["requestBody"] for o in operations if "requestBody" in o]
        return [m["schema"]["$ref"] for body in bodies for m in body["content"].values()]

    def accepts(self, pointer: str, value: object) -> bool:
        """Whether `value` fits the schema at `pointer`, such as `#/components/schemas/Response`."""
        return self._validator(pointer).is_valid(value)

    def accepts_event(self, event: Any) -> bool:
        """Whether a stream event is one that is served, and fits the schema of its own type."""
        validator = self._event_validators.get(event["type"])
        return validator is not None and validator.is_valid(event)

    def _validator(self, pointer: str) -> jsonschema_rs.Draft202012Validator:
        validator = self._validators.get(pointer)
        if validator is None:
            validator = self._validators[pointer] = jsonschema_rs.Draft202012Validator(
                {"$ref": _URI + pointer}, registry=self._registry
            )
        return validator

    def explain(self, pointer: str, value: object, *, name: str | None = None) -> InvalidRequest:
        """The error to answer a `value` with that does not fit the schema at `pointer`: a body, or
        the parameter of a `name`.

        Of several mistakes it names the first.
        """
        return self._explainer.explain(pointer, value, () if name is None else (name,))


def packaged_text(name: str) -> str:
    """One of the files that are carried: `openapi.json`, `openapi.yaml` or `coverage.json`."""
    return resources.files("antiphon.spec").joinpath(name).read_text(encoding="utf-8")


@cache
def packaged_contract() -> Contract:
    """The contract that this version of antiphon was built from."""
    document = orjson.loads(packaged_text("openapi.json"))
    return Contract(document, orjson.loads(packaged_text("coverage.json")))
