"""Every failure as the one error body of the document."""

from collections.abc import Awaitable, Callable

import orjson
import structlog
from connexion.exceptions import OAuthProblem, ProblemException, UnsupportedMediaTypeProblem
from connexion.lifecycle import ConnexionRequest, ConnexionResponse
from starlette.exceptions import HTTPException

from antiphon import errors
from antiphon.http.routing import MethodTable
from antiphon.http.security import CHALLENGE

_logger = structlog.get_logger("antiphon.http")

ErrorHandler = Callable[[ConnexionRequest, Exception], Awaitable[ConnexionResponse]]


def error_handler(methods: MethodTable) -> ErrorHandler:
    """The handler for everything that operations and middleware raise."""

    async def handle(request: ConnexionRequest, exception: Exception) -> ConnexionResponse:
        error = _as_api_error(request, exception, methods)
        return ConnexionResponse(
            status_code=error.status,
            mimetype="application/json",
            content_type="application/json",
            body=orjson.dumps({"error": error.detail()}),
            headers=error.headers,
        )

    return handle


def _as_api_error(
    request: ConnexionRequest, exception: Exception, methods: MethodTable
) -> errors.APIError:
    path = request.scope["path"]
    match exception:
        case errors.APIError():
            return exception
        case OAuthProblem():
            return errors.MissingKey(
                "No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
                headers=CHALLENGE,
            )
        case UnsupportedMediaTypeProblem():
            return errors.UnsupportedMediaType(
                "The body must be JSON: send it with 'Content-Type: application/json'."
            )
        case HTTPException(status_code=404):
            return errors.UnknownURL(f"There is no {request.method} {path[:128]}.")
        case HTTPException(status_code=405):
            allowed = ", ".join(methods.allowed(path))
            return errors.MethodNotAllowed(
                f"{path[:128]} does not know {request.method}. It knows {allowed}.",
                headers={"allow": allowed},
            )
        case ProblemException(status=status) if 400 <= status < 500:
            return errors.InvalidValue(str(exception.detail or exception.title))
    _logger.error("request crashed", path=path, exc_info=exception)
    return errors.ServerError("The server failed. The cause is in its log.")
