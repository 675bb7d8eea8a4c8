"""What the placeholders of a flow stand for at the server under test.

Only requests were recorded, so this is found out from what the server answers: a response that a
request names is the latest that the flow made, an item is the first of its type that the server
made and that has no name yet. Ids that a client made up stay as they are.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from responses_conformance.judging import Seen
from responses_conformance.recorded.bodies import ANSWERS, PREFIXES, Recorded, is_placeholder

_SEALED = "encrypted_content"


class Unmet(Exception):
    """The server did not do what a request relies on. Says what."""


@dataclass(slots=True)
class _Made:
    """An item that the server told, and the response it is of, if any."""

    item: Mapping[str, Any]
    response: str | None


class Names:
    """The ids of one flow."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._items: dict[str, _Made] = {}
        self._responses: list[str] = []
        self._conversations: list[str] = []
        self._named: dict[str, Mapping[str, Any]] = {}
        self._taken: set[str] = set()
        self._own: set[str] = set()
        #: Calls that a body refers to and does not answer yet.
        self._referred: list[Mapping[str, Any]] = []
        #: How much sealed reasoning without an id a body held so far: it goes by its place.
        self._nameless = 0

    def learn(self, request: Recorded, seen: Seen) -> None:
        """Take note of what the answer to a request told."""
        told = seen.response
        if not isinstance(told, dict):
            return
        kind, identity = told.get("object"), told.get("id")
        if request.creates and isinstance(identity, str):
            self._responses.append(identity)
            self._note(told.get("output"), identity)
        elif kind == "conversation" and request.path == "/conversations":
            self._conversations.append(str(identity))
        elif kind == "list" and request.path.partition("?")[0].endswith("items"):
            self._note(told.get("data"), None)

    def _note(self, items: Any, response: str | None) -> None:
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                self._items.setdefault(item["id"], _Made(item, response))

    def path(self, request: Recorded) -> str:
        """A request's path with the server's ids. Raises `Unmet`."""
        place, mark, query = request.path.partition("?")
        parts = place.split("/")
        for at, part in enumerate(parts):
            if is_placeholder(part):
                parts[at] = self._owner(part)
        return f"{'/'.join(parts)}{mark}{query}"

    def body(self, request: Recorded) -> Any:
        """A request's body with the server's ids. Raises `Unmet`."""
        body = copy.deepcopy(request.body)
        if not isinstance(body, dict):
            return body
        previous = body.get("previous_response_id")
        if is_placeholder(previous):
            body["previous_response_id"] = previous = self._owner(previous)
        conversation = body.get("conversation")
        if is_placeholder(conversation):
            body["conversation"] = self._owner(conversation)
        elif isinstance(conversation, dict) and is_placeholder(conversation.get("id")):
            conversation["id"] = self._owner(conversation["id"])
        items = body.get("input") if request.creates else body.get("items")
        if isinstance(items, list):
            self._referred, self._nameless = [], 0
            own = {item.get("call_id") for item in items if _is_call(item)}
            for item in items:
                if isinstance(item, dict):
                    self._fill(item, own, previous)
        return body

    def _owner(self, placeholder: str) -> str:
        """The response, conversation or item that something belongs to."""
        if placeholder in self._known:
            return self._known[placeholder]
        prefix = placeholder.partition("_")[0]
        if prefix in ("resp", "conv"):
            made = self._responses if prefix == "resp" else self._conversations
            free = [identity for identity in made if identity not in self._taken]
            if not free:
                what = "response" if prefix == "resp" else "conversation"
                raise Unmet(f"it names a {what} that nothing before it made")
            self._taken.add(free[-1])
            self._known[placeholder] = free[-1]
            return free[-1]
        item = self._first(PREFIXES.get(prefix), placeholder)
        if item is None:
            raise Unmet(f"it names {_article(PREFIXES.get(prefix, prefix))} that was not made")
        self._known[placeholder] = str(item["id"])
        return self._known[placeholder]

    def _fill(self, item: dict[str, Any], own: set[Any], previous: Any) -> None:
        kind = item.get("type")
        if kind == "item_reference" or (kind is None and set(item) == {"id"}):
            if is_placeholder(item.get("id")):
                placeholder, item["id"] = item["id"], self._owner(item["id"])
                self._referred.append(self._named.get(placeholder, {}))
            return
        if kind in ANSWERS:
            self._answer(item, own, previous)
            return
        identity, call_id = item.get("id"), item.get("call_id")
        key = identity if is_placeholder(identity) else call_id
        if identity is None and kind == "reasoning" and item.get(_SEALED) is not None:
            self._nameless += 1
            key = f"reasoning_{self._nameless:08}"
        made = self._first(kind, key, like=item) if is_placeholder(key) else None
        if made is not None:
            if is_placeholder(identity):
                item["id"] = self._known[identity] = str(made["id"])
            if is_placeholder(call_id) and isinstance(made.get("call_id"), str):
                item["call_id"] = self._known[call_id] = made["call_id"]
                self._named[call_id] = made
        if kind == "reasoning" and item.get(_SEALED) is not None:
            _unseal(item, made)

    def _answer(self, item: dict[str, Any], own: set[Any], previous: Any) -> None:
        """Fill in which call an item answers: one beside it, or one that the server made."""
        call_id = item.get("call_id")
        if not is_placeholder(call_id):
            return
        if call_id in self._known:
            item["call_id"] = self._known[call_id]
        elif call_id not in own:
            kind = ANSWERS[str(item["type"])]
            made = next((call for call in self._referred if call.get("type") == kind), None)
            if made is None:
                made = self._first(kind, call_id, response=previous)
            else:
                self._referred.remove(made)
            if made is None:
                raise Unmet("it answers a call that the model did not make")
            item["call_id"] = self._known[call_id] = str(made["call_id"])

    def _first(
        self,
        kind: str | None,
        placeholder: str,
        *,
        like: Mapping[str, Any] | None = None,
        response: str | None = None,
    ) -> Mapping[str, Any] | None:
        """The item of this name; or else the first of a type without a name, which it gets: of one
        role and name with `like`; those of `response` go before others. What was not there when it
        was first looked for is the client's own."""
        if kind is None:
            return None
        if placeholder in self._named or placeholder in self._own:
            return self._named.get(placeholder)
        wanted = {name: (like or {}).get(name) for name in ("role", "name")}
        free = [
            made
            for identity, made in self._items.items()
            if identity not in self._taken
            and made.item.get("type") == kind
            and all(value in (None, made.item.get(name)) for name, value in wanted.items())
        ]
        if not free:
            self._own.add(placeholder)
            return None
        made = min(free, key=lambda one: response is not None and one.response != response)
        self._named[placeholder] = made.item
        self._taken.add(str(made.item["id"]))
        return made.item


def _unseal(item: dict[str, Any], made: Mapping[str, Any] | None) -> None:
    """Put what this server sealed in the place of what another did."""
    if made is None:
        raise Unmet("it holds reasoning that this server did not seal")
    if made.get(_SEALED) is None:
        del item[_SEALED]
    else:
        item[_SEALED] = made[_SEALED]


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in ANSWERS.values()


def _article(kind: str) -> str:
    words = re.sub("_", " ", kind)
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
