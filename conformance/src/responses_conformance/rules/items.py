"""Judges the items of a stream: from their announcement to their end."""

from dataclasses import dataclass, field
from typing import Any

from responses_conformance.findings import Findings, shown
from responses_conformance.frames import Frame
from responses_conformance.rules.kinds import (
    ANNOTATION,
    CALL_FIELDS,
    CALLS,
    FILLED,
    INDEX,
    PARTS,
    TEXT,
    text_field,
)
from responses_conformance.rules.parts import Call, Part, report


@dataclass
class Item:
    """An item as its events tell it. `sure` is false where it was not announced as it should be."""

    index: int
    added: dict[str, Any]
    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    call: Call | None = None
    done: dict[str, Any] | None = None
    sure: bool = True

    @property
    def kind(self) -> str:
        """The item's type."""
        return str(self.added.get("type"))

    def doubt(self) -> None:
        """Judge nothing more of it: an event of it could not be read."""
        self.sure = False
        for part in self.parts.values():
            part.sure = False
        if self.call is not None:
            self.call.sure = False


#: What of an item never changes.
_FIXED = ("type", "call_id", "name", "namespace")


class Items:
    """The items of one stream."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._items: dict[int, Item] = {}
        #: Whether items can be held against the terminal response.
        self.sure = True

    @property
    def in_order(self) -> list[Item]:
        """The items by their index."""
        return [self._items[index] for index in sorted(self._items)]

    def take(self, frame: Frame) -> None:
        """Judge an event of an item; an event without a usable index is left to its schema."""
        event = frame.data
        index = event.get("output_index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            self.sure = False
            return
        if frame.kind == "response.output_item.added":
            self._add(index, frame)
            return
        item = self._items.get(index)
        if item is None:
            self._findings.add("ITEM-1", frame.where, f"output_index {index}")
            item = self._items[index] = Item(index, {}, sure=False)
            self.sure = False
        if frame.kind == "response.output_item.done":
            self._close(item, frame)
            return
        if item.done is not None:
            if item.sure:
                self._findings.add("ITEM-9", frame.where, shown(event))
            item.sure = self.sure = False
            return
        named, announced = event.get("item_id"), item.added.get("id")
        if isinstance(named, str) and isinstance(announced, str) and named != announced:
            self._findings.add("ITEM-4", frame.where, f"{named}, announced as {announced}")
        if frame.kind in PARTS:
            self._part(item, frame)
        elif frame.kind in TEXT:
            self._text(item, frame)
        elif frame.kind in CALLS:
            self._call(item, frame)
        elif frame.kind == ANNOTATION:
            self._annotation(item, frame)

    def end(self, status: str | None) -> None:
        """Judge what is left at the end of a stream whose response has this status."""
        for item in self.in_order:
            if item.done is None:
                if item.sure:
                    self._findings.add(
                        "ITEM-7", f"item {item.index}", f"{item.kind} {shown(item.added.get('id'))}"
                    )
                self.sure = False
            elif status == "completed" and item.done.get("status") == "incomplete":
                self._findings.add(
                    "ITEM-13", f"item {item.index}", "an incomplete item, a completed response"
                )

    def _add(self, index: int, frame: Frame) -> None:
        added = frame.data.get("item")
        if not isinstance(added, dict):
            self.sure = False
            return
        item = Item(index, added)
        known = self._items.get(index)
        if known is not None:
            if known.sure:
                self._findings.add("ITEM-3", frame.where, f"output_index {index}")
            item.sure = self.sure = False
        elif index != len(self._items):
            seen = f"output_index {index}, where {len(self._items)} is next"
            self._findings.add("ITEM-2", frame.where, seen)
            self.sure = False
        identity = added.get("id")
        others = [other.added.get("id") for other in self._items.values()]
        if identity == "" or (identity is not None and identity in others):
            if known is None:
                self._findings.add("ITEM-6", frame.where, shown(identity))
            self.sure = False
        self._items[index] = item
        filled = [name for name in FILLED.get(item.kind, ()) if added.get(name)]
        if filled:
            seen = ", ".join(f"{name} {shown(added[name])}" for name in filled)
            self._findings.add("ITEM-11", frame.where, seen)
            item.sure = False
        if item.kind in FILLED and added.get("status") not in (None, "in_progress"):
            self._findings.add("ITEM-12", frame.where, f"status {added['status']}")
        if item.kind in CALL_FIELDS:
            item.call = Call(item.kind, sure=item.sure)

    def _close(self, item: Item, frame: Frame) -> None:
        done = frame.data.get("item")
        if not isinstance(done, dict):
            item.sure = self.sure = False
            return
        if item.done is not None:
            if item.sure:
                self._findings.add("ITEM-8", frame.where, shown(done.get("id")))
            self.sure = False
            return
        item.done = done
        if not item.sure:
            return
        where, add = frame.where, self._findings.add
        if done.get("id") != item.added.get("id"):
            add("ITEM-5", where, f"{shown(done.get('id'))}, was {shown(item.added.get('id'))}")
        changed = [name for name in _FIXED if done.get(name) != item.added.get(name)]
        if changed:
            seen = ", ".join(f"{name} {shown(done.get(name))}" for name in changed)
            add("ITEM-10", where, seen)
            item.sure = False
            return
        if done.get("status") == "in_progress":
            add("ITEM-13", where, "status in_progress")
        if item.call is not None:
            report(item.call.close(done), frame, self._findings)
        self._close_parts(item, done, frame)

    def _close_parts(self, item: Item, done: dict[str, Any], frame: Frame) -> None:
        sure = True
        for (name, index), part in item.parts.items():
            if part.final is None:
                if part.sure:
                    self._findings.add("PART-3", frame.where, f"{name}[{index}] is open")
                sure = False
            elif part.untold and done.get("status") == "completed":
                self._findings.add("TEXT-5", frame.where, f"{name}[{index}]")
            sure = sure and part.sure
        if not sure:
            return
        for name in ("content", "summary"):
            ended = done.get(name)
            if item.kind not in ("message", "reasoning"):
                continue
            told = [part for (held, _), part in sorted(item.parts.items()) if held == name]
            # Of all others the shape says that they are missing.
            if ended is None and told and (item.kind, name) == ("reasoning", "content"):
                seen = f"told {shown([part.final for part in told])}, closed without {name}"
                self._findings.add("TEXT-4", frame.where, seen)
            if not isinstance(ended, list):
                continue
            if not told and ended:
                words = [_words(part) for part in ended]
                self._findings.add("TEXT-2", frame.where, f"no delta, then {shown(words)}")
            elif [_words(part.final) for part in told] != [_words(part) for part in ended]:
                seen = f"told {shown([part.final for part in told])}, closed with {shown(ended)}"
                self._findings.add("TEXT-4", frame.where, seen)

    def _part(self, item: Item, frame: Frame) -> None:
        name, closed = PARTS[frame.kind]
        part = frame.data.get("part")
        key = self._key(item, name, frame)
        if key is None or not isinstance(part, dict) or not isinstance(part.get("type"), str):
            item.doubt()
            return
        if closed:
            if key not in item.parts:
                if item.sure:
                    self._findings.add("PART-1", frame.where, f"{name}[{key[1]}]")
                item.parts[key] = Part(part["type"], sure=False)
            report(item.parts[key].close(part), frame, self._findings)
            return
        added = Part(part["type"])
        if item.sure and key[1] != sum(held == name for held, _ in item.parts):
            self._findings.add("PART-2", frame.where, f"{INDEX[name]} {key[1]}")
            added.sure = False
            if key in item.parts:
                item.parts[key].sure = False
                return
        item.parts[key] = added
        wrong = added.announced(part, item.kind, name)
        if item.sure:
            report(wrong, frame, self._findings)

    def _text(self, item: Item, frame: Frame) -> None:
        name, kind, done = TEXT[frame.kind]
        key = self._key(item, name, frame)
        if key is None:
            item.doubt()
            return
        part = item.parts.get(key)
        if part is None:
            if item.sure:
                self._findings.add("PART-1", frame.where, f"{name}[{key[1]}]")
            part = item.parts[key] = Part(kind, sure=False)
        elif part.kind != kind:
            if part.sure:
                self._findings.add("PART-6", frame.where, f"the part is {part.kind}")
            part.sure = False
            return
        report(part.finish(frame.data) if done else part.add(frame.data), frame, self._findings)

    def _call(self, item: Item, frame: Frame) -> None:
        kind, _, done = CALLS[frame.kind]
        if item.call is None or item.kind != kind:
            if item.sure:
                self._findings.add("ARGS-6", frame.where, f"the item is a {item.kind}")
            if item.call is not None:
                item.call.sure = False
            return
        report(item.call.take(frame.data, done), frame, self._findings)

        name = frame.data.get("name")
        if item.sure and done and isinstance(name, str) and name != item.added.get("name"):
            seen = f"name {shown(name)}, was {shown(item.added.get('name'))}"
            self._findings.add("ITEM-10", frame.where, seen)

    def _annotation(self, item: Item, frame: Frame) -> None:
        key = self._key(item, "content", frame)
        part = None if key is None else item.parts.get(key)
        if key is None or "annotation" not in frame.data:
            item.doubt()
        elif part is None:
            if item.sure:
                self._findings.add("PART-1", frame.where, f"content[{key[1]}]")
        elif part.final is not None:
            if part.sure:
                self._findings.add("TEXT-8", frame.where, "the part is closed")
        else:
            report(part.annotate(frame.data), frame, self._findings)

    @staticmethod
    def _key(item: Item, name: str, frame: Frame) -> tuple[str, int] | None:
        index = frame.data.get(INDEX[name])
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            return None
        return name, index


def _words(part: Any) -> Any:
    """The part's type, text and annotations, which is what its events tell of it."""
    if not isinstance(part, dict):
        return part
    kind = str(part.get("type"))
    said = {"type": kind, "text": part.get(text_field(kind))}
    return {**said, "annotations": part["annotations"]} if part.get("annotations") else said
