"""What a request refers to, loaded: the history it continues and the items it names."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from antiphon.principal import Principal
from antiphon.responses.admission import HistoryBudget
from antiphon.responses.items import bare_reasoning, normalized
from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.references import reasoning_not_found, resolved
from antiphon.responses.refusals import on_conversation, on_previous
from antiphon.responses.request import conversation_id
from antiphon.responses.structure import arranged
from antiphon.responses.tools import tool_table
from antiphon.store.base import Store
from antiphon.store.records import History, ItemBody

_NOTHING = History()


@dataclass(frozen=True, slots=True)
class Context:
    """The items before a request, and its own, complete and with ids."""

    history: History
    items: list[dict[str, Any]]

    @property
    def all_items(self) -> list[ItemBody]:
        """All that the model is to be shown, oldest first."""
        return [*self.history.items, *self.items]


class ContextLoader:
    """Loads contexts from a store; from the requests alone where there is none.

    With `strict` items are held to the strict rules of `structure`. `reasoning` opens what is
    sealed.
    """

    def __init__(
        self,
        store: Store | None,
        budget: HistoryBudget,
        *,
        strict: bool = False,
        reasoning: ReasoningPolicy | None = None,
    ) -> None:
        self._store = store
        self._budget = budget
        self._strict = strict
        self._reasoning = reasoning or ReasoningPolicy()

    @asynccontextmanager
    async def loaded(self, principal: Principal, body: Mapping[str, Any]) -> AsyncIterator[Context]:
        """The context of a body that passed the gate, which counts as being in hand until left.

        Raises what `refusals` has for what it continues, `ItemNotFound`, `InvalidValue` for items
        that do not go together and for a tool choice that cannot be met,
        `InvalidEncryptedContent`, and `HistoryBusy`.
        """
        previous, conversation = body.get("previous_response_id"), conversation_id(body)
        given = body.get("input", [])
        items, bare = normalized(given), bare_reasoning(given)
        await self._reasoning.check(principal, items)
        if self._store is None:
            for place in sorted(bare):
                raise reasoning_not_found(items[place]["id"], place)
            yield self._checked(body, _NOTHING, items)
            return
        items = await resolved(self._store.responses, principal, items, bare=bare)
        if previous is not None:
            responses = self._store.responses
            with on_previous(previous):
                num_bytes = await responses.history_bytes(principal, previous)
            with self._budget.taking(num_bytes):
                with on_previous(previous):
                    history = await responses.history(principal, previous)
                yield self._checked(body, history, items)
        elif conversation is not None:
            conversations = self._store.conversations
            with on_conversation(conversation, "conversation"):
                num_bytes = await conversations.history_bytes(principal, conversation)
            with self._budget.taking(num_bytes):
                with on_conversation(conversation, "conversation"):
                    history = await conversations.history(principal, conversation)
                yield self._checked(body, history, items)
        else:
            yield self._checked(body, _NOTHING, items)

    def _checked(
        self, body: Mapping[str, Any], history: History, items: list[dict[str, Any]]
    ) -> Context:
        items = arranged(
            history.items, items, continues=history is not _NOTHING, strict=self._strict
        )
        context = Context(history, items)
        tool_table(body.get("tools", ()), context.all_items).choice(body.get("tool_choice"))
        return context
