"""Reads `text/event-stream` bytes as the WHATWG rules say, and judges the frames themselves."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from responses_conformance.findings import Findings, shown
from responses_conformance.texts import parsed

DONE = "[DONE]"
_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n?|\n|\Z)")


@dataclass(frozen=True, slots=True)
class Block:
    """The lines between two blank lines. `data` are its data lines, `offset` is its first byte;
    `whole` is whether a blank line ended it."""

    index: int
    offset: int
    event: str | None
    data: tuple[str, ...]
    others: tuple[str, ...]
    whole: bool

    @property
    def text(self) -> str:
        """All data lines as one text."""
        return "\n".join(self.data)


@dataclass(frozen=True, slots=True)
class Frame:
    """A block that holds an event."""

    block: Block
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        """The event's type, or its `event` line where the data has none."""
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else self.block.event or "(no type)"

    @property
    def where(self) -> str:
        """The frame's place, for people."""
        return f"frame {self.block.index} ({self.kind}), byte {self.block.offset}"


@dataclass(frozen=True, slots=True)
class Frames:
    """The events of a stream. `readable` is false once data could not be read, as later events
    cannot be judged by what came before them; `cut` is whether the stream ended inside a frame, and
    `done` whether it ended with `[DONE]`."""

    events: tuple[Frame, ...]
    readable: bool
    cut: bool
    done: bool


def ends(content: bytes | bytearray) -> list[int]:
    """Where frames end: behind each blank line."""
    return [match.end() for match in _BLANK.finditer(content)]


def blocks(content: bytes) -> Iterator[Block]:
    """The blocks of a stream; comments alone make none."""
    index, offset, start = 0, 0, 0
    event: str | None = None
    data: list[str] = []
    others: list[str] = []
    seen = False

    def block(whole: bool) -> Block:
        return Block(index, start, event, tuple(data), tuple(others), whole)

    for raw in _lines(content):
        line = raw.rstrip(b"\r\n").decode("utf-8", "replace").removeprefix("\ufeff")
        if not line:
            if seen:
                yield block(True)
                index += 1
            event, data, others, seen = None, [], [], False
        elif not line.startswith(":"):
            if not seen:
                start, seen = offset, True
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                event = value
            elif name == "data":
                data.append(value)
            else:
                others.append(name)
        offset += len(raw)
    if seen:
        yield block(False)


def read(content: bytes, findings: Findings) -> Frames:
    """The events of a stream, and what is wrong with its frames."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        findings.add("FRAME-5", f"byte {error.start}", shown(error.object[error.start :][:8].hex()))
    events: list[Frame] = []
    readable, done, cut = True, False, False
    for block in blocks(content):
        where = f"frame {block.index}, byte {block.offset}"
        if done:
            findings.add("FRAME-8", where, shown(block.text))
            break
        if not block.whole:
            findings.add("FRAME-6", where, shown(block.text))
            cut = True
            break
        if not block.text:
            fields = ", ".join(dict.fromkeys(block.others)) or "no data"
            findings.add("FRAME-4", where, f"a frame of {fields}")
            continue
        if block.others:
            findings.add("FRAME-4", where, f"the field {block.others[0]}")
        if block.text == DONE:
            done = True
            continue
        event = _event(block)
        if event is None:
            findings.add("FRAME-1", where, shown(block.text))
            readable = False
            continue
        if len(block.data) > 1:
            findings.add("FRAME-9", where, f"{len(block.data)} data lines")
        frame = Frame(block, event)
        if block.event is None:
            findings.add("FRAME-2", frame.where, shown(block.text))
        elif isinstance(event.get("type"), str) and block.event != event["type"]:
            findings.add("FRAME-3", frame.where, f"event: {block.event}")
        events.append(frame)
    return Frames(tuple(events), readable, cut, done)


def _event(block: Block) -> dict[str, Any] | None:
    try:
        event = parsed(block.text)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines with their ends, which may be LF, CRLF or CR."""
    for match in _LINE.finditer(content):
        if match.group():
            yield match.group()
