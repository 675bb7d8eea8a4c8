"""Recorded requests, as they lie in files.

A file holds one request: `client`, `version`, `flow`, `transport` (`http`, `websocket-handshake` or
`websocket-frame`), `method`, `path` (from `/v1` on), `headers`, `original_body_bytes` and `body`
(JSON; null for none). Files of one folder whose names begin with consecutive numbers and that tell
of the same flow are one conversation. Ids are placeholders such as `resp_00000001`, the same all
over a flow.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeGuard

HTTP = "http"
HANDSHAKE = "websocket-handshake"
FRAME = "websocket-frame"

#: What answers a call, and the types of calls that it may answer.
ANSWERS = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "tool_search_output": "tool_search_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
}
#: The type of item that an id's prefix tells of.
PREFIXES = {
    "msg": "message",
    "rs": "reasoning",
    "fc": "function_call",
    "ctc": "custom_tool_call",
    "tsc": "tool_search_call",
    "cmp": "compaction",
}

_TRANSPORTS = (HTTP, HANDSHAKE, FRAME)
_PLACEHOLDER = re.compile(r"[a-z]+_\d{8}")
_BASE = re.compile(r"^/v1(?=/)")
_CREATES = "/responses"


class RecordedError(Exception):
    """A file holds no recorded request. Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request. `name` is `CLIENT/NUMBER-FLOW`; `path` is what follows the base URL."""

    name: str
    client: str
    version: str
    flow: str
    transport: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def creates(self) -> bool:
        """Whether it asks for a response."""
        if self.transport == FRAME:
            return self.asked.get("type") == "response.create"
        return self.method == "POST" and self.path == _CREATES

    @property
    def asked(self) -> Mapping[str, Any]:
        """The body, empty where there is none or it is no object."""
        return self.body if isinstance(self.body, dict) else {}

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items that it brings: its input, or what it adds to a conversation."""
        given = self.asked.get("input") if self.creates else self.asked.get("items")
        return [item for item in given if isinstance(item, dict)] if type(given) is list else []


#: The requests of one conversation, in their order.
Flow = tuple[Recorded, ...]


def is_placeholder(value: object) -> TypeGuard[str]:
    """Whether a value stands for an id that a server told."""
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def load(folders: Iterable[Path]) -> list[Flow]:
    """The flows of all files below some folders. Raises `RecordedError`."""
    found: list[Flow] = []
    for folder in folders:
        files = sorted(folder.rglob("*.json"), key=lambda file: (str(file.parent), _number(file)))
        if not files:
            raise RecordedError(f"{folder}: there are no recorded requests")
        read = [(file.parent, _read(file)) for file in files]
        for _, flow in groupby(read, key=lambda one: (one[0], one[1].flow)):
            found.append(tuple(request for _, request in flow))
    return found


def _number(file: Path) -> tuple[int, str]:
    number = re.match(r"\d+", file.name)
    return (int(number[0]) if number else 0, file.name)


def _read(file: Path) -> Recorded:
    try:
        content = json.loads(file.read_text("utf-8"))
        transport = content["transport"]
        if transport not in _TRANSPORTS:
            raise RecordedError(f"{file}: there is no transport {transport!r}")
        return Recorded(
            name=f"{file.parent.name}/{file.stem}",
            client=content["client"],
            version=content["version"],
            flow=content["flow"],
            transport=transport,
            method=content["method"],
            path=_BASE.sub("", content["path"]),
            headers={str(name).lower(): str(value) for name, value in content["headers"].items()},
            body=content["body"],
        )
    except (OSError, ValueError) as error:
        raise RecordedError(f"{file}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordedError(f"{file}: it is no recorded request, as it lacks {error}") from error
