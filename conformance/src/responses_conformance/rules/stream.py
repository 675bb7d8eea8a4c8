"""Judges a whole stream: an automaton over its events, and what they come to in the end."""

from dataclasses import dataclass, field
from typing import Any

from responses_conformance.findings import Findings, difference, shown
from responses_conformance.frames import Frame, Frames, read
from responses_conformance.rules.bodies import judge_response
from responses_conformance.rules.items import Items
from responses_conformance.rules.kinds import ITEMS, LIFECYCLE, OF_ITEMS, TERMINAL
from responses_conformance.schemas import Schemas

_IDENTITY = ("created_at", "model", "object")
#: What an error event may tell in an object and beside it.
_TOLD_TWICE = ("code", "message", "param")


@dataclass
class Judged:
    """A stream that was judged: its events, and its terminal response, if it has one."""

    frames: tuple[Frame, ...]
    response: dict[str, Any] | None = None
    kinds: list[str] = field(default_factory=list)
    cancelled: bool = False


def judge_stream(
    content: bytes, schemas: Schemas, findings: Findings, *, after: int | None = None
) -> Judged:
    """Judge the bytes of a stream. With `after` it is one that was resumed after that number, which
    is judged by its frames, numbers and shapes; the life of items is that of the whole stream."""
    frames = read(content, findings)
    judged = Judged(frames.events, kinds=[frame.kind for frame in frames.events])
    _numbers(frames, findings, after)
    for frame in frames.events:
        if frame.kind not in schemas.event_kinds:
            findings.add("LIFE-13", frame.where, shown(frame.kind))
        else:
            schemas.judge("StreamEvent", frame.data, frame.where, findings)
    _faults(frames, findings)
    life = _Lifecycle(frames, findings, whole=after is None)
    life.run()
    judged.response, judged.cancelled = life.response, life.cancelled
    if schemas.exact and life.ended and not frames.done and not frames.cut:
        findings.add("FRAME-7", "the end", "no [DONE]")
    if after is None and frames.readable:
        _items(frames, judged.response, findings)
    if judged.response is not None:
        judge_response(judged.response, "the terminal response", findings)
    return judged


def _numbers(frames: Frames, findings: Findings, after: int | None) -> None:
    expected: int | None = None
    lost = not frames.readable
    for frame in frames.events:
        number = frame.data.get("sequence_number")
        if not isinstance(number, int) or isinstance(number, bool):
            seen = shown(number) if "sequence_number" in frame.data else "none"
            findings.add("SEQ-1", frame.where, seen)
            expected = None if expected is None else expected + 1
            continue
        if expected is None:
            if after is None and number != 0 and frame is frames.events[0] and not lost:
                findings.add("SEQ-2", frame.where, str(number))
        elif number < expected:
            findings.add("SEQ-4", frame.where, f"{number}, where {expected} is next")
            continue
        elif number > expected and not lost:
            findings.add("SEQ-3", frame.where, f"{number}, where {expected} is next")
        expected = number + 1


def _faults(frames: Frames, findings: Findings) -> None:
    for frame in frames.events:
        if frame.kind != "error":
            continue
        nested = frame.data.get("error")
        nested = nested if isinstance(nested, dict) else None
        holder = nested or frame.data
        if not (holder.get("code") and holder.get("message")):
            findings.add("FAULT-5", frame.where, shown(frame.data))
        elif nested is not None:
            beside = {name: frame.data[name] for name in _TOLD_TWICE if name in frame.data}
            if any(nested.get(name) != value for name, value in beside.items()):
                findings.add("FAULT-4", frame.where, shown(frame.data))


