"""Streams that keep all rules and that no server at hand sends, by name."""

from typing import Any

from made import START, added, call, done, frame, life, message, numbered, reasoning, whole, written

_REFUSAL = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_REFUSED = {"type": "refusal", "refusal": "I cannot."}
_MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [_REFUSED],
}
_SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
_CITED = {"type": "url_citation", "url": "https://example.org", "title": "Example"}
_CITED |= {"start_index": 0, "end_index": 2}
_LOGPROB = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}


def streams() -> dict[str, str]:
    """The bodies of the streams."""
    text = message(0, ["Hel", "lo."])
    plain = written(whole(text))
    return {
        "refusal": written(_refusal()),
        "summary": written(
            whole(reasoning(0, ["I ", "thought."], summary=True), message(1, ["Yes."]))
        ),
        "raw_reasoning": written(
            whole(reasoning(0, ["Two and ", "two."]), message(1, ["Four."]), call(2, ["{", "}"]))
        ),
        "custom_input": written(whole(call(0, ["a ", "b"], identity="ctc_1", custom=True))),
        "empty_output": written([*START, life("completed")]),
        "queued": written([life("created"), life("queued"), *whole(text)[1:]]),
        "keep_alive": written([*START, life("in_progress"), *whole(text)[2:]]),
        "interleaved_calls": written(_interleaved()),
        "two_parts": written(_two_parts()),
        "annotation": written(annotated()),
        "log_probabilities": written(_logprobs()),
        "hosted_search": written(_hosted()),
        "announced_whole": written(_announced_whole()),
        "unknown_part": written(_charted()),
        "steered": written(
            whole(
                message(0, ["Hel"], status="incomplete"),
                end="incomplete",
                incomplete_details={"reason": "steered"},
            )
        ),
        "nulls_and_absent_fields": written(_with_nulls()),
        "cancelled": written(_cancelled()),
        "incomplete_item": written(_incomplete()),
        "unknown_fields": written(_extended()),
        "crlf": plain.replace("\n", "\r\n"),
        "comments": plain.replace("\n\n", "\n\n: ping\n\n").replace("\nevent:", "\n: x\nevent:"),
        "float_times": plain.replace("1790000000", "1790000000.25"),
        "no_space_after_colon": plain.replace("data: ", "data:").replace("event: ", "event:"),
        "two_messages": written(whole(text, message(1, ["Again."], identity="msg_2"))),
        "failed_with_error": written(_failed()),
        "failed_with_flat_error": written(_without("error")),
        "failed_with_nested_error": written(_without("code", "message", "param")),
    }


