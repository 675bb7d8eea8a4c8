"""Streams made by hand: small ones for the rare paths, and what goes into the broken ones.

Events are dicts without numbers; `written` numbers them and makes frames of them.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]


def response(status: str, output: Sequence[Event] = (), **fields: Any) -> Event:
    """A response as a lifecycle event tells it."""
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    ended = status in ("completed", "incomplete", "failed")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1790000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "made-by-hand",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if ended else None,
        **fields,
    }


def life(status: str, output: Sequence[Event] = (), **fields: Any) -> Event:
    """A lifecycle event, named as its response's status is; `created` is one in progress."""
    told = "in_progress" if status == "created" else status
    return {"type": f"response.{status}", "response": response(told, output, **fields)}


START = [life("created"), life("in_progress")]


def message(
    index: int, pieces: Sequence[str], *, identity: str = "msg_1", status: str = "completed"
) -> tuple[list[Event], Event]:
    """The events of a message with one part of text, and the message."""
    text = "".join(pieces)
    at = {"item_id": identity, "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": identity, "role": "assistant", "status": status}
    whole = {**item, "content": [part]}
    events = [
        added(index, {**item, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
            for piece in pieces
        ),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        done(index, whole),
    ]
    return events, whole


def reasoning(
    index: int, pieces: Sequence[str], *, identity: str = "rs_1", summary: bool = False
) -> tuple[list[Event], Event]:
    """The events of a reasoning item with one part, of content or of summary, and the item."""
    text = "".join(pieces)
    place = "summary_index" if summary else "content_index"
    prefix = "reasoning_summary" if summary else "reasoning"
    parts = "response.reasoning_summary_part" if summary else "response.content_part"
    kind = "summary_text" if summary else "reasoning_text"
    at = {"item_id": identity, "output_index": index, place: 0}
    item = {"type": "reasoning", "id": identity, "status": "completed", "summary": []}
    whole = {**item, "summary" if summary else "content": [{"type": kind, "text": text}]}
    events = [
        added(index, {**item, "status": "in_progress"}),
        {"type": f"{parts}.added", **at, "part": {"type": kind, "text": ""}},
        *({"type": f"response.{prefix}_text.delta", **at, "delta": piece} for piece in pieces),
        {"type": f"response.{prefix}_text.done", **at, "text": text},
        {"type": f"{parts}.done", **at, "part": {"type": kind, "text": text}},
        done(index, whole),
    ]
    return events, whole


def call(
    index: int,
    pieces: Sequence[str],
    *,
    identity: str = "fc_1",
    call_id: str = "call_1",
    custom: bool = False,
) -> tuple[list[Event], Event]:
    """The events of a call of a function, or of a custom tool, and the call."""
    filled = "input" if custom else "arguments"
    kind = "custom_tool_call" if custom else "function_call"
    event = "custom_tool_call_input" if custom else "function_call_arguments"
    at = {"item_id": identity, "output_index": index}
    item = {"type": kind, "id": identity, "call_id": call_id, "name": "get_weather"}
    whole = {**item, filled: "".join(pieces), "status": "completed"}
    events = [
        added(index, {**item, filled: "", "status": "in_progress"}),
        *({"type": f"response.{event}.delta", **at, "delta": piece} for piece in pieces),
        {"type": f"response.{event}.done", **at, filled: "".join(pieces)},
        done(index, whole),
    ]
    return events, whole


def added(index: int, item: Event) -> Event:
    """The event that announces an item."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: Event) -> Event:
    """The event that closes an item."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def whole(*items: tuple[list[Event], Event], end: str = "completed", **fields: Any) -> list[Event]:
    """A whole stream of these items."""
    output = [item for _, item in items]
    return [*START, *(e for events, _ in items for e in events), life(end, output, **fields)]


def numbered(events: Iterable[Event]) -> list[Event]:
    """The events with numbers from 0."""
    return [
        {"type": event["type"], "sequence_number": number, **event}
        for number, event in enumerate(events)
    ]


def frame(event: Event) -> str:
    """An event as a frame."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def written(events: Iterable[Event]) -> str:
    """The body of a stream."""
    return "".join(map(frame, numbered(events))) + "data: [DONE]\n\n"
