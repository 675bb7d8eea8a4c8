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
        self._event_schemas: dict[str, str] = {
            tag: pointer
            for tag, pointer in document["components"]["schemas"]["StreamEvent"]["discriminator"][
                "mapping"
            ].items()
        }
        self._explainer = Explainer(document, self.accepts)

    def accepts(self, pointer: str, value: object) -> bool:
        """Whether `value` fits the schema at `pointer`, such as `#/components/schemas/Response`."""
        validator = self._validators.get(pointer)
        if validator is None:
            validator = self._validators[pointer] = jsonschema_rs.Draft202012Validator(
                {"$ref": _URI + pointer}, registry=self._registry
            )
        return validator.is_valid(value)

    def compile(self) -> None:
        """Compile what every request needs, so that the first one does not wait for it."""
        for path in self.document["paths"].values():
            for operation in path.values():
                body = operation.get("requestBody") if isinstance(operation, dict) else None
                for media in (body or {}).get("content", {}).values():
                    self.accepts(media["schema"]["$ref"], None)
        for event, line in self.coverage["events"].items():
            if line["status"] == "served":
                self.accepts(self._event_schemas[event], None)

    def accepts_event(self, event: Any) -> bool:
        """Whether a stream event fits the schema of its own type."""
        pointer = self._event_schemas.get(event["type"])
        return pointer is not None and self.accepts(pointer, event)

    def explain(self, pointer: str, value: object) -> InvalidRequest:
        """The error to answer a `value` with that does not fit the schema at `pointer`.

        Of several mistakes it names the first.
        """
        return self._explainer.explain(pointer, value)


def packaged_text(name: str) -> str:
    """One of the files that are carried: `openapi.json`, `openapi.yaml` or `coverage.json`."""
    return resources.files("antiphon.spec").joinpath(name).read_text(encoding="utf-8")


@cache
def packaged_contract() -> Contract:
    """The contract that this version of antiphon was built from."""
    document = orjson.loads(packaged_text("openapi.json"))
    return Contract(document, orjson.loads(packaged_text("coverage.json")))
