"""The items of a response while they are made: small state machines.

An item is announced empty, filled by deltas and closed, and its place and ids never change. It
takes in a delta only once its event is written, so that what the log refuses spoils nothing that is
said later, the failure included.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import orjson

from antiphon import ids
from antiphon.responses.presentation import Presentation, ShownTool
from antiphon.spec.types import (
    ItemStatus,
    JsonObject,
    Logprob,
    MessagePhase,
    OutputCustomToolCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    OutputToolSearchCall,
    ReasoningText,
    StreamEvent,
)
from antiphon.turn import TextDelta, TokenLogprob


class Emitter(Protocol):
    """Writes the events of items."""

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        ...

    def emit(self, kind: str, **fields: Any) -> None:
        """Write an event made of its fields."""
        ...

    def append(self, event: StreamEvent) -> None:
        """Write a whole event."""
        ...


class OpenItem:
    """An item from its announcement to its end."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.status: ItemStatus = "in_progress"

    def snapshot(self) -> OutputItem:
        """The item as it stands, sharing nothing that will change."""
        raise NotImplementedError

    def restore(self, item: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self.id = item["id"]

    def opened(self, to: Emitter) -> None:
        """Write what follows the announcement."""

    def closing(self, to: Emitter) -> None:
        """Write what comes before the item's end. `status` is already final."""
        raise NotImplementedError

    def close(self, to: Emitter, *, whole: bool = True) -> None:
        """End the item, if it has not ended."""
        if self.status == "in_progress":
            self.status = "completed" if whole else "incomplete"
            self.closing(to)
            to.emit("response.output_item.done", output_index=self.index, item=self.snapshot())


class _OpenContent(OpenItem):
    """An item whose words stand in one content part."""

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self._texts: list[str] = []
        self._place = {"item_id": self.id, "output_index": self.index, "content_index": 0}
        self._announced = False

    def part(self) -> OutputText | ReasoningText:
        """The part as it stands."""
        raise NotImplementedError

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._place["item_id"] = self.id
        self._announced = bool(item["content"])
        self._texts = [part["text"] for part in item["content"]]

    def opened(self, to: Emitter) -> None:
        self._announced = True
        to.emit("response.content_part.added", **self._place, part=self.part())


class OpenMessage(_OpenContent):
    def __init__(self, index: int) -> None:
        super().__init__(ids.message_id(), index)
        self._logprobs: list[Logprob] = []
        #: What kind of message it is, once that is known.
        self.phase: MessagePhase | None = None

    def part(self) -> OutputText:
        return {
            "type": "output_text",
            "text": "".join(self._texts),
            "annotations": [],
            "logprobs": list(self._logprobs),
        }

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._logprobs = [logprob for part in item["content"] for logprob in part["logprobs"]]

    def snapshot(self) -> OutputMessage:
        item: OutputMessage = {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": self.status,
            "content": [self.part()] if self._announced else [],
        }
        if self.phase is not None:
            item["phase"] = self.phase
        return item

    def add(self, to: Emitter, delta: TextDelta) -> None:
        logprobs = [_logprob(token) for token in delta.logprobs] if delta.logprobs else []
        to.append(
            {
                "type": "response.output_text.delta",
                "sequence_number": to.next_number,
                "item_id": self.id,
                "output_index": self.index,
                "content_index": 0,
                "delta": delta.text,
                "logprobs": logprobs,
            }
        )
        self._texts.append(delta.text)
        self._logprobs += logprobs

    def closing(self, to: Emitter) -> None:
        part = self.part()
        to.emit(
            "response.output_text.done",
            **self._place,
            text=part["text"],
            logprobs=part["logprobs"],
        )
        to.emit("response.content_part.done", **self._place, part=part)


class OpenReasoning(_OpenContent):
    """`seal` makes the sealed form of the whole text, if that is wanted. With `hidden` the text
    itself is not shown."""

    def __init__(
        self, index: int, *, seal: Callable[[str], str] | None = None, hidden: bool = False
    ) -> None:
        super().__init__(ids.reasoning_id(), index)
        self._seal = seal
        self._hidden = hidden
        self._sealed: str | None = None

    def part(self) -> ReasoningText:
        return {"type": "reasoning_text", "text": "".join(self._texts)}

    def snapshot(self) -> OutputReasoning:
        item: OutputReasoning = {
            "type": "reasoning",
            "id": self.id,
            "status": self.status,
            "summary": [],
            "content": [self.part()] if self._announced else [],
        }
        if self._sealed is not None:
            item["encrypted_content"] = self._sealed
        return item

    def opened(self, to: Emitter) -> None:
        if not self._hidden:
            super().opened(to)

    def add(self, to: Emitter, text: str) -> None:
        if not self._hidden:
            to.emit("response.reasoning_text.delta", **self._place, delta=text)
        self._texts.append(text)

    def closing(self, to: Emitter) -> None:
        part = self.part()
        if self._seal is not None:
            self._sealed = self._seal(part["text"])
        if self._announced:
            to.emit("response.reasoning_text.done", **self._place, text=part["text"])
            to.emit("response.content_part.done", **self._place, part=part)


class OpenCallable(OpenItem):
    """A call of something that the client is to run."""

    def __init__(self, item_id: str, index: int, shown: ShownTool) -> None:
        super().__init__(item_id, index)
        self._call_id = ids.call_id()
        self._shown = shown
        self._pieces: list[str] = []

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._call_id = item["call_id"]
        if "name" in item:
            self._shown = ShownTool(item["name"], item.get("namespace"))

    def add(self, to: Emitter, text: str) -> None:
        """Take in more of what it is called with."""
        raise NotImplementedError


class OpenCall(OpenCallable):
    def __init__(self, index: int, shown: ShownTool) -> None:
        super().__init__(ids.function_call_id(), index, shown)

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._pieces = [item["arguments"]]

    def snapshot(self) -> OutputFunctionCall:
        item: OutputFunctionCall = {
            "type": "function_call",
            "id": self.id,
            "call_id": self._call_id,
            "name": self._shown.name,
            "arguments": "".join(self._pieces),
            "status": self.status,
        }
        if self._shown.namespace is not None:
            item["namespace"] = self._shown.namespace
        return item

    def add(self, to: Emitter, text: str) -> None:
        to.emit(
            "response.function_call_arguments.delta",
            item_id=self.id,
            output_index=self.index,
            delta=text,
        )
        self._pieces.append(text)

    def closing(self, to: Emitter) -> None:
        if self.status == "incomplete":
            return
        if not self._pieces:
            # A call without arguments still carries a JSON object.
            self.add(to, "{}")
        to.emit(
            "response.function_call_arguments.done",
            item_id=self.id,
            output_index=self.index,
            name=self._shown.name,
            arguments="".join(self._pieces),
        )


class OpenCustomCall(OpenCallable):
    def __init__(self, index: int, shown: ShownTool) -> None:
        super().__init__(ids.custom_tool_call_id(), index, shown)

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._pieces = [item["input"]]

    def snapshot(self) -> OutputCustomToolCall:
        item: OutputCustomToolCall = {
            "type": "custom_tool_call",
            "id": self.id,
            "call_id": self._call_id,
            "name": self._shown.name,
            "input": "".join(self._pieces),
            "status": self.status,
        }
        if self._shown.namespace is not None:
            item["namespace"] = self._shown.namespace
        return item

    def add(self, to: Emitter, text: str) -> None:
        to.emit(
            "response.custom_tool_call_input.delta",
            item_id=self.id,
            output_index=self.index,
            delta=text,
        )
        self._pieces.append(text)

    def closing(self, to: Emitter) -> None:
        if self.status != "incomplete":
            to.emit(
                "response.custom_tool_call_input.done",
                item_id=self.id,
                output_index=self.index,
                input="".join(self._pieces),
            )


class OpenSearch(OpenCallable):
    """A search for tools. There are no events of what is searched for: it stands in the whole item,
    which says nothing of it before."""

    def __init__(self, index: int, shown: ShownTool) -> None:
        super().__init__(ids.tool_search_call_id(), index, shown)
        self._arguments: JsonObject = {}

    def snapshot(self) -> OutputToolSearchCall:
        return {
            "type": "tool_search_call",
            "id": self.id,
            "call_id": self._call_id,
            "execution": "client",
            "arguments": self._arguments,
            "status": self.status,
        }

    def add(self, to: Emitter, text: str) -> None:
        self._pieces.append(text)

    def closing(self, to: Emitter) -> None:
        if self.status != "incomplete":
            self._arguments = orjson.loads("".join(self._pieces) or "{}")


class EndedItem(OpenItem):
    """An item that was whole before."""

    def __init__(self, index: int, item: OutputItem) -> None:
        super().__init__(item["id"] or "", index)
        self.status = "completed"
        self._item = item

    def snapshot(self) -> OutputItem:
        return self._item


def reopened(index: int, item: OutputItem, presentation: Presentation) -> OpenItem:
    """An item as it goes on from a snapshot."""
    fields = cast(Mapping[str, Any], item)
    if fields["status"] != "in_progress":
        return EndedItem(index, item)
    opened: OpenItem
    match fields["type"]:
        case "message":
            opened = OpenMessage(index)
        case "reasoning":
            opened = OpenReasoning(
                index, seal=presentation.seal, hidden=presentation.hides_reasoning
            )
        case "function_call":
            opened = OpenCall(index, ShownTool(""))
        case "custom_tool_call":
            opened = OpenCustomCall(index, ShownTool(""))
        case kind:
            assert kind == "tool_search_call", kind
            opened = OpenSearch(index, ShownTool(""))
    opened.restore(fields)
    return opened


def _logprob(token: TokenLogprob) -> Logprob:
    return {
        "token": token.text,
        "logprob": token.logprob,
        "bytes": list(token.data),
        "top_logprobs": [
            {"token": top.text, "logprob": top.logprob, "bytes": list(top.data)}
            for top in token.top
        ],
    }
