"""Wires everything together. The only place that does."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from connexion import AsyncApp
from connexion.exceptions import ProblemException
from connexion.middleware import MiddlewarePosition
from connexion.options import SwaggerUIOptions
from connexion.resolver import Resolver
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from antiphon.http.edge import Edge
from antiphon.http.errors import error_handler
from antiphon.http.handlers.models import ModelsHandlers
from antiphon.http.handlers.responses import ResponsesHandlers
from antiphon.http.handlers.server import ServerHandlers
from antiphon.http.routing import MethodTable, routing_view
from antiphon.http.security import security_map
from antiphon.http.validation import validator_map
from antiphon.keys import KeyRing
from antiphon.metrics import Metrics
from antiphon.models.base import Model
from antiphon.models.on_demand import OnDemandModel
from antiphon.models.router import Router
from antiphon.responses.gate import Gate
from antiphon.responses.service import ResponseService
from antiphon.settings import Settings
from antiphon.spec import Contract, packaged_contract

_EXPOSED_HEADERS = ("x-request-id", "openai-processing-ms", "antiphon-dropped", "retry-after")


@dataclass(frozen=True, slots=True)
class Application:
    """A server without its socket: the ASGI application, and what must be stopped with it."""

    asgi: ASGIApp
    service: ResponseService


def build(settings: Settings, models: Sequence[Model], keys: KeyRing) -> Application:
    """Build the application that answers with `models`, the first being the default."""
    contract = packaged_contract()
    metrics = Metrics()
    router = Router(models, settings.aliases)
    service = ResponseService(
        contract,
        router,
        Gate(contract, strict=settings.strict),
        metrics,
        options=settings,
    )
    handlers = (
        ResponsesHandlers(service, timeout_seconds=settings.request_timeout_seconds),
        ModelsHandlers(router),
        ServerHandlers(contract, router, metrics, lambda: service.accepting),
    )
    app = _connexion_app(contract, settings, keys, _operations(handlers), models)
    return Application(Edge(app, metrics), service)


def _operations(handlers: Sequence[object]) -> dict[str, Callable[..., Any]]:
    """Every public method of the handlers by its name, which is its operation's id."""
    return {
        name: getattr(handler, name)
        for handler in handlers
        for name in dir(handler)
        if not name.startswith("_")
    }


def _connexion_app(
    contract: Contract,
    settings: Settings,
    keys: KeyRing,
    operations: dict[str, Callable[..., Any]],
    models: Sequence[Model],
) -> AsyncApp:
    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        for model in models:
            if isinstance(model, OnDemandModel):
                model.watch()
        yield
        for model in models:
            await model.close()

    app = AsyncApp(
        "antiphon",
        lifespan=lifespan,
        resolver=Resolver(operations.__getitem__),
        security_map=security_map(keys),
        swagger_ui_options=SwaggerUIOptions(swagger_ui=False, serve_spec=False),
        validator_map=validator_map(contract, settings),
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            position=MiddlewarePosition.BEFORE_EXCEPTION,
            allow_origins=list(settings.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED_HEADERS),
        )
    handle = error_handler(MethodTable(contract.document))
    # Connexion has handlers of its own for its problems, which would win over one for Exception.
    for kind in (Exception, HTTPException, ProblemException):
        app.add_error_handler(kind, handle)
    app.add_api(routing_view(contract.document))
    return app
