"""Checks of bodies and parameters, in the places where Connexion lets its own be replaced.

A body is read once, within the limits of size and time, parsed by orjson and checked against the
document; the handler gets the parsed value as `payload`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol

import orjson
from connexion.lifecycle import ConnexionRequest
from connexion.validators.abstract import AbstractRequestBodyValidator
from connexion.validators.parameter import ParameterValidator as ConnexionParameterValidator
from starlette.datastructures import Headers

from antiphon import errors
from antiphon.http.routing import SCHEMA_POINTER
from antiphon.spec import Contract

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Scope = MutableMapping[str, Any]


class BodyLimits(Protocol):
    """What a body may be: its size in bytes, and the seconds it may take to arrive."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def body_timeout_seconds(self) -> float: ...


def validator_map(contract: Contract, limits: BodyLimits) -> dict[str, Any]:
    """What Connexion is to check requests with."""
    for schema in contract.body_schemas():
        contract.accepts(schema, None)  # Compiles it, so that the first request does not wait.

    class BodyValidator(AbstractRequestBodyValidator):  # Made anew for each request.
        async def wrap_receive(self, receive: Receive, *, scope: Scope) -> tuple[Receive, Scope]:
            raw = await _read(receive, Headers(raw=scope["headers"]), limits)
            if not raw and self._required:
                raise errors.InvalidJSON("The body is empty, but must be a JSON object.")
            try:
                value = orjson.loads(raw or b"{}")
            except orjson.JSONDecodeError as error:
                raise errors.InvalidJSON(f"The body is not valid JSON: {error}.") from None
            pointer = self._schema[SCHEMA_POINTER]
            if not contract.accepts(pointer, value):
                raise contract.explain(pointer, value)
            extensions = scope.setdefault("extensions", {})
            extensions.setdefault("connexion_context", {})["payload"] = value
            return receive, scope

    class ParameterValidator(ConnexionParameterValidator):  # Likewise.
        # Query parameters that the document does not name are let through: clients send their own.
        def validate_request(self, request: ConnexionRequest) -> None:
            for parameter, value in _parameters(self.parameters, request):
                if self.validate_parameter(parameter["in"], value, parameter):
                    raise contract.explain(parameter[SCHEMA_POINTER], value, name=parameter["name"])

    return {"body": {"application/json": BodyValidator}, "parameter": ParameterValidator}


def _parameters(
    parameters: Mapping[str, list[dict[str, Any]]], request: ConnexionRequest
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Every parameter of an operation with its value, converted if it could be; None if absent."""
    for parameter in parameters.get("query", ()):
        yield parameter, request.query_params.get(parameter["name"])
    for parameter in parameters.get("path", ()):
        yield parameter, request.path_params.get(parameter["name"])
    for parameter in parameters.get("header", ()):
        yield parameter, request.headers.get(parameter["name"])


async def _read(receive: Receive, headers: Headers, limits: BodyLimits) -> bytes:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise errors.UnsupportedMediaType(
            f"Content-Encoding '{encoding[:32]}' is not supported. Send the body as it is."
        )
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.max_body_bytes:
        raise _too_large(limits)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_timeout_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise errors.RequestTimeout("The client left before the body was complete.")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limits.max_body_bytes:
                    raise _too_large(limits)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise errors.RequestTimeout(
            f"The body did not arrive within {limits.body_timeout_seconds:g} seconds."
        ) from None


def _too_large(limits: BodyLimits) -> errors.PayloadTooLarge:
    # The rest of the body is not read, so the connection cannot be used again.
    return errors.PayloadTooLarge(
        f"The body is larger than {limits.max_body_bytes} bytes.", headers={"connection": "close"}
    )
