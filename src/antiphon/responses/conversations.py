"""The operations on conversations, for whatever transport."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from antiphon.errors import ConversationNotFound, InvalidValue, ItemNotFound, UnknownURL
from antiphon.metrics import Metrics
from antiphon.principal import Principal
from antiphon.responses.gate import Dropped, Gate
from antiphon.responses.items import normalized
from antiphon.responses.pages import item_list
from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.references import resolved
from antiphon.responses.refusals import on_conversation, shortened, told
from antiphon.responses.replay import shown
from antiphon.spec.types import Conversation, ItemList, ItemResource
from antiphon.store import records
from antiphon.store.base import Store
from antiphon.store.failures import NotFound
from antiphon.store.records import Order, Page


class ConversationService:
    """Keeps conversations. Bodies come in as the document allows them.

    `stored` is None where nothing is kept: then no conversation is found and none can be made.
    `reasoning` opens what is sealed.
    Whatever belongs to another raises `ConversationNotFound` or `ItemNotFound`.
    """

    def __init__(
        self, stored: Store | None, gate: Gate, metrics: Metrics, reasoning: ReasoningPolicy
    ) -> None:
        self._stored = stored
        self._gate = gate
        self._metrics = metrics
        self._reasoning = reasoning

    async def create(
        self, principal: Principal, body: Mapping[str, Any]
    ) -> tuple[Conversation, Sequence[Dropped]]:
        """Begin a conversation; also returns what was left out of the request."""
        if self._stored is None:
            raise UnknownURL("This server keeps no conversations.")
        kept, dropped = self._admitted(body)
        items = await self._items(self._stored, principal, kept.get("items", []))
        with told():
            made = await self._stored.conversations.create(
                principal, kept.get("metadata", {}), items
            )
        return _shown(made), dropped

    async def retrieve(self, principal: Principal, conversation_id: str) -> Conversation:
        conversations = self._found(conversation_id).conversations
        with on_conversation(conversation_id):
            return _shown(await conversations.retrieve(principal, conversation_id))

    async def update(
        self, principal: Principal, conversation_id: str, body: Mapping[str, Any]
    ) -> tuple[Conversation, Sequence[Dropped]]:
        """Replace the metadata; also returns what was left out of the request."""
        conversations = self._found(conversation_id).conversations
        kept, dropped = self._admitted(body)
        with on_conversation(conversation_id):
            updated = await conversations.update(
                principal, conversation_id, kept.get("metadata", {})
            )
        return _shown(updated), dropped

    async def delete(self, principal: Principal, conversation_id: str) -> None:
        """Raises `ConversationLocked` while a response is being made in it."""
        conversations = self._found(conversation_id).conversations
        with on_conversation(conversation_id):
            await conversations.delete(principal, conversation_id)

    async def add_items(
        self, principal: Principal, conversation_id: str, body: Mapping[str, Any]
    ) -> tuple[ItemList, Sequence[Dropped]]:
        """Append items; returns them as stored, and what was left out of the request.

        Raises `ConversationLocked` while a response is being made in it.
        """
        stored = self._found(conversation_id)
        kept, dropped = self._admitted(body)
        items = await self._items(stored, principal, kept["items"])
        with on_conversation(conversation_id):
            added = await stored.conversations.add_items(principal, conversation_id, items)
        return item_list(Page(added, has_more=False)), dropped

    async def list_items(
        self,
        principal: Principal,
        conversation_id: str,
        *,
        after: str | None,
        limit: int,
        order: Order,
    ) -> ItemList:
        conversations = self._found(conversation_id).conversations
        try:
            with _on_item(conversation_id):
                page = await conversations.list_items(
                    principal, conversation_id, after=after, limit=limit, order=order
                )
        except ItemNotFound as error:
            raise InvalidValue(
                f"Invalid 'after': there is no item '{shortened(after or '')}' in this list.",
                param="after",
            ) from error
        return item_list(page)

    async def item(self, principal: Principal, conversation_id: str, item_id: str) -> ItemResource:
        conversations = self._found(conversation_id).conversations
        with _on_item(conversation_id):
            found = await conversations.item(principal, conversation_id, item_id)
        return cast(ItemResource, shown(found))

    async def delete_item(
        self, principal: Principal, conversation_id: str, item_id: str
    ) -> Conversation:
        """Raises `ConversationLocked` while a response is being made in it."""
        conversations = self._found(conversation_id).conversations
        with _on_item(conversation_id):
            return _shown(await conversations.delete_item(principal, conversation_id, item_id))

    def _found(self, conversation_id: str) -> Store:
        if self._stored is None:
            raise ConversationNotFound(
                f"There is no conversation '{shortened(conversation_id)}'.", param="conversation_id"
            )
        return self._stored

    def _admitted(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], list[Dropped]]:
        kept, dropped = self._gate.apply_conversation(body)
        self._metrics.count_dropped(dropped)
        return kept, dropped

    async def _items(
        self, stored: Store, principal: Principal, given: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        items = normalized(given)
        await self._reasoning.check(principal, items, field="items")
        return await resolved(stored.responses, principal, items, field="items")


@contextmanager
def _on_item(conversation_id: str) -> Iterator[None]:
    """For requests that name an item of a conversation."""
    with on_conversation(conversation_id):
        try:
            yield
        except NotFound as error:
            if error.what == conversation_id:
                raise
            raise ItemNotFound(
                f"There is no item '{shortened(error.what)}' in the conversation.",
                param="item_id",
            ) from error


def _shown(conversation: records.Conversation) -> Conversation:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": dict(conversation.metadata),
    }
