"""The outermost layer: what holds of every answer, whoever makes it.

Names the request, times it, counts it, logs it and puts the headers on that clients look for.
"""

import re
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from antiphon import ids
from antiphon.metrics import Metrics

_logger = structlog.get_logger("antiphon.http")

# The date that the official API has always named as its version.
_API_VERSION = "2020-10-01"
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_ROUTING = "connexion_routing"  # Where Connexion notes which operation it found.
_CONTEXT = "connexion_context"  # Where operations find their arguments.
_SEND = "antiphon_send"
# Methods that take no body here. Connexion would read a form that a media type promises.
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope["headers"])
        # A slash too many at the end is forgiven; otherwise it would be answered by a redirect.
        scope["path"] = scope["path"].rstrip("/") or "/"
        scope["headers"] = [_lower_media_type(header) for header in scope["headers"]]
        if scope["method"] in _WITHOUT_BODY:
            scope["headers"] = [h for h in scope["headers"] if h[0] != b"content-type"]
        extensions = scope.setdefault("extensions", {})
        extensions[_SEND] = send

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - started
                headers = MutableHeaders(raw=message["headers"])
                headers["x-request-id"] = request_id
                headers["openai-processing-ms"] = str(round(seconds * 1000))
                headers["openai-version"] = _API_VERSION
                headers.setdefault("cache-control", "no-store")
                operation = extensions.get(_ROUTING, {}).get("operation_id") or "unrouted"
                self._metrics.request_answered(operation, message["status"], seconds)
                _logger.info(
                    "request",
                    method=scope["method"],
                    operation=operation,
                    status=message["status"],
                    ms=round(seconds * 1000, 1),
                )
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_headers)
            finally:
                # What sends holds the scope: they would keep each other, and the body, until
                # garbage is collected, and for a large body that takes long. Timers that were
                # begun meanwhile, such as uvicorn's for the connection, hold the context.
                extensions.pop(_CONTEXT, {}).pop("payload", None)
                extensions.pop(_SEND)


def body_send(scope: Scope, send: Send) -> Send:
    """What to send the body of a stream with, once its head is sent.

    It goes past all middleware, which has nothing to add to a body and costs a tenth of an event.
    """
    direct: Send = scope["extensions"].get(_SEND, send)
    return direct


def _request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's own id if it is a sane one, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return value.decode("ascii")
    return ids.request_id()


def _lower_media_type(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Media types ignore case, but Connexion skips the check of a body whose type it misreads."""
    name, value = header
    if name != b"content-type":
        return header
    media_type, separator, parameters = value.partition(b";")
    return name, media_type.strip().lower() + separator + parameters
