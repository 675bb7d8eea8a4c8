"""Turns what a model says into the events of one response. Nothing else writes events.

The items of a response are small state machines: an item is announced empty, filled by deltas and
closed, and its place and ids never change. What arrives of the model's words, and in what pieces,
decides only how many deltas there are. An item takes in a delta only once its event is written, so
that what the log refuses spoils nothing that is said later, the failure included.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from antiphon import ids
from antiphon.errors import APIError, ServerError
from antiphon.responses.log import EventLog
from antiphon.spec.types import (
    ItemStatus,
    Logprob,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    Response,
    StreamEvent,
    Usage,
)
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)

_EVENT_OF_STATUS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}


_Opened = TypeVar("_Opened", bound="_OpenItem")


class ResponseBuilder:
    """Writes the events of `response` to `log`.

    `response` is the response as it is accepted: in progress, without output. Call `start`, then
    `feed` for each delta, then one of `finish` and `fail`; `keep_alive` at any time in between.
    """

    def __init__(self, response: Response, log: EventLog) -> None:
        self._response = response
        self.log = log
        self._items: list[_OpenItem] = []
        self._text: _OpenMessage | None = None
        self._reasoning: _OpenReasoning | None = None
        self._calls: dict[int, _OpenCall] = {}
        self._blank: list[TextDelta] = []

    def start(self) -> None:
        """Announce the response."""
        self.emit("response.created", response=self._snapshot())
        self.emit("response.in_progress", response=self._snapshot())

    def keep_alive(self) -> None:
        """Repeat that the response is in progress, for readers that would give up on silence."""
        self.emit("response.in_progress", response=self._snapshot())

    def feed(self, delta: Delta) -> None:
        """Write the events of one delta. `Finish` has none of its own; see `finish`."""
        match delta:
            case TextDelta():
                self._feed_text(delta)
            case ReasoningDelta(text):
                if text:
                    self._close_text()
                    self._open_reasoning().add(self, text)
            case CallStart(call, name):
                self._close_text()
                self._close_reasoning()
                self._calls[call] = self._open(_OpenCall(len(self._items), name))
            case CallArguments(call, text):
                if text:
                    self._calls[call].add(self, text)
            case CallEnd(call):
                self._calls.pop(call).close(self)
            case Finish():
                pass

    def finish(self, finish: Finish, usage: TokenUsage) -> None:
        """Close what is open and end the response, whole or cut short.

        A turn that ends inside a call fails: half a call must not look like one that can be made.
        """
        whole = finish.reason == "stop"
        if whole and self._calls:
            self.fail(ServerError("The model ended its turn inside a function call."), usage)
            return
        if self._blank and not self._items:
            self._open_text(self._blank)
        self._close_all(whole=whole)
        if whole:
            self._end("completed", usage, completed_at=ids.now())
        else:
            reason = "max_output_tokens" if finish.reason == "length" else finish.reason
            self._end("incomplete", usage, incomplete_details={"reason": reason})

    def fail(self, error: APIError, usage: TokenUsage | None) -> None:
        """Close what is open and end the response with an error, told in both of its events."""
        self._close_all(whole=False)
        detail = {
            "type": error.type,
            "code": error.code,
            "message": error.message,
            "param": error.param,
        }
        event = {k: detail[k] for k in ("code", "message", "param")}
        self.emit("error", **event, error=detail)
        # A response's own error knows fewer codes than HTTP answers do.
        self._end("failed", usage, error={**detail, "code": "server_error"})

    def _feed_text(self, delta: TextDelta) -> None:
        if not delta.text and not delta.logprobs:
            return
        if self._text is None:
            # White space before or between other items is layout and no message of its own.
            self._blank.append(delta)
            if delta.text.isspace() or not delta.text:
                return
            self._close_reasoning()
            self._open_text(self._blank)
            self._blank = []
        else:
            self._text.add(self, delta)

    def _open_text(self, deltas: Iterable[TextDelta]) -> None:
        self._text = self._open(_OpenMessage(len(self._items)))
        for delta in deltas:
            self._text.add(self, delta)

    def _open_reasoning(self) -> "_OpenReasoning":
        if self._reasoning is None:
            self._reasoning = self._open(_OpenReasoning(len(self._items)))
        return self._reasoning

    def _open(self, item: _Opened) -> _Opened:
        self.emit("response.output_item.added", output_index=item.index, item=item.snapshot())
        self._items.append(item)
        item.opened(self)
        return item

    def _close_text(self) -> None:
        self._blank = []
        if self._text is not None:
            self._text.close(self)
            self._text = None

    def _close_reasoning(self) -> None:
        if self._reasoning is not None:
            self._reasoning.close(self)
            self._reasoning = None

    def _close_all(self, *, whole: bool) -> None:
        for item in self._items:
            item.close(self, whole=whole)

    def _end(self, status: str, usage: TokenUsage | None, **changes: Any) -> None:
        self._response = cast(
            Response, {**self._response, "status": status, "usage": _usage(usage), **changes}
        )
        self.emit(_EVENT_OF_STATUS[status], response=self._snapshot())

    def _snapshot(self) -> Response:
        return {**self._response, "output": [item.snapshot() for item in self._items]}

    def emit(self, kind: str, **fields: Any) -> None:
        """Write an event made of its fields. For the items of this module, as is `log`."""
        event = {"type": kind, "sequence_number": self.log.next_number, **fields}
        self.log.append(cast(StreamEvent, event))


class _OpenItem:
    """An item from its announcement to its end."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.status: ItemStatus = "in_progress"

    def snapshot(self) -> OutputItem:
        """The item as it stands, sharing nothing that will change."""
        raise NotImplementedError

    def opened(self, builder: ResponseBuilder) -> None:
        """Write what follows the announcement."""

    def closing(self, builder: ResponseBuilder) -> None:
        """Write what comes before the item's end. `status` is already final."""
        raise NotImplementedError

    def close(self, builder: ResponseBuilder, *, whole: bool = True) -> None:
        """End the item, if it has not ended."""
        if self.status == "in_progress":
            self.status = "completed" if whole else "incomplete"
            self.closing(builder)
            builder.emit("response.output_item.done", output_index=self.index, item=self.snapshot())


