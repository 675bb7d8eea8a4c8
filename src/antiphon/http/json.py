"""JSON answers, written by orjson."""

from collections.abc import Mapping

import orjson
from starlette.responses import Response


def json_response(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer that holds `body` as JSON."""
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )
