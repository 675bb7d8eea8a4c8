"""The items of a response while they are made: small state machines."""

from collections.abc import Mapping
from typing import Any, cast

import orjson

from antiphon import ids
from antiphon.responses.open_item import Emitter, OpenContent, OpenItem
from antiphon.responses.open_reasoning import OpenReasoning
from antiphon.responses.presentation import Presentation, ShownTool
from antiphon.spec.types import (
    JsonObject,
    Logprob,
    MessagePhase,
    OutputCustomToolCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputText,
    OutputToolSearchCall,
)
from antiphon.turn import TextDelta, TokenLogprob


class OpenMessage(OpenContent):
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
            opened = OpenReasoning(index, presentation)
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
