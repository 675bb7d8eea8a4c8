"""`/v1/models`."""

from typing import Any

from starlette.responses import Response

from antiphon.errors import UnknownURL
from antiphon.http.codex import codex_catalog
from antiphon.http.json import json_response
from antiphon.models.router import Route, Router
from antiphon.spec.types import ModelInfo, ModelList


class ModelsHandlers:
    """`codex_prompt` is what Codex is told to begin with; None leaves it without a catalogue."""

    def __init__(self, router: Router, codex_prompt: str | None) -> None:
        self._router = router
        self._codex_prompt = codex_prompt

    async def list_models(self) -> Response:
        models: ModelList = {
            "object": "list",
            "data": [_info(route) for route in self._router.routes()],
        }
        return json_response(models)

    async def retrieve_model(self, model: Any) -> Response:
        return json_response(_info(self._router.find(model)))

    async def list_codex_models(self) -> Response:
        if self._codex_prompt is None:
            raise UnknownURL("The catalogue for Codex is turned off (codex_catalog).")
        return json_response(codex_catalog(self._router.routes(), self._codex_prompt))


def _info(route: Route) -> ModelInfo:
    return {
        "id": route.name,
        "object": "model",
        "created": route.model.created,
        "owned_by": "antiphon",
        "context_window": route.model.context_window,
        "alias_of": route.alias_of,
    }