class _Lifecycle:
    """Follows the events that carry the response."""

    def __init__(self, frames: Frames, findings: Findings, *, whole: bool) -> None:
        self._frames = frames
        self._findings = findings
        self._whole = whole
        self._first: dict[str, Any] | None = None
        self._created = False
        self._running = False
        self.response: dict[str, Any] | None = None
        self.ended = False
        self.cancelled = False

    def run(self) -> None:
        events = self._frames.events
        if self._whole and events and events[0].kind != "response.created":
            self._findings.add("LIFE-1", events[0].where, shown(events[0].kind))
        after_end = False
        for number, frame in enumerate(events):
            if self.ended and frame.kind not in TERMINAL:
                if not after_end:
                    self._findings.add("LIFE-5", frame.where, shown(frame.kind))
                after_end = True
                continue
            if frame.kind == "error":
                self._error(frame, events[number + 1 :])
            elif frame.kind in ITEMS:
                self._running = True
            elif frame.kind in LIFECYCLE:
                self._snapshot(frame)
        nothing_left = not self._whole and not events
        if not (self.ended or self._frames.cut or nothing_left) and self._frames.readable:
            last = events[-1].kind if events else "no event"
            self._findings.add("LIFE-3", "the end", f"last: {last}")

    def _error(self, frame: Frame, rest: tuple[Frame, ...]) -> None:
        nested = frame.data.get("error")
        code = (nested if isinstance(nested, dict) else frame.data).get("code")
        if rest:
            if rest[0].kind != "response.failed":
                self._findings.add("LIFE-12", frame.where, f"then {rest[0].kind}")
        elif code == "response_cancelled":
            self.ended = self.cancelled = True
        else:
            self._findings.add("LIFE-12", frame.where, f"nothing follows, the code is {code}")
            self.ended = True  # Told once.

    def _snapshot(self, frame: Frame) -> None:
        add, where = self._findings.add, frame.where
        if frame.kind in TERMINAL:
            if self.ended:
                add("LIFE-4", where, frame.kind)
                return
            self.ended = True
        if frame.kind == "response.created":
            if self._created:
                add("LIFE-2", where, frame.kind)
                return
            self._created = True
        elif frame.kind == "response.queued" and self._running:
            add("LIFE-8", where, "the response is in progress")
        elif frame.kind == "response.in_progress":
            self._running = True
        response = frame.data.get("response")
        if not isinstance(response, dict):
            return
        status = response.get("status")
        untold = status is None and frame.kind not in TERMINAL
        if not untold and status not in LIFECYCLE[frame.kind]:
            add("LIFE-7", where, f"status {shown(status)}")
        if frame.kind == "response.created" and response.get("output"):
            add("LIFE-10", where, shown(response["output"]))
        first = self._first = self._first or response
        if response.get("id") != first.get("id") or response.get("id") == "":
            add("LIFE-6", where, f"{shown(response.get('id'))}, was {shown(first.get('id'))}")
        # What one of both lacks is for the shapes to judge.
        known = [name for name in _IDENTITY if name in response and name in first]
        changed = [name for name in known if response[name] != first[name]]
        if changed:
            seen = ", ".join(f"{name} {shown(response.get(name))}" for name in changed)
            add("LIFE-9", where, seen)
        if frame.kind in TERMINAL:
            self.response = response


def _items(frames: Frames, response: dict[str, Any] | None, findings: Findings) -> None:
    items = Items(findings)
    ended = False
    for frame in frames.events:
        if not ended and (frame.kind in OF_ITEMS or "output_index" in frame.data):
            items.take(frame)
        ended = ended or frame.kind in TERMINAL
    if frames.cut or not ended:
        return
    items.end(response.get("status") if response else None)
    output = response.get("output") if response else None
    if not items.sure or not isinstance(output, list):
        return
    told = [item.done for item in items.in_order if item.done is not None]
    ids = [[shown(_identity(item)) for item in side] for side in (told, output)]
    if ids[0] != ids[1] and not findings.has("ITEM-5"):
        seen = f"announced {', '.join(ids[0]) or 'none'}; in the response {', '.join(ids[1])}"
        findings.add("FOLD-1", "the terminal response", seen)
        return
    for index, (one, other) in enumerate(zip(told, output, strict=False)):
        found = difference(one, other, nulls=False)
        if found and items.in_order[index].sure:
            findings.add("FOLD-2", f"output[{index}] of the terminal response", found)


def _identity(item: Any) -> Any:
    return item.get("id") if isinstance(item, dict) else item
