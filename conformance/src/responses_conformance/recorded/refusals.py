"""Which refusals a server documents.

A YAML file lists them. Each has a `name`, a `reason` in words, and what tells it: of `status`,
`code` (both as they are), `path`, `param` and `message` (patterns) at least one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from responses_conformance.config import ConfigError
from responses_conformance.exchange import Exchange
from responses_conformance.texts import parsed_yaml

_WORDS = ("name", "reason")
_MARKS = ("status", "code", "path", "param", "message")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal that is documented, and what tells it."""

    name: str
    reason: str
    marks: Mapping[str, Any]

    def fits(self, exchange: Exchange) -> bool:
        """Whether an answer is this refusal."""
        body = exchange.json
        error = body.get("error") if isinstance(body, dict) else None
        told = error if isinstance(error, dict) else {}
        for name, mark in self.marks.items():
            if name in ("status", "code"):
                fits = mark == (exchange.status if name == "status" else told.get("code"))
            elif name == "path":
                fits = re.search(mark, exchange.path) is not None
            else:
                fits = re.search(mark, str(told.get(name) or "")) is not None
            if not fits:
                return False
        return True


def load(file: Path) -> list[Refusal]:
    """The refusals of a file. Raises `ConfigError`."""
    try:
        content = parsed_yaml(file.read_text(encoding="utf-8")) or []
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(content, list):
        raise ConfigError(f"{file}: it must be a list of refusals")
    return [_refusal(file, number, entry) for number, entry in enumerate(content)]


def _refusal(file: Path, number: int, entry: Any) -> Refusal:
    where = f"{file}: refusal {number + 1}"
    if not isinstance(entry, dict) or not all(isinstance(entry.get(word), str) for word in _WORDS):
        raise ConfigError(f"{where}: it needs a name and a reason")
    marks = {name: value for name, value in entry.items() if name not in _WORDS}
    unknown = [name for name in marks if name not in _MARKS]
    if unknown or not marks:
        what = f"there is no {unknown[0]}" if unknown else "nothing tells it"
        raise ConfigError(f"{where}: {what}; a refusal is told by {', '.join(_MARKS)}")
    for name in ("path", "param", "message"):
        try:
            re.compile(marks.get(name, ""))
        except (re.error, TypeError) as error:
            raise ConfigError(f"{where}: {name}: {error}") from error
    return Refusal(entry["name"], entry["reason"], marks)