def _refusal() -> list[dict[str, Any]]:
    events = [
        added(0, {**_MESSAGE, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **_REFUSAL, "part": {**_REFUSED, "refusal": ""}},
        {"type": "response.refusal.delta", **_REFUSAL, "delta": "I can"},
        {"type": "response.refusal.delta", **_REFUSAL, "delta": "not."},
        {"type": "response.refusal.done", **_REFUSAL, "refusal": "I cannot."},
        {"type": "response.content_part.done", **_REFUSAL, "part": _REFUSED},
        done(0, _MESSAGE),
    ]
    return whole((events, _MESSAGE))


def _interleaved() -> list[dict[str, Any]]:
    """Two calls that are open at once, closed in the other order."""
    first, one = call(0, ["{", "}"])
    second, other = call(1, ['{"a":', "1}"], identity="fc_2", call_id="call_2")
    mixed = [first[0], second[0], first[1], second[1], second[2], first[2]]
    mixed += [*second[3:], *first[3:]]
    return [*START, *mixed, life("completed", [one, other])]


def _two_parts() -> list[dict[str, Any]]:
    events, item = message(0, ["One."])
    more = [{**event, "content_index": 1} for event in events if event["type"] not in _ITEM_EVENTS]
    item = {**item, "content": item["content"] * 2}
    return whole(([*events[:-1], *more, done(0, item)], item))


_ITEM_EVENTS = ("response.output_item.added", "response.output_item.done")


def annotated() -> list[dict[str, Any]]:
    """A message with a source."""
    events, item = message(0, ["Hello."])
    part = {**item["content"][0], "annotations": [_CITED]}
    item = {**item, "content": [part]}
    cited = {
        "type": "response.output_text.annotation.added",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "annotation_index": 0,
        "annotation": _CITED,
    }
    events[-2] = {**events[-2], "part": part}
    return whole(([*events[:-3], cited, *events[-3:-1], done(0, item)], item))


def _logprobs() -> list[dict[str, Any]]:
    events, item = message(0, ["Hi"])
    part = {**item["content"][0], "logprobs": [_LOGPROB]}
    item = {**item, "content": [part]}
    for event in events:
        if event["type"].startswith("response.output_text"):
            event["logprobs"] = [_LOGPROB]
    events[-2] = {**events[-2], "part": part}
    return whole(([*events[:-1], done(0, item)], item))


def _hosted() -> list[dict[str, Any]]:
    at = {"item_id": "ws_1", "output_index": 0}
    events = [
        added(0, {**_SEARCH, "status": "in_progress"}),
        *(
            {"type": f"response.web_search_call.{step}", **at}
            for step in ("in_progress", "searching", "completed")
        ),
        done(0, _SEARCH),
    ]
    return whole((events, _SEARCH), message(1, ["Found."]))


def _announced_whole() -> list[dict[str, Any]]:
    """Items that no event fills come complete."""
    output = [
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "arguments": "{}",
            "name": "look",
            "server_label": "files",
        },
        {"type": "function_call_output", "id": "fco_1", "call_id": "call_9", "output": "7"},
        {
            "type": "custom_tool_call_output",
            "id": "cto_1",
            "call_id": "call_8",
            "output": [{"type": "input_text", "text": "7"}],
        },
        {"type": "tool_search_output", "id": "tso_1", "execution": "server", "tools": []},
    ]
    output[1:] = [{**item, "status": "completed"} for item in output[1:]]
    told = [([added(n, item), done(n, item)], item) for n, item in enumerate(output)]
    return whole(*told, message(len(output), ["Done."]))


def _charted() -> list[dict[str, Any]]:
    """A part that the API does not know."""
    chart = {"type": "acme:chart", "points": [1, 2]}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {**_MESSAGE, "content": [chart]}
    events = [
        added(0, {**_MESSAGE, "status": "in_progress", "content": []}),
        {"type": "response.content_part.added", **at, "part": {**chart, "points": []}},
        {"type": "response.content_part.done", **at, "part": chart},
        done(0, item),
    ]
    return whole((events, item))


def _with_nulls() -> list[dict[str, Any]]:
    """A server that leaves out at one time what is null at another."""
    events = whole(message(0, ["Hello."]))
    last = events[-1]["response"]
    output = [{**item, "phase": None} for item in last["output"]]
    return [*events[:-1], life("completed", output, conversation=None)]


def _cancelled() -> list[dict[str, Any]]:
    events, _ = message(0, ["Hel"], status="incomplete")
    detail = {"code": "response_cancelled", "message": "It was cancelled.", "param": None}
    nested = {"type": "invalid_request_error", **detail}
    return [*START, *events, {"type": "error", **detail, "error": nested}]


def _incomplete() -> list[dict[str, Any]]:
    text = message(0, ["Hel"], status="incomplete")
    return whole(text, end="incomplete", incomplete_details={"reason": "max_output_tokens"})


def _failed() -> list[dict[str, Any]]:
    text = message(0, ["Hel"], status="incomplete")
    detail = {"code": "server_error", "message": "It broke.", "param": None}
    nested = {"type": "server_error", **detail}
    events = whole(text, end="failed", error={"code": "server_error", "message": "It broke."})
    return [*events[:-1], {"type": "error", **detail, "error": nested}, events[-1]]


def _without(*names: str) -> list[dict[str, Any]]:
    """A failure whose `error` event lacks these fields, as the official API has it or others."""
    return [
        {k: v for k, v in event.items() if k not in names} if event["type"] == "error" else event
        for event in _failed()
    ]


def _extended() -> list[dict[str, Any]]:
    """Fields and an item that the API does not know, which all clients pass over."""
    trace = {"type": "acme:trace", "id": "tr_1", "spans": [1]}
    events = whole(([added(0, trace), done(0, trace)], trace), message(1, ["Yes."]))
    return [{**event, "obfuscation": "xyz"} for event in events]


__all__ = ["frame", "numbered", "streams"]
