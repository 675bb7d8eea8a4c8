"""Wires everything together. The only place that does."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from connexion import AsyncApp
from connexion.exceptions import ProblemException
from connexion.middleware import MiddlewarePosition
from connexion.options import SwaggerUIOptions
from connexion.resolver import Resolver
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from antiphon.comparing import Comparer
from antiphon.http.codex import codex_prompt
from antiphon.http.edge import Edge
from antiphon.http.errors import error_handler
from antiphon.http.handlers.conversations import ConversationsHandlers
from antiphon.http.handlers.models import ModelsHandlers
from antiphon.http.handlers.responses import ResponsesHandlers
from antiphon.http.handlers.server import ServerHandlers
from antiphon.http.routing import MethodTable, routing_view
from antiphon.http.security import security_map
from antiphon.http.validation import validator_map
from antiphon.kept import Kept, running
from antiphon.keys import KeyRing
from antiphon.metrics import Metrics
from antiphon.models.base import Model
from antiphon.models.router import Router
from antiphon.reasoning_keys import reasoning_policy
from antiphon.responses.admission import HistoryBudget, Readers
from antiphon.responses.context import ContextLoader
from antiphon.responses.conversations import ConversationService
from antiphon.responses.gate import Gate
from antiphon.responses.intake import Intake
from antiphon.responses.observer import Observer
from antiphon.responses.request import RequestReader
from antiphon.responses.service import ResponseService
from antiphon.responses.state import StateStatus
from antiphon.responses.stored import StoredResponses
from antiphon.settings import Settings
from antiphon.spec import Contract, packaged_contract
from antiphon.spec.types import StateKind
from antiphon.store.build import SqlStore

_KINDS: dict[str, StateKind] = {"sqlite": "sqlite", "postgres": "postgres", "memory": "memory"}
_EXPOSED_HEADERS = ("x-request-id", "openai-processing-ms", "antiphon-dropped", "retry-after")


class Application:
    """A server without its socket: the ASGI application, and what must be stopped with it."""

    def __init__(self, asgi: ASGIApp, service: ResponseService, kept: Kept | None) -> None:
        self.asgi = asgi
        self.service = service
        self._kept = kept

    async def drain(self, grace_seconds: float) -> bool:
        """Begin nothing new, and let what is being made end, or after the grace leave it. False if
        a model did not let go."""
        others = () if self._kept is None else (self._kept.drain(grace_seconds),)
        _, *let_go = await asyncio.gather(self.service.drain(grace_seconds), *others)
        return all(let_go)


def build(
    settings: Settings, models: Sequence[Model], keys: KeyRing, store: SqlStore | None = None
) -> Application:
    """Build the application that answers with `models`, the first being the default, and keeps
    responses in `store`. What is started closes the store in the end.

    Without an engine `models` is empty, and responses are left to the workers of the store. Raises
    `StartError`.
    """
    contract = packaged_contract()
    metrics = Metrics()
    comparer = Comparer()
    router = Router(models, settings.aliases if settings.engine else {})
    reasoning = reasoning_policy(settings)
    reader = RequestReader(router, reasoning, comparer)
    gate = Gate(
        contract,
        strict=settings.strict,
        stateless=store is None,
        summarises=reasoning.summarises,
        hosted_tools=settings.hosted_tools,
    )
    budget = HistoryBudget(settings.max_history_bytes)
    readers = Readers(settings.max_readers, settings.max_readers_per_key)
    observer = Observer(metrics, log_content=settings.log_content)
    stored, kept, state = None, None, None
    if store is not None:
        kept = Kept(settings, store, contract, reader, observer)
        stored = StoredResponses(store, kept.journal, kept.worker, readers, options=settings)
        state = StateStatus(_KINDS[settings.state], store, kept.worker, readers, budget)
    service = ResponseService(
        contract,
        Intake(gate, reader, stores=store is not None, options=settings),
        ContextLoader(
            store, budget, strict=settings.history_rules == "strict", reasoning=reasoning
        ),
        stored,
        observer,
        keep_alive_seconds=settings.keep_alive_seconds,
    )
    handlers = (
        ResponsesHandlers(
            service,
            timeout_seconds=settings.request_timeout_seconds,
            write_timeout_seconds=settings.write_timeout_seconds,
        ),
        ConversationsHandlers(ConversationService(store, gate, metrics, reasoning)),
        ModelsHandlers(
            router, codex_prompt(settings.codex_prompt_file) if settings.codex_catalog else None
        ),
        ServerHandlers(contract, router, metrics, state, lambda: service.accepting),
    )

    def lifespan(_: object) -> AbstractAsyncContextManager[None]:
        return running(models, kept, comparer)

    app = _connexion_app(contract, settings, keys, _operations(handlers), lifespan)
    return Application(Edge(app, metrics), service, kept)


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
    lifespan: Callable[[object], AbstractAsyncContextManager[None]],
) -> AsyncApp:
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
