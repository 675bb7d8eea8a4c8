"""Transcripts: what a server sent, as a file that any reader of event streams can read, too.

The file is the body as it came. Before it may stand comments that tell what else is known:

    : @status 200
    : @header content-type: text/event-stream
    : @request {"model": "m", "input": "hi", "stream": true}
    : @retrieved {"id": "resp_1", …}

A line `: @resumed 7` begins the body of the same response's stream, resumed after event 7. A
transcript of another status than 200 holds the body of an error.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from responses_conformance.findings import Findings
from responses_conformance.rules.bodies import (
    judge_body,
    judge_error,
    judge_resumed,
    judge_retrieved,
)
from responses_conformance.rules.stream import Judged, judge_stream
from responses_conformance.schemas import Schemas
from responses_conformance.texts import parsed

_MARK = b": @"


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a server sent. `resumed` holds the bodies of resumed streams, by the number after
    which they begin."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    request: Any = None
    retrieved: Any = None
    resumed: dict[int, bytes] = field(default_factory=dict)

    def written(self) -> bytes:
        """The transcript as a file."""
        head = [f": @status {self.status}"]
        head += [f": @header {name}: {value}" for name, value in self.headers.items()]
        for name, value in (("request", self.request), ("retrieved", self.retrieved)):
            if value is not None:
                head.append(f": @{name} {json.dumps(value)}")
        parts = [("\n".join(head) + "\n\n").encode(), self.body]
        for after, body in self.resumed.items():
            parts += [f": @resumed {after}\n\n".encode(), body]
        return b"".join(parts)


class TranscriptError(Exception):
    """A file that is no transcript. Says why."""


def load(file: Path) -> Transcript:
    """Read a transcript. Raises `TranscriptError`."""
    return parse(file.read_bytes())


def parse(content: bytes) -> Transcript:
    """A transcript from the bytes of its file; what was not noted is taken to be as it should.

    Raises `TranscriptError`.
    """
    facts: dict[str, Any] = {"headers": {}, "resumed": {}}
    body: list[bytes] = []
    bodies: dict[int | None, list[bytes]] = {None: body}
    before = True  # Whether nothing but notes was read, after which a blank line is no content.
    for line in content.splitlines(keepends=True):
        if line.startswith(_MARK):
            text = line[len(_MARK) :].decode("utf-8", "replace")
            name, _, value = text.strip().partition(" ")
            if name == "resumed":
                if not value.isdecimal():
                    raise TranscriptError(f"@resumed {value} is no number of an event")
                body = bodies.setdefault(int(value), [])
            elif name == "header":
                key, _, held = value.partition(":")
                facts["headers"][key.strip().lower()] = held.strip()
            elif name in ("status", "request", "retrieved"):
                try:
                    facts[name] = parsed(value)
                except ValueError as error:
                    raise TranscriptError(f"@{name} is no JSON: {error}") from error
            else:
                raise TranscriptError(f"@{name} is not known")
            before = True
        elif before and not line.strip():
            before = False
        else:
            before = False
            body.append(line)
    if type(facts.get("status", 200)) is not int:
        raise TranscriptError("@status is no number")
    facts["headers"].setdefault("content-type", "text/event-stream")
    facts["resumed"] = {
        after: b"".join(lines) for after, lines in bodies.items() if after is not None
    }
    return Transcript(b"".join(bodies[None]), **facts)


def judge(transcript: Transcript, schemas: Schemas) -> tuple[Findings, Judged | None]:
    """What is wrong with a transcript, and its stream, if it is one."""
    findings = Findings()
    media = transcript.headers.get("content-type", "").partition(";")[0].strip().lower()
    if transcript.status >= 400:
        error = judge_error(transcript.status, transcript.headers, transcript.body, findings)
        if error is not None:
            schemas.judge("Error", {"error": error}, "the error", findings)
        return findings, None
    if media == "application/json":
        try:
            body = parsed(transcript.body)
        except ValueError as error:
            findings.add("SHAPE-1", "the body", f"it is no JSON: {error}")
            return findings, None
        judge_body("Response", body, schemas, "the body", findings)
        return findings, None
    if media != "text/event-stream":
        findings.add("FRAME-10", "the answer", f"content-type {media or 'none'}")
    judged = judge_stream(transcript.body, schemas, findings)
    if transcript.retrieved is not None:
        judge_retrieved(transcript.retrieved, judged.response, "retrieved", findings)
    for after, body in transcript.resumed.items():
        part = Findings(where=f"resumed after {after}")
        resumed = judge_stream(body, schemas, part, after=after)
        findings.found += part.found
        events = [[frame.data for frame in side.frames] for side in (judged, resumed)]
        judge_resumed(tuple(events[0]), tuple(events[1]), after, findings)
    return findings, judged
