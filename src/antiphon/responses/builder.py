"""Turns what a model says into the events of one response. Nothing else writes events.

What arrives of the model's words, and in what pieces, decides only how many deltas there are.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, cast, get_args

from antiphon import ids
from antiphon.errors import APIError, InvalidToolCall, ResponseCancelled
from antiphon.responses.log import EventLog
from antiphon.responses.open_item import OpenItem
from antiphon.responses.open_items import (
    OpenCall,
    OpenCallable,
    OpenCustomCall,
    OpenMessage,
    OpenSearch,
    reopened,
)
from antiphon.responses.open_reasoning import OpenReasoning
from antiphon.responses.presentation import Presentation
from antiphon.spec.types import MessagePhase, Response, ResponseErrorCode, StreamEvent, Usage
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
)

_EVENT_OF_STATUS = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}


_RESPONSE_CODES = frozenset(get_args(ResponseErrorCode))
_Opened = TypeVar("_Opened", bound=OpenItem)


class ResponseBuilder:
    """Writes the events of `response` to `log`.

    `response` is the response as it is accepted, queued or in progress, and without output; or, for
    a log that another builder began, as folded from its events. Call `start` (after `queue`, if it
    has to wait), then `feed` for each delta, then one of `finish`, `fail` and `cancel`;
    `keep_alive` at any time in between. `presentation` decides what is shown how.
    """

    def __init__(
        self, response: Response, log: EventLog, presentation: Presentation | None = None
    ) -> None:
        self._response = response
        self.log = log
        self._presentation = shown = presentation or Presentation()
        self._items = [
            reopened(index, item, shown) for index, item in enumerate(response["output"])
        ]
        self._text: OpenMessage | None = None
        self._reasoning: OpenReasoning | None = None
        self._calls: dict[int, OpenCallable] = {}
        self._blank: list[TextDelta] = []

    @property
    def response(self) -> Response:
        """The response as it stands."""
        return {**self._response, "output": [item.snapshot() for item in self._items]}

    @property
    def stored(self) -> Response:
        """The response as it is stored."""
        return cast(Response, {**self._response, "output": [item.stored() for item in self._items]})

    def queue(self) -> None:
        """Announce the response, which has to wait."""
        self.emit("response.created", response=self.response)
        self.emit("response.queued", response=self.response)

    def start(self) -> None:
        """Announce the response, if that was not done, and that it is being made."""
        self._response = cast(Response, {**self._response, "status": "in_progress"})
        if self.log.next_number == 0:
            self.emit("response.created", response=self.response)
        self.emit("response.in_progress", response=self.response)

    def keep_alive(self) -> None:
        """Repeat that the response is in progress, for readers that would give up on silence."""
        self.emit("response.in_progress", response=self.response)

    def feed(self, delta: Delta) -> None:
        """Write the events of one delta. `Finish` has none of its own; see `finish`."""
        match delta:
            case TextDelta():
                self._feed_text(delta)
            case ReasoningDelta(text):
                if text:
                    self._close_text()
                    self._open_reasoning().add(self, text)
            case CallStart(call, name, custom):
                # What is said before a call is no answer.
                self._close_text(phase="commentary")
                self._close_reasoning()
                shown = self._presentation.tool(name)
                kind = OpenSearch if shown.searches else OpenCustomCall if custom else OpenCall
                self._calls[call] = self._open(kind(len(self._items), shown))
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
            self.fail(InvalidToolCall("The model ended its turn inside a call."), usage)
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
        detail = error.detail()
        self._emit_error(detail)
        # A response's own error knows fewer codes than HTTP answers do.
        code = error.code if error.code in _RESPONSE_CODES else "server_error"
        self._end("failed", usage, error={**detail, "code": code})

    def cancel(self, usage: TokenUsage | None) -> None:
        """Close what is open and end the stream. There is no event for a response that was
        cancelled, so an error tells of it."""
        self._close_all(whole=False)
        self._response = cast(
            Response, {**self._response, "status": "cancelled", "usage": _usage(usage)}
        )
        self._emit_error(ResponseCancelled("The response was cancelled.").detail())

    def _emit_error(self, detail: dict[str, str | None]) -> None:
        event = {k: detail[k] for k in ("code", "message", "param")}
        self.emit("error", **event, error=detail)

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
        self._text = self._open(OpenMessage(len(self._items)))
        for delta in deltas:
            self._text.add(self, delta)

    def _open_reasoning(self) -> OpenReasoning:
        if self._reasoning is None:
            item = OpenReasoning(len(self._items), self._presentation)
            self._reasoning = self._open(item)
        return self._reasoning

    def _open(self, item: _Opened) -> _Opened:
        self.emit("response.output_item.added", output_index=item.index, item=item.snapshot())
        self._items.append(item)
        item.opened(self)
        return item

    def _close_text(self, phase: MessagePhase | None = None) -> None:
        self._blank = []
        if self._text is not None:
            self._text.phase = phase
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
        self.emit(_EVENT_OF_STATUS[status], response=self.response)

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        return self.log.next_number

    def emit(self, kind: str, **fields: Any) -> None:
        """Write an event made of its fields. For the items, as are the two beside it."""
        event = {"type": kind, "sequence_number": self.log.next_number, **fields}
        self.log.append(cast(StreamEvent, event))

    def append(self, event: StreamEvent) -> None:
        """Write a whole event."""
        self.log.append(event)


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
