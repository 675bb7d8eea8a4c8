"""`/v1/responses`."""

from typing import Any, Literal

import connexion
from starlette.responses import Response

from antiphon.errors import InvalidValue, MethodNotAllowed, UpgradeRequired
from antiphon.http.answers import EventStream, JsonAnswer, dropped_headers
from antiphon.http.json import json_response
from antiphon.principal import Principal
from antiphon.responses.pages import item_list
from antiphon.responses.service import ResponseService


class ResponsesHandlers:
    """`timeout_seconds` is how long an answer that is not streamed may take, and
    `write_timeout_seconds` how long a reader of a stored stream may take nothing."""

    def __init__(
        self, service: ResponseService, *, timeout_seconds: float, write_timeout_seconds: float
    ) -> None:
        self._service = service
        self._timeout_seconds = timeout_seconds
        self._write_timeout_seconds = write_timeout_seconds

    async def create_response(self, payload: dict[str, Any], user: Principal) -> Response:
        key = connexion.request.headers.get("idempotency-key")
        started = await self._service.create(user, payload, idempotency_key=key)
        headers = dropped_headers(started.dropped)
        answer = started.answer
        if started.streams:
            # Who asked for it in the background has a place among the readers.
            seconds = self._write_timeout_seconds if payload.get("background") else None
            return EventStream(answer.tail, answer.leave, headers, write_timeout_seconds=seconds)
        return JsonAnswer(answer, headers, timeout_seconds=self._timeout_seconds)

    async def count_input_tokens(self, payload: dict[str, Any], user: Principal) -> Response:
        counted = await self._service.count_input_tokens(user, payload)
        body = {"object": "response.input_tokens", "input_tokens": counted.input_tokens}
        return json_response(body, headers=dropped_headers(counted.dropped))

    async def retrieve_response(
        self, response_id: str, user: Principal, stream: bool, starting_after: int | None = None
    ) -> Response:
        stored = self._service.stored(response_id)
        if stream:
            reading = await stored.tail(user, response_id, starting_after)
            return EventStream(
                reading.tail,
                reading.leave,
                {},
                first=reading.first,
                write_timeout_seconds=self._write_timeout_seconds,
            )
        if starting_after is not None:
            raise InvalidValue(
                "Invalid 'starting_after': only streams begin after an event. Send 'stream=true'.",
                param="starting_after",
            )
        return json_response(await stored.retrieve(user, response_id))

    async def delete_response(self, response_id: str, user: Principal) -> Response:
        await self._service.stored(response_id).delete(user, response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def cancel_response(self, response_id: str, user: Principal) -> Response:
        return json_response(await self._service.stored(response_id).cancel(user, response_id))

    async def list_input_items(
        self,
        response_id: str,
        user: Principal,
        limit: int,
        order: Literal["asc", "desc"],
        after: str | None = None,
    ) -> Response:
        page = await self._service.stored(response_id).input_items(
            user, response_id, after=after, limit=limit, order=order
        )
        return json_response(item_list(page))

    async def connect_responses(self) -> Response:
        if connexion.request.headers.get("upgrade", "").lower() == "websocket":
            raise UpgradeRequired(
                "WebSocket connections are not served. Send requests as POST /v1/responses."
            )
        raise MethodNotAllowed(
            "/v1/responses knows GET only for WebSocket connections. It knows POST.",
            headers={"allow": "POST"},
        )
