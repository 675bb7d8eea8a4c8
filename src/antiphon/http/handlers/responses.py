"""`/v1/responses`."""

from typing import Any

import connexion
from starlette.responses import Response

from antiphon.errors import MethodNotAllowed, UpgradeRequired
from antiphon.http.answers import EventStream, JsonAnswer, dropped_headers
from antiphon.http.json import json_response
from antiphon.principal import Principal
from antiphon.responses.service import ResponseService


class ResponsesHandlers:
    """`timeout_seconds` is how long an answer that is not streamed may take."""

    def __init__(self, service: ResponseService, *, timeout_seconds: float) -> None:
        self._service = service
        self._timeout_seconds = timeout_seconds

    async def create_response(self, payload: dict[str, Any], user: Principal) -> Response:
        started = await self._service.create(user, payload)
        headers = dropped_headers(started.dropped)
        if started.streams:
            return EventStream(started.run, headers)
        return JsonAnswer(started.run, headers, timeout_seconds=self._timeout_seconds)

    async def count_input_tokens(self, payload: dict[str, Any], user: Principal) -> Response:
        counted = await self._service.count_input_tokens(user, payload)
        body = {"object": "response.input_tokens", "input_tokens": counted.input_tokens}
        return json_response(body, headers=dropped_headers(counted.dropped))

    async def connect_responses(self) -> Response:
        if connexion.request.headers.get("upgrade", "").lower() == "websocket":
            raise UpgradeRequired(
                "WebSocket connections are not served. Send requests as POST /v1/responses."
            )
        raise MethodNotAllowed(
            "/v1/responses knows GET only for WebSocket connections. It knows POST.",
            headers={"allow": "POST"},
        )
