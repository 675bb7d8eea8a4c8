"""`/v1/conversations`."""

from typing import Any, Literal

from starlette.responses import Response

from antiphon.http.answers import dropped_headers
from antiphon.http.json import json_response
from antiphon.principal import Principal
from antiphon.responses.conversations import ConversationService


class ConversationsHandlers:
    def __init__(self, service: ConversationService) -> None:
        self._service = service

    async def create_conversation(self, payload: dict[str, Any], user: Principal) -> Response:
        conversation, dropped = await self._service.create(user, payload)
        return json_response(conversation, headers=dropped_headers(dropped))

    async def retrieve_conversation(self, conversation_id: str, user: Principal) -> Response:
        return json_response(await self._service.retrieve(user, conversation_id))

    async def update_conversation(
        self, conversation_id: str, payload: dict[str, Any], user: Principal
    ) -> Response:
        conversation, dropped = await self._service.update(user, conversation_id, payload)
        return json_response(conversation, headers=dropped_headers(dropped))

    async def delete_conversation(self, conversation_id: str, user: Principal) -> Response:
        await self._service.delete(user, conversation_id)
        return json_response(
            {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
        )

    async def create_conversation_items(
        self, conversation_id: str, payload: dict[str, Any], user: Principal
    ) -> Response:
        added, dropped = await self._service.add_items(user, conversation_id, payload)
        return json_response(added, headers=dropped_headers(dropped))

    async def list_conversation_items(
        self,
        conversation_id: str,
        user: Principal,
        limit: int,
        order: Literal["asc", "desc"],
        after: str | None = None,
    ) -> Response:
        page = await self._service.list_items(
            user, conversation_id, after=after, limit=limit, order=order
        )
        return json_response(page)

    async def retrieve_conversation_item(
        self, conversation_id: str, item_id: str, user: Principal
    ) -> Response:
        return json_response(await self._service.item(user, conversation_id, item_id))

    async def delete_conversation_item(
        self, conversation_id: str, item_id: str, user: Principal
    ) -> Response:
        return json_response(await self._service.delete_item(user, conversation_id, item_id))
