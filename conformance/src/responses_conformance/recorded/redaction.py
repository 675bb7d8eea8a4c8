"""Takes out of a request what is somebody's own: secrets, paths, ids, times and long texts.

Ids that the server told become placeholders, `resp_00000001`, numbered in the order in which
requests of a flow name them; so do UUIDs and hashes. Absolute paths become `/workspace`, times
close to now become old ones. Long texts, of more than 100 characters, are the client's work and not
ours to copy: what stands in their place tells their length. So are descriptions of more than 60.
"""

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

REMOVED = "<redacted>"
HOST = "server.test"

_SECRETS = {"authorization": f"Bearer {REMOVED}"}
_SECRET_NAMES = re.compile(r"cookie|api-?key|token$|secret", re.IGNORECASE)
_LEFT_OUT = frozenset({"connection", "content-length", "transfer-encoding"})
_TOLD = re.compile(rb'"(?:id|call_id|item_id|response_id)": ?"([a-z]+_[A-Za-z0-9]{8,})"')
_ID = re.compile(r"\b([a-z]+)_[A-Za-z0-9]{8,}\b")
_UUID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_HASH = re.compile(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")
_PATH = re.compile(r"(?<![\w/.:-])/(?:home|root|tmp|usr|var|work|opt|mnt|Users|private)/[\w./@+-]*")
_NUMBER = re.compile(r"(?<![\w.-])(\d{10}|\d{13})(?![\w.-])")
_DAY = 86400
_THEN = 1_700_000_000
#: How long a text may be, in characters, by the name of its field.
_LONG = 100
_LENGTHS = {"description": 60}
#: Texts that are no prompts: what tools take and give back, and grammars.
_KEPT = frozenset({"arguments", "input", "output", "definition"})
_SEALED = "encrypted_content"


class Redactor:
    """Redacts the requests of one flow."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._now = time.time()
        today = datetime.fromtimestamp(self._now, UTC)
        days = [(today + timedelta(days=days)).date().isoformat() for days in (-1, 0, 1)]
        self._days = re.compile("|".join(map(re.escape, days)))

    def learn(self, answer: bytes) -> None:
        """Take note of the ids that a part of an answer tells."""
        self._told.update(told.decode() for told in _TOLD.findall(answer))

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without secrets, by their names in lower case."""
        kept: dict[str, str] = {}
        for name, value in headers.items():
            lower = name.lower()
            if lower in _LEFT_OUT:
                continue
            if lower == "host":
                kept[lower] = HOST
            elif lower in _SECRETS or _SECRET_NAMES.search(lower):
                kept[lower] = _SECRETS.get(lower, REMOVED)
            else:
                kept[lower] = self.text(value)
        return kept

    def body(self, value: Any, key: str = "") -> Any:
        """A JSON value, with fillers for long texts."""
        if isinstance(value, dict):
            return {self.text(name): self.body(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.body(one, key) for one in value]
        if isinstance(value, str):
            if key == _SEALED:
                return "sealed"
            text = self.text(value)
            short = key in _KEPT or len(text) <= _LENGTHS.get(key, _LONG)
            return text if short else f"Placeholder. {_filler(len(value))}"
        if isinstance(value, int) and not isinstance(value, bool):
            return self._old(value)
        return value

    def text(self, text: str) -> str:
        """A text without ids, paths and times."""
        text = _ID.sub(self._named, text)
        text = _UUID.sub(lambda found: self._numbered(found[0], "uuid"), text)
        text = _HASH.sub(lambda found: self._numbered(found[0], "hash"), text)
        text = _PATH.sub("/workspace", text)
        text = self._days.sub("2026-01-01", text)
        return _NUMBER.sub(lambda found: str(self._old(int(found[0]))), text)

    def _named(self, found: re.Match[str]) -> str:
        identity, prefix = found[0], found[1]
        return self._numbered(identity, prefix) if identity in self._told else identity

    def _numbered(self, identity: str, kind: str) -> str:
        if identity not in self._names:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            forms = {
                "uuid": f"00000000-0000-7000-8000-{number:012}",
                "hash": f"{number:0{len(identity)}}",
            }
            self._names[identity] = forms.get(kind, f"{kind}_{number:08}")
        return self._names[identity]

    def _old(self, number: int) -> int:
        for scale in (1, 1000):
            if abs(number / scale - self._now) < _DAY:
                return _THEN * scale
        return number


def _filler(length: int) -> str:
    return f"[filler for {length} characters of client text]"


def as_file(content: Mapping[str, Any]) -> str:
    """A recorded request as it is written: a field a line, which keeps files small and diffs
    readable."""
    lines = [f"{json.dumps(name)}: {_compact(value)}" for name, value in content.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
