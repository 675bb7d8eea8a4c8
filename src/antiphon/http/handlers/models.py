"""`/v1/models`."""

from typing import Any

from starlette.responses import Response

from antiphon.http.json import json_response
from antiphon.models.router import Route, Router
from antiphon.spec.types import ModelInfo, ModelList


class ModelsHandlers:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_models(self) -> Response:
        models: ModelList = {
            "object": "list",
            "data": [_info(route) for route in self._router.routes()],
        }
        return json_response(models)

    async def retrieve_model(self, model: Any) -> Response:
        return json_response(_info(self._router.find(model)))


def _info(route: Route) -> ModelInfo:
    return {
        "id": route.name,
        "object": "model",
        "created": route.model.created,
        "owned_by": "antiphon",
        "context_window": route.model.context_window,
        "alias_of": route.alias_of,
    }
