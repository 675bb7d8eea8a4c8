"""Judges the parts of an item and their text, and the arguments of a call."""

from dataclasses import dataclass, field
from typing import Any

from responses_conformance.findings import Findings, shown
from responses_conformance.frames import Frame
from responses_conformance.rules.kinds import CALL_FIELDS, HOLDS, KNOWN_PARTS, text_field


@dataclass
class Part:
    """A part as its events tell it. `sure` is false once an event was missing or misplaced, as
    what follows is then no fault of its own."""

    kind: str
    deltas: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    annotations: list[Any] = field(default_factory=list)
    done: str | None = None
    final: dict[str, Any] | None = None
    sure: bool = True

    @property
    def text(self) -> str:
        """The text as far as it is known: that of its `done` event, or its deltas."""
        return "".join(self.deltas) if self.done is None else self.done

    @property
    def untold(self) -> bool:
        """Whether no event told the whole text of the part, which is of a kind that has one."""
        return self.sure and self.done is None and self.kind in KNOWN_PARTS

    def announced(self, part: dict[str, Any], item: str, name: str) -> list[tuple[str, str]]:
        """What is wrong with the part that was announced, as rules and what was seen."""
        wrong = []
        held = HOLDS.get((item, name), frozenset({self.kind}))
        if self.kind in KNOWN_PARTS and self.kind not in held:
            wrong.append(("PART-6", f"a part {self.kind} in the {name} of a {item}"))
            self.sure = False
        text = part.get(text_field(self.kind))
        if isinstance(text, str) and text:
            wrong.append(("PART-7", shown(text)))
            self.sure = False
        return wrong

    def add(self, event: dict[str, Any]) -> list[tuple[str, str]]:
        """Take in a delta."""
        wrong = []
        if self.sure and (self.done is not None or self.final is not None):
            wrong.append(("PART-5", shown(event)))
            self.sure = False
        if isinstance(event.get("delta"), str):
            self.deltas.append(event["delta"])
        else:
            self.sure = False
        if isinstance(event.get("logprobs"), list):
            self.logprobs += event["logprobs"]
        return wrong

    def finish(self, event: dict[str, Any]) -> list[tuple[str, str]]:
        """Take in the event that tells the whole text."""
        text = event.get(text_field(self.kind))
        if not isinstance(text, str):
            self.sure = False
            return []
        if self.sure and self.final is not None:
            self.sure = False
            return [("PART-5", shown(event))]
        if self.done is not None:
            self.sure = False
            return [("TEXT-6", shown(text))]
        self.done = text
        if not self.sure:
            return []
        if text and not any(self.deltas):
            return [("TEXT-2", f"no delta, then {shown(text)}")]
        wrong = []
        if text != "".join(self.deltas):
            wrong.append(("TEXT-1", f"deltas {shown(''.join(self.deltas))}, done {shown(text)}"))
        logprobs = event.get("logprobs")
        if isinstance(logprobs, list) and logprobs != self.logprobs:
            wrong.append(("TEXT-7", f"{len(self.logprobs)} in deltas, {len(logprobs)} at the end"))
        return wrong

    def close(self, part: dict[str, Any]) -> list[tuple[str, str]]:
        """Take in the part as it was closed."""
        if self.final is not None:
            return [("PART-4", shown(part))]
        self.final = part
        if part.get("type") != self.kind:
            self.sure = False
            return [("PART-6", f"announced as {self.kind}, closed as {part.get('type')}")]
        wrong = self._annotated(part)
        text = part.get(text_field(self.kind))
        if not self.sure or not isinstance(text, str) or text == self.text:
            return wrong
        if text and self.done is None and not self.deltas:
            self.done = text
            return [("TEXT-2", f"no delta, then {shown(text)}")]
        self.sure = False
        return [("TEXT-3", f"told {shown(self.text)}, closed with {shown(text)}")]

    def annotate(self, event: dict[str, Any]) -> list[tuple[str, str]]:
        """Take in an annotation."""
        expected, index = len(self.annotations), event.get("annotation_index")
        self.annotations.append(event["annotation"])
        if self.sure and isinstance(index, int) and index != expected:
            return [("TEXT-8", f"annotation_index {index}, where {expected} is next")]
        return []

    def _annotated(self, part: dict[str, Any]) -> list[tuple[str, str]]:
        """Hold the annotations that were added against those that the part is closed with."""
        ended = part.get("annotations")
        ended = [] if ended is None else ended
        if not self.sure or ended == self.annotations or not isinstance(ended, list):
            return []
        return [("TEXT-8", f"added {shown(self.annotations)}, closed with {shown(ended)}")]


@dataclass
class Call:
    """The arguments or the input of a call as its events tell them."""

    kind: str
    deltas: list[str] = field(default_factory=list)
    done: str | None = None
    sure: bool = True

    def take(self, event: dict[str, Any], done: bool) -> list[tuple[str, str]]:
        """Take in a delta, or the event that tells the whole."""
        text = event.get(CALL_FIELDS[self.kind] if done else "delta")
        if not isinstance(text, str):
            self.sure = False
            return []
        if self.done is not None:
            self.sure = False
            return [("ARGS-5", shown(event))]
        if not done:
            self.deltas.append(text)
            return []
        self.done = text
        if not self.sure:
            return []
        if text and not any(self.deltas):
            return [("ARGS-2", f"no delta, then {shown(text)}")]
        if text != "".join(self.deltas):
            return [("ARGS-1", f"deltas {shown(''.join(self.deltas))}, done {shown(text)}")]
        return []

    def close(self, item: dict[str, Any]) -> list[tuple[str, str]]:
        """Take in the call as it was closed."""
        text = item.get(CALL_FIELDS[self.kind])
        if not self.sure or not isinstance(text, str):
            return []
        told = "".join(self.deltas) if self.done is None else self.done
        if self.done is None and text and not any(self.deltas):
            return [("ARGS-2", f"no delta, then {shown(text)}")]
        wrong = []
        if text != told:
            wrong.append(("ARGS-3", f"told {shown(told)}, closed with {shown(text)}"))
        if self.done is None and item.get("status") == "completed":
            wrong.append(("ARGS-4", "the call is completed"))
        return wrong


def report(wrong: list[tuple[str, str]], frame: Frame, findings: Findings) -> None:
    """Note what was found wrong at a frame."""
    for rule, seen in wrong:
        findings.add(rule, frame.where, seen)
