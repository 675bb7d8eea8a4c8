"""The items of a response while they are made: small state machines.

An item is announced empty, filled by deltas and closed, and its place and ids never change. It
takes in a delta only once its event is written, so that what the log refuses spoils nothing that is
said later, the failure included.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from antiphon import ids
from antiphon.spec.types import (
    ItemStatus,
    Logprob,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
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
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": self.status,
            "content": [self.part()] if self._announced else [],
        }

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
    def __init__(self, index: int) -> None:
        super().__init__(ids.reasoning_id(), index)

    def part(self) -> ReasoningText:
        return {"type": "reasoning_text", "text": "".join(self._texts)}

    def snapshot(self) -> OutputReasoning:
        return {
            "type": "reasoning",
            "id": self.id,
            "status": self.status,
            "summary": [],
            "content": [self.part()] if self._announced else [],
        }

    def add(self, to: Emitter, text: str) -> None:
        to.emit("response.reasoning_text.delta", **self._place, delta=text)
        self._texts.append(text)

    def closing(self, to: Emitter) -> None:
        part = self.part()
        to.emit("response.reasoning_text.done", **self._place, text=part["text"])
        to.emit("response.content_part.done", **self._place, part=part)


class OpenCall(OpenItem):
    def __init__(self, index: int, name: str = "") -> None:
        super().__init__(ids.function_call_id(), index)
        self._call_id = ids.call_id()
        self._name = name
        self._arguments: list[str] = []

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._call_id = item["call_id"]
        self._name = item["name"]
        self._arguments = [item["arguments"]]

    def snapshot(self) -> OutputFunctionCall:
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
            "status": self.status,
        }

    def add(self, to: Emitter, text: str) -> None:
        to.emit(
            "response.function_call_arguments.delta",
            item_id=self.id,
            output_index=self.index,
            delta=text,
        )
        self._arguments.append(text)

    def closing(self, to: Emitter) -> None:
        if self.status == "incomplete":
            return
        if not self._arguments:
            # A call without arguments still carries a JSON object.
            self.add(to, "{}")
        to.emit(
            "response.function_call_arguments.done",
            item_id=self.id,
            output_index=self.index,
            name=self._name,
            arguments="".join(self._arguments),
        )


class EndedItem(OpenItem):
    """An item that was whole before."""

    def __init__(self, index: int, item: OutputItem) -> None:
        super().__init__(item["id"] or "", index)
        self.status = "completed"
        self._item = item

    def snapshot(self) -> OutputItem:
        return self._item


_KINDS: Mapping[str, type[OpenMessage] | type[OpenReasoning] | type[OpenCall]] = {
    "message": OpenMessage,
    "reasoning": OpenReasoning,
    "function_call": OpenCall,
}


def reopened(index: int, item: OutputItem) -> OpenItem:
    """An item as it goes on from a snapshot."""
    fields = cast(Mapping[str, Any], item)
    if fields["status"] != "in_progress":
        return EndedItem(index, item)
    opened = _KINDS[fields["type"]](index)
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