class _OpenContent(_OpenItem):
    """An item whose words stand in one content part."""

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self._texts: list[str] = []
        self._place = {"item_id": self.id, "output_index": self.index, "content_index": 0}
        self._announced = False

    def part(self) -> OutputText | ReasoningText:
        """The part as it stands."""
        raise NotImplementedError

    def opened(self, builder: ResponseBuilder) -> None:
        self._announced = True
        builder.emit("response.content_part.added", **self._place, part=self.part())


class _OpenMessage(_OpenContent):
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

    def snapshot(self) -> OutputMessage:
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": self.status,
            "content": [self.part()] if self._announced else [],
        }

    def add(self, builder: ResponseBuilder, delta: TextDelta) -> None:
        logprobs = [_logprob(token) for token in delta.logprobs] if delta.logprobs else []
        builder.log.append(
            {
                "type": "response.output_text.delta",
                "sequence_number": builder.log.next_number,
                "item_id": self.id,
                "output_index": self.index,
                "content_index": 0,
                "delta": delta.text,
                "logprobs": logprobs,
            }
        )
        self._texts.append(delta.text)
        self._logprobs += logprobs

    def closing(self, builder: ResponseBuilder) -> None:
        part = self.part()
        builder.emit(
            "response.output_text.done",
            **self._place,
            text=part["text"],
            logprobs=part["logprobs"],
        )
        builder.emit("response.content_part.done", **self._place, part=part)


class _OpenReasoning(_OpenContent):
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

    def add(self, builder: ResponseBuilder, text: str) -> None:
        builder.emit("response.reasoning_text.delta", **self._place, delta=text)
        self._texts.append(text)

    def closing(self, builder: ResponseBuilder) -> None:
        part = self.part()
        builder.emit("response.reasoning_text.done", **self._place, text=part["text"])
        builder.emit("response.content_part.done", **self._place, part=part)


class _OpenCall(_OpenItem):
    def __init__(self, index: int, name: str) -> None:
        super().__init__(ids.function_call_id(), index)
        self._call_id = ids.call_id()
        self._name = name
        self._arguments: list[str] = []

    def snapshot(self) -> OutputFunctionCall:
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
            "status": self.status,
        }

    def add(self, builder: ResponseBuilder, text: str) -> None:
        builder.emit(
            "response.function_call_arguments.delta",
            item_id=self.id,
            output_index=self.index,
            delta=text,
        )
        self._arguments.append(text)

    def closing(self, builder: ResponseBuilder) -> None:
        if self.status == "incomplete":
            return
        if not self._arguments:
            # A call without arguments still carries a JSON object.
            self.add(builder, "{}")
        builder.emit(
            "response.function_call_arguments.done",
            item_id=self.id,
            output_index=self.index,
            name=self._name,
            arguments="".join(self._arguments),
        )


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


def _usage(usage: TokenUsage | None) -> Usage | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
