"""Streams that break exactly one rule each, by `RULE-what`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made import (
    START,
    Event,
    added,
    call,
    done,
    frame,
    life,
    message,
    numbered,
    reasoning,
    response,
    whole,
    written,
)
from valid import annotated

from responses_conformance.transcripts import Transcript, load

_VALID = Path(__file__).parent / "valid"
_DONE = "data: [DONE]\n\n"
_TEXT = "response.output_text"
_PART = "response.content_part"
_ARGS = "response.function_call_arguments"
_JSON = {"content-type": "application/json"}


def transcripts() -> dict[str, Transcript]:
    """All of them."""
    made = {name: Transcript(body.encode()) for name, body in {**_frames(), **_bodies()}.items()}
    made |= {name: _stream(events) for name, events in {**_lives(), **_items()}.items()}
    made |= {name: _stream(events) for name, events in {**_parts(), **_calls()}.items()}
    made |= {name: _stream(events) for name, events in {**_folds(), **_shapes()}.items()}
    return made | _others() | _faults()


def _stream(events: list[Event]) -> Transcript:
    return Transcript(written(events).encode())


def _text() -> list[Event]:
    return whole(message(0, ["Hel", "lo."]))


def _call() -> list[Event]:
    return whole(call(0, ['{"city":', '"Oslo"}']))


def _mixed() -> list[Event]:
    return whole(message(0, ["Look."]), call(1, ["{", "}"]))


def at(events: list[Event], kind: str, number: int = 0) -> int:
    """The place of the event of this type, the first unless `number` says otherwise."""
    return [place for place, event in enumerate(events) if event["type"] == kind][number]


def without(events: list[Event], kind: str, number: int = 0) -> list[Event]:
    """The events without one of this type."""
    place = at(events, kind, number)
    return events[:place] + events[place + 1 :]


def changed(events: list[Event], kind: str, *, number: int = 0, **fields: Any) -> list[Event]:
    """The events with fields of one of this type changed."""
    place = at(events, kind, number)
    return [*events[:place], {**events[place], **fields}, *events[place + 1 :]]


def twice(events: list[Event], kind: str, number: int = 0) -> list[Event]:
    """The events with one of this type again right behind it."""
    place = at(events, kind, number)
    return [*events[: place + 1], events[place], *events[place + 1 :]]


def ended(events: list[Event], change: Callable[[Event], Event]) -> list[Event]:
    """The events with the terminal response changed."""
    last = events[-1]
    return [*events[:-1], {**last, "response": change(last["response"])}]


def renamed(events: list[Event], old: str, new: str) -> list[Event]:
    """The events with a text replaced wherever it stands as a value."""
    text = json.dumps(events).replace(json.dumps(old), json.dumps(new))
    changed_events: list[Event] = json.loads(text)
    return changed_events


def _frames() -> dict[str, str]:
    events = numbered(_text())
    body = written(_text())
    delta = frame(events[4])
    return {
        "FRAME-1-half-a-json": body.replace(delta, delta.replace("}\n\n", "\n\n")),
        "FRAME-1-a-text": body.replace(delta, "event: x\ndata: internal error\n\n" + delta),
        "FRAME-2-no-event-line": body.replace(delta, delta.partition("\n")[2]),
        "FRAME-3-message": body.replace(delta, delta.replace(f"event: {_TEXT}.delta", "event: m")),
        "FRAME-4-retry-alone": "retry: 3000\n\n" + body,
        "FRAME-4-id": body.replace(delta, "id: 4\n" + delta),
        "FRAME-4-empty-data": body.replace(delta, "data:\n\n" + delta),
        "FRAME-6-cut": body[: body.rindex("event:") + 60],
        # Exact but for this.
        "FRAME-7-no-done": load(_VALID / "text.sse").body.decode().removesuffix(_DONE),
        "FRAME-8-after-done": body + frame(events[-1]),
        "FRAME-9-two-lines": body.replace(delta, delta.replace(', "delta"', ',\ndata: "delta"')),
    }


def _bodies() -> dict[str, str]:
    def lines(events: list[Event]) -> str:
        return "".join(map(frame, events)) + _DONE

    events = numbered(_text())
    number = "sequence_number"
    bare = [{k: v for k, v in e.items() if k != number} for e in events]
    restarted = [{**e, number: place % 4} for place, e in enumerate(events)]
    return {
        "SEQ-1-none": lines(bare),
        "SEQ-1-text": lines([*events[:4], {**events[4], number: "4"}, *events[5:]]),
        "SEQ-2-from-one": lines([{**e, number: e[number] + 1} for e in events]),
        "SEQ-3-gap": lines(
            [*events[:4], *({**e, number: e[number] + 20} for e in events[4:])],
        ),
        "SEQ-4-twice": lines([*events[:5], *({**e, number: e[number] - 1} for e in events[5:])]),
        "SEQ-4-restarted": lines(restarted),
    }


def _lives() -> dict[str, list[Event]]:
    text = _text()
    failed = {"code": "server_error", "message": "It broke."}
    error = {"type": "error", **failed, "param": None}
    error["error"] = {"type": "server_error", **failed, "param": None}
    broken = [*text[:-1], error, life("failed", text[-1]["response"]["output"], error=failed)]
    return {
        "LIFE-1-in-progress-first": text[1:],
        "LIFE-1-queued-first": [life("queued"), *text],
        "LIFE-2-created-twice": twice(text, "response.created"),
        "LIFE-3-no-end": text[:-1],
        "LIFE-3-nothing": [],
        "LIFE-4-completed-twice": [*text, text[-1]],
        "LIFE-4-completed-then-failed": [
            *text,
            life("failed", text[-1]["response"]["output"], error=failed),
        ],
        "LIFE-5-text-after-the-end": [*text, text[4]],
        "LIFE-5-items-after-the-end": [*text[:2], life("completed"), *text[2:-1]],
        "LIFE-6-another-id": ended(text, lambda told: {**told, "id": "resp_2"}),
        "LIFE-6-empty-id": [
            {**e, "response": {**e["response"], "id": ""}} if "response" in e else e for e in text
        ],
        "LIFE-7-completed-without-status": ended(text, lambda told: {**told, "status": None}),
        "LIFE-7-completed-in-progress": ended(text, lambda told: {**told, "status": "in_progress"}),
        "LIFE-7-created-completed": changed(
            text, "response.created", response=response("completed")
        ),
        "LIFE-8-queued-late": [*text[:2], life("queued"), *text[2:]],
        "LIFE-9-another-time": ended(text, lambda told: {**told, "created_at": 1790000009}),
        "LIFE-9-another-model": ended(text, lambda told: {**told, "model": "other"}),
        "LIFE-10-output-at-once": changed(
            text, "response.created", response=response("in_progress", [text[-2]["item"]])
        ),
        "LIFE-11-failed-without-error": [*broken[:-1], life("failed", _output(text))],
        "LIFE-11-cut-without-reason": [*text[:-1], life("incomplete", _output(text))],
        "LIFE-11-completed-with-error": ended(text, lambda told: {**told, "error": failed}),
        "LIFE-12-error-alone": broken[:-1],
        "LIFE-12-error-then-completed": [*broken[:-1], text[-1]],
        "LIFE-13-vendor-event": [*text[:2], {"type": "acme.progress", "percent": 3}, *text[2:]],
        "LIFE-13-old-name": [*text[:2], {"type": "response.reasoning.delta"}, *text[2:]],
        "FAULT-4-two-codes": [*broken[:-2], {**error, "code": "other"}, broken[-1]],
        "FAULT-4-two-messages": [*broken[:-2], {**error, "message": "Something."}, broken[-1]],
        "FAULT-5-null-code": [
            *broken[:-2],
            {**error, "code": None, "error": {**error["error"], "code": None}},
            broken[-1],
        ],
    }


def _output(events: list[Event]) -> list[Event]:
    output: list[Event] = events[-1]["response"]["output"]
    return output


def _items() -> dict[str, list[Event]]:
    text, mixed, args = _text(), _mixed(), _call()
    other = message(1, ["Again."], identity="msg_2")
    two = whole(message(0, ["Hello."]), other)
    item = text[-2]["item"]
    announced = text[2]["item"]
    filled = {**announced, "content": item["content"]}
    gap = [{**e, "output_index": 3} if e.get("output_index") == 1 else e for e in mixed]
    same = [{**e, "output_index": 0} if e.get("output_index") == 1 else e for e in mixed]
    return {
        "ITEM-1-text-without-an-item": without(
            without(text, "response.output_item.added"), f"{_PART}.added"
        ),
        "ITEM-1-call-without-an-item": without(args, "response.output_item.added"),
        "ITEM-2-gap": gap,
        "ITEM-3-both-at-0": same,
        "ITEM-3-announced-twice": twice(text, "response.output_item.added"),
        "ITEM-4-another-id": changed(text, f"{_TEXT}.delta", item_id="msg_2"),
        "ITEM-4-id-of-each-event": [
            {**e, "item_id": f"msg_{place}"} if "item_id" in e else e
            for place, e in enumerate(text, 5)
        ],
        "ITEM-5-another-id": ended(
            [*text[:-2], done(0, {**item, "id": "msg_2"}), text[-1]],
            lambda told: {**told, "output": [{**item, "id": "msg_2"}]},
        ),
        "ITEM-6-one-id": renamed(two, "msg_2", "msg_1"),
        "ITEM-6-empty-id": renamed(text, "msg_1", ""),
        "ITEM-7-not-closed": without(text, "response.output_item.done"),
        "ITEM-7-call-not-closed": without(mixed, "response.output_item.done", 1),
        "ITEM-8-closed-twice": twice(text, "response.output_item.done"),
        "ITEM-9-text-after-the-end": [*text[:-1], text[4], text[-1]],
        "ITEM-10-another-call": ended(
            [*args[:-2], done(0, {**args[-2]["item"], "call_id": "call_2"}), args[-1]],
            lambda told: {**told, "output": [{**args[-2]["item"], "call_id": "call_2"}]},
        ),
        "ITEM-10-another-name": changed(
            args, "response.output_item.added", item={**args[2]["item"], "name": "f"}
        ),
        "ITEM-10-another-name-for-arguments": changed(args, f"{_ARGS}.done", name="f"),
        "ITEM-10-another-namespace": changed(
            args, "response.output_item.added", item={**args[2]["item"], "namespace": "agents"}
        ),
        "ITEM-11-filled-content": changed(text, "response.output_item.added", item=filled),
        "ITEM-11-filled-arguments": changed(
            args, "response.output_item.added", item={**args[2]["item"], "arguments": "{}"}
        ),
        "ITEM-12-completed-at-once": changed(
            text, "response.output_item.added", item={**announced, "status": "completed"}
        ),
        "ITEM-13-in-progress-at-the-end": ended(
            [*text[:-2], done(0, {**item, "status": "in_progress"}), text[-1]],
            lambda told: {**told, "output": [{**item, "status": "in_progress"}]},
        ),
        "ITEM-13-cut-but-completed": whole(message(0, ["Hel"], status="incomplete")),
    }


def _parts() -> dict[str, list[Event]]:
    text = _text()
    thought = whole(reasoning(0, ["Two ", "and two."]), message(1, ["Four."]))
    item = text[-2]["item"]
    refusal = {"type": "refusal", "refusal": ""}
    logprob = {"token": "Hel", "logprob": -0.1, "bytes": [72], "top_logprobs": []}
    shifted = [{**e, "content_index": 1} if "content_index" in e else e for e in text]
    spoken = {"type": "output_text", "text": "Hel", "annotations": [], "logprobs": []}
    short = {**item, "content": [{**item["content"][0], "text": "Hello"}]}
    silent = without(without(text, f"{_TEXT}.delta"), f"{_TEXT}.delta")
    cited = annotated()
    source = f"{_TEXT}.annotation.added"
    bare = {**cited[-2]["item"], "content": item["content"]}
    closed = at(thought, "response.output_item.done")
    mute = {k: v for k, v in thought[closed]["item"].items() if k != "content"}
    return {
        "PART-1-not-announced": without(text, f"{_PART}.added"),
        "PART-1-reasoning": without(thought, f"{_PART}.added"),
        "PART-1-summary": without(
            whole(reasoning(0, ["So."], summary=True)), "response.reasoning_summary_part.added"
        ),
        "PART-2-from-one": shifted,
        "PART-3-open": without(text, f"{_PART}.done"),
        "PART-4-closed-twice": twice(text, f"{_PART}.done"),
        "PART-5-after-its-text": [*text[:7], text[5], *text[7:]],
        "PART-5-after-its-end": [*text[:8], text[5], *text[8:]],
        "PART-6-announced-as-refusal": changed(text, f"{_PART}.added", part=refusal),
        "PART-6-reasoning-in-a-message": [
            {**e, "type": e["type"].replace("output_text", "reasoning_text")}
            if e["type"].startswith(_TEXT)
            else {**e, "part": {"type": "reasoning_text", "text": e["part"]["text"]}}
            if "part" in e
            else e
            for e in text
        ],
        "PART-7-filled": changed(text, f"{_PART}.added", part=spoken),
        "TEXT-1-another-text": changed(
            changed(
                [*text[:-2], done(0, short), life("completed", [short])],
                f"{_TEXT}.done",
                text="Hello",
            ),
            f"{_PART}.done",
            part=short["content"][0],
        ),
        "TEXT-1-lost-delta": without(text, f"{_TEXT}.delta"),
        "TEXT-2-done-alone": silent,
        "TEXT-2-item-alone": [*text[:3], *text[-2:]],
        "TEXT-2-reasoning-alone": without(
            without(thought, "response.reasoning_text.delta"), "response.reasoning_text.delta"
        ),
        "TEXT-3-another-part": changed(text, f"{_PART}.done", part=short["content"][0]),
        "TEXT-4-another-item": [*text[:-2], done(0, short), life("completed", [short])],
        "TEXT-4-no-content": [
            *text[:-2],
            done(0, {**item, "content": []}),
            life("completed", [{**item, "content": []}]),
        ],
        "TEXT-4-no-annotations": [*cited[:-2], done(0, bare), life("completed", [bare])],
        "TEXT-4-reasoning-without-content": ended(
            [*thought[:closed], done(0, mute), *thought[closed + 1 :]],
            lambda told: {**told, "output": [mute, told["output"][1]]},
        ),
        "TEXT-5-not-done": without(text, f"{_TEXT}.done"),
        "TEXT-6-done-twice": twice(text, f"{_TEXT}.done"),
        "TEXT-7-lost-log-probabilities": changed(text, f"{_TEXT}.delta", logprobs=[logprob]),
        "TEXT-8-at-the-end-alone": without(cited, source),
        "TEXT-8-another": changed(
            cited, source, annotation={**cited[at(cited, source)]["annotation"], "url": "x"}
        ),
        "TEXT-8-another-index": changed(cited, source, annotation_index=1),
        "TEXT-8-after-the-end": [
            *without(cited, source)[:-2],
            cited[at(cited, source)],
            *cited[-2:],
        ],
    }


def _calls() -> dict[str, list[Event]]:
    args = _call()
    item = args[-2]["item"]
    half = {**item, "arguments": '{"city":', "status": "incomplete"}
    why = {"reason": "max_output_tokens"}
    cut = whole(call(0, ['{"city":', '"Os']))
    twin = whole(call(0, ["{}"]), call(1, ["{}"], identity="fc_2"))
    nameless = renamed(args, "call_1", "")
    custom = whole(call(0, ["a ", "b"], identity="ctc_1", custom=True))
    return {
        "ARGS-1-lost-delta": without(args, f"{_ARGS}.delta"),
        "ARGS-1-lost-input": without(custom, "response.custom_tool_call_input.delta"),
        "ARGS-2-done-alone": without(without(args, f"{_ARGS}.delta"), f"{_ARGS}.delta"),
        "ARGS-2-item-alone": [*args[:3], *args[-2:]],
        "ARGS-3-another-end": [
            *args[:-2],
            done(0, {**item, "arguments": "{}"}),
            life("completed", [{**item, "arguments": "{}"}]),
        ],
        "ARGS-4-not-done": without(args, f"{_ARGS}.done"),
        "ARGS-5-done-twice": twice(args, f"{_ARGS}.done"),
        "ARGS-5-more-after-done": [*args[:6], args[4], *args[6:]],
        "ARGS-6-arguments-of-a-message": [
            *_text()[:4],
            {**args[3], "item_id": "msg_1"},
            *_text()[4:],
        ],
        "ARGS-6-arguments-of-custom-tool": [
            {**e, "type": e["type"].replace("custom_tool_call_input", "function_call_arguments")}
            | ({"arguments": e["input"]} if "input" in e else {})
            for e in custom
        ],
        "ARGS-7-half-an-object": cut,
        "ARGS-7-two-objects": whole(call(0, ["{}", "{}"])),
        "ARGS-7-none": whole(call(0, [])),
        "ARGS-8-one-call-id": twin,
        "ARGS-8-empty-call-id": nameless,
        "ITEM-9-arguments-after-the-end": [*args[:-1], args[4], args[-1]],
        "ITEM-7-half-a-call": [*args[:4], life("incomplete", [half], incomplete_details=why)],
    }


def _folds() -> dict[str, list[Event]]:
    mixed, text = _mixed(), _text()
    item = text[-2]["item"]
    shouted = {**item, "content": [{**item["content"][0], "text": "HELLO."}]}

    def counted(**numbers: Any) -> list[Event]:
        return ended(text, lambda told: {**told, "usage": {**told["usage"], **numbers}})

    return {
        "FOLD-1-other-order": ended(mixed, lambda told: {**told, "output": told["output"][::-1]}),
        "FOLD-1-empty-output": ended(text, lambda told: {**told, "output": []}),
        "FOLD-1-an-item-never-streamed": [*text[:2], text[-1]],
        "FOLD-1-another-id": ended(
            text, lambda told: {**told, "output": [{**item, "id": "msg_9"}]}
        ),
        "FOLD-2-another-text": ended(text, lambda told: {**told, "output": [shouted]}),
        "FOLD-2-another-status": ended(
            text, lambda told: {**told, "output": [{**item, "status": "incomplete"}]}
        ),
        "TOKENS-1-output-alone": counted(total_tokens=6),
        "TOKENS-1-zero": counted(total_tokens=0),
        "TOKENS-2-cached": counted(input_tokens_details={"cached_tokens": 99}),
        "TOKENS-2-reasoning": counted(output_tokens_details={"reasoning_tokens": 99}),
    }


def _shapes() -> dict[str, list[Event]]:
    text, args = _text(), _call()

    def bare(event: Event, *names: str) -> Event:
        return {key: value for key, value in event.items() if key not in names}

    delta = at(text, f"{_TEXT}.delta")
    begun = [bare(e["response"], "tools", "tool_choice") for e in text[:2]]
    return {
        "SHAPE-1-no-item-id": [*text[:delta], bare(text[delta], "item_id"), *text[delta + 1 :]],
        "SHAPE-1-no-content": [*text[:2], added(0, bare(text[2]["item"], "content")), *text[3:]],
        "SHAPE-1-no-role": [*text[:2], added(0, bare(text[2]["item"], "role")), *text[3:]],
        "SHAPE-1-no-summary": [
            *START,
            added(0, {"type": "reasoning", "id": "rs_1", "status": "in_progress"}),
            *whole(reasoning(0, ["So."]))[3:],
        ],
        "SHAPE-1-no-annotations": changed(
            text, f"{_PART}.added", part={"type": "output_text", "text": ""}
        ),
        "SHAPE-1-no-tools": [
            {**text[0], "response": begun[0]},
            {**text[1], "response": begun[1]},
            *text[2:],
        ],
        "SHAPE-1-number-for-a-text": changed(args, f"{_ARGS}.delta", delta=5),
        "SHAPE-1-negative-index": changed(text, f"{_TEXT}.delta", content_index=-1),
        "SHAPE-1-no-total": ended(
            text, lambda told: {**told, "usage": bare(told["usage"], "total_tokens")}
        ),
        "SHAPE-1-unknown-status": ended(
            [*text[:-2], done(0, {**text[-2]["item"], "status": "finished"}), text[-1]],
            lambda told: {**told, "output": [{**told["output"][0], "status": "finished"}]},
        ),
    }


def _others() -> dict[str, Transcript]:
    text = _text()
    body = written(text).encode()
    events = numbered(text)
    last = text[-1]["response"]
    resumed = "".join(map(frame, events[6:])) + _DONE
    renumbered = "".join(frame({**e, "sequence_number": n}) for n, e in enumerate(events[6:], 6))
    broken = body.replace(b"Hel", b"Hel\xc3")
    return {
        "FRAME-5-half-a-character": Transcript(broken),
        "FRAME-10-json": Transcript(body, headers={"content-type": "application/x-ndjson"}),
        "FRAME-10-plain": Transcript(body, headers={"content-type": "text/plain"}),
        "FOLD-3-still-running": Transcript(body, retrieved=response("in_progress")),
        "FOLD-3-no-output": Transcript(body, retrieved={**last, "output": []}),
        "FOLD-3-more-fields": Transcript(body, retrieved={**last, "background": True}),
        "FOLD-4-from-the-beginning": Transcript(body, resumed={5: body}),
        "FOLD-4-one-too-many": Transcript(
            body, resumed={5: ("".join(map(frame, events[5:])) + _DONE).encode()}
        ),
        "FOLD-4-one-too-few": Transcript(body, resumed={4: resumed.encode()}),
        "FOLD-4-other-numbers": Transcript(body, resumed={3: (renumbered + _DONE).encode()}),
    }


def _faults() -> dict[str, Transcript]:
    error = {"message": "No.", "type": "invalid_request_error", "param": None, "code": "no"}

    def told(status: int, content: Any, **headers: str) -> Transcript:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Transcript(json.dumps(content).encode(), status, {**_JSON, **named})

    return {
        "FAULT-1-problem-details": told(400, {"title": "Bad Request", "status": 400}),
        "FAULT-1-a-text": told(404, {"error": "not found"}),
        "FAULT-1-detail": told(422, {"detail": [{"loc": ["body"], "msg": "missing"}]}),
        "FAULT-1-no-param": told(400, {"error": {"message": "No.", "type": "x", "code": "no"}}),
        "FAULT-1-no-json": Transcript(b"Internal Server Error", 500, dict(_JSON)),
        "FAULT-2-number-for-a-code": told(400, {"error": {**error, "code": 400}}),
        "FAULT-2-empty-message": told(500, {"error": {**error, "message": ""}}),
        "FAULT-2-list-for-a-param": told(400, {"error": {**error, "param": ["body", "input"]}}),
        "FAULT-3-html": told(404, {"error": error}, content_type="text/html"),
        "FAULT-6-no-retry-after": told(429, {"error": {**error, "type": "rate_limit_error"}}),
    }
