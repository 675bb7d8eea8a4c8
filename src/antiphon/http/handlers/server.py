"""The server's own pages: health, metrics, the document."""

from collections.abc import Callable

from starlette.responses import Response

from antiphon import __version__
from antiphon.http.docs import docs_page
from antiphon.http.json import json_response
from antiphon.metrics import Metrics
from antiphon.models.router import Router
from antiphon.responses.state import StateStatus
from antiphon.spec import Contract, packaged_text
from antiphon.spec.types import ServerStatus


class ServerHandlers:
    """`state` tells of what is stored, None where nothing is; `is_ready` says whether new responses
    are begun."""

    def __init__(
        self,
        contract: Contract,
        router: Router,
        metrics: Metrics,
        state: StateStatus | None,
        is_ready: Callable[[], bool],
    ) -> None:
        self._contract = contract
        self._router = router
        self._metrics = metrics
        self._state = state
        self._is_ready = is_ready
        self._docs: str | None = None

    async def get_health(self) -> Response:
        return json_response({"status": "ok"})

    async def get_readiness(self) -> Response:
        if self._is_ready():
            return json_response({"status": "ok"})
        return json_response({"status": "shutting_down"}, status=503)

    async def get_status(self) -> Response:
        status: ServerStatus = {
            "object": "server.status",
            "version": __version__,
            "models": [model.status() for model in self._router.models],
            "store": None if self._state is None else await self._state.status(),
        }
        return json_response(status)

    async def get_metrics(self) -> Response:
        if self._state is not None:
            self._metrics.set_store(*await self._state.counts())
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def get_openapi_json(self) -> Response:
        return json_response(self._contract.document)

    async def get_openapi_yaml(self) -> Response:
        return Response(packaged_text("openapi.yaml"), media_type="application/yaml")

    async def get_docs(self) -> Response:
        if self._docs is None:
            self._docs = docs_page(self._contract.document)
        return Response(self._docs, media_type="text/html")
