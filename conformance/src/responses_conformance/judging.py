"""Judges exchanges by all rules that apply to them."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from responses_conformance.exchange import Exchange
from responses_conformance.findings import Findings
from responses_conformance.frames import ends
from responses_conformance.rules.applying import OF_THE_END, of_response, of_stream
from responses_conformance.rules.bodies import judge_body, judge_error
from responses_conformance.rules.stream import Judged, judge_stream
from responses_conformance.schemas import Schemas
from responses_conformance.second import SecondOpinion
from responses_conformance.sockets import METHOD

_BODIES = (
    ("POST", r"/responses", "Response"),
    ("GET", r"/responses/[^/]+", "Response"),
    ("DELETE", r"/responses/[^/]+", "DeletedResponse"),
    ("POST", r"/responses/[^/]+/cancel", "Response"),
    ("GET", r"/responses/[^/]+/input_items", "ItemList"),
    ("POST", r"/responses/input_tokens", "InputTokenCount"),
    ("POST", r"/conversations(/[^/]+)?", "Conversation"),
    ("GET", r"/conversations/[^/]+", "Conversation"),
    ("DELETE", r"/conversations/[^/]+", "DeletedConversation"),
    ("GET", r"/conversations/[^/]+/items", "ItemList"),
    ("POST", r"/conversations/[^/]+/items", "ItemList"),
    ("GET", r"/conversations/[^/]+/items/[^/]+", "ItemResource"),
    ("DELETE", r"/conversations/[^/]+/items/[^/]+", "Conversation"),
    ("GET", r"/models", "ModelList"),
    ("GET", r"/models/.+", "ModelInfo"),
)
_DELTAS = re.compile(r"\.delta$")


@dataclass
class Seen:
    """What an exchange came to. `body` is what expectations look at: the answer's JSON, or the
    stream as an object; `response` is the response in it, if there is one."""

    exchange: Exchange
    findings: Findings = field(default_factory=Findings)
    checked: set[str] = field(default_factory=set)
    body: Any = None
    stream: Judged | None = None

    @property
    def response(self) -> Any:
        """The response: the last that the stream told, or the body."""
        return self.body["response"] if self.stream is not None else self.body


@dataclass(frozen=True)
class Judge:
    """Judges exchanges; `second` adds a second opinion."""

    schemas: Schemas
    second: SecondOpinion | None = None

    def judge(self, exchange: Exchange) -> Seen:
        """Judge an exchange by itself."""
        seen = judge_exchange(exchange, self.schemas)
        if self.second is not None and exchange.method != METHOD:
            self.second.judge(exchange, seen.findings)
            seen.checked.add("SHAPE-3")
        return seen


def judge_exchange(exchange: Exchange, schemas: Schemas) -> Seen:
    """Judge an exchange by itself. A stream that the suite left is not judged by its end, and any
    other body that it left not at all."""
    seen = Seen(exchange)
    if exchange.status >= 400:
        seen.body = exchange.json
        content = exchange.content
        if exchange.method == METHOD and isinstance(seen.body, dict):
            # Beside the error such an event has fields of its own.
            seen.body = {name: seen.body[name] for name in ("error",) if name in seen.body}
            content = json.dumps(seen.body).encode()
        judge_error(exchange.status, exchange.headers, content, seen.findings)
        seen.checked = {"FAULT-1", "FAULT-2", "FAULT-3", "SHAPE-2"}
        if exchange.status == 429:
            seen.checked.add("FAULT-6")
        if not seen.findings.found:
            schemas.judge("Error", seen.body, "the error", seen.findings)
    elif exchange.streamed:
        _stream(seen, schemas)
    elif not exchange.left:
        _body(seen, schemas)
    return seen


def _stream(seen: Seen, schemas: Schemas) -> None:
    exchange = seen.exchange
    content = exchange.content
    if exchange.left:
        content = content[: (ends(content) or [0])[-1]]
    after = re.search(r"starting_after=(\d+)", exchange.path)
    number = int(after[1]) if after else None
    seen.stream = judge_stream(content, schemas, seen.findings, after=number)
    if exchange.left:
        seen.findings.found = [f for f in seen.findings if f.rule not in OF_THE_END]
    seen.checked = of_stream(seen.stream, whole=number is None, left=exchange.left)
    if exchange.method == METHOD:  # What it is framed in is the suite's own.
        seen.checked = {name for name in seen.checked if not name.startswith("FRAME-")}
    seen.body = _told(seen.stream, exchange)


def _body(seen: Seen, schemas: Schemas) -> None:
    exchange = seen.exchange
    seen.body = exchange.json
    if exchange.asked_stream:
        seen.findings.add("FRAME-10", "the answer", f"content-type {exchange.media or 'none'}")
        seen.checked.add("FRAME-10")
    path = exchange.path.partition("?")[0]
    for method, pattern, name in _BODIES:
        # The base's own path, such as /v1, stands before.
        if method == exchange.method and re.search(rf"(?:^|/v1){pattern}$", path):
            judge_body(name, seen.body, schemas, "the body", seen.findings)
            response = name == "Response"
            seen.checked |= of_response(seen.body) if response else {"SHAPE-1", "SHAPE-2"}
            return


def _told(stream: Judged, exchange: Exchange) -> dict[str, Any]:
    """A stream as an object for expectations."""
    events = [frame.data for frame in stream.frames]
    kinds = stream.kinds
    collapsed = [
        kind
        for number, kind in enumerate(kinds)
        if number == 0 or kind != kinds[number - 1] or not _DELTAS.search(kind)
    ]
    snapshots = [event["response"] for event in events if isinstance(event.get("response"), dict)]
    joined = {
        name: "".join(
            event["delta"]
            for event in events
            if event.get("type") == kind and isinstance(event.get("delta"), str)
        )
        for name, kind in (
            ("text", "response.output_text.delta"),
            ("reasoning", "response.reasoning_text.delta"),
            ("arguments", "response.function_call_arguments.delta"),
            ("input", "response.custom_tool_call_input.delta"),
        )
    }
    return {
        "events": events,
        "types": kinds,
        "collapsed": collapsed,
        "numbers": [event.get("sequence_number") for event in events],
        "response": stream.response or (snapshots[-1] if snapshots else {}),
        "terminal": stream.response is not None or stream.cancelled,
        "first_seconds": exchange.first,
        "longest_silence": exchange.longest,
        "total_seconds": exchange.total,
        **joined,
    }
