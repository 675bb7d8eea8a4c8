"""What was found to be wrong with something a server sent."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from responses_conformance.texts import printable

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that was broken: where, and what was seen there. `field` is the place in a schema
    that decides which clients break, as `Schema.field`, where a schema was broken."""

    rule: str
    where: str
    seen: str
    field: str | None = None


@dataclass
class Findings:
    """Collects findings. `where` is put in front of each place."""

    where: str = ""
    found: list[Finding] = field(default_factory=list)

    def add(self, rule: str, where: str, seen: str, field: str | None = None) -> None:
        """Note that `rule` was broken at `where`."""
        place = f"{self.where}: {where}" if self.where and where else self.where or where
        self.found.append(Finding(rule, printable(place), printable(seen), field))

    def has(self, *names: str) -> bool:
        """Whether one of these rules was broken so far."""
        return any(finding.rule in names for finding in self.found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)


def shown(value: Any) -> str:
    """A value as JSON, cut to what a report has room for."""
    text = value if isinstance(value, str) and value.startswith(("{", "[")) else json.dumps(value)
    return cut(text)


def cut(text: str) -> str:
    """A text, cut to what a report has room for."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def difference(left: Any, right: Any, path: str = "", *, nulls: bool = True) -> str | None:
    """The first place where two JSON values differ, and how; None if they are equal.

    Unless `nulls` count, a field that is null equals one that is not there.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            place = f"{path}.{key}" if path else key
            if not nulls and left.get(key) is None and right.get(key) is None:
                continue
            if key not in left or key not in right:
                side = "second" if key in right else "first"
                value = right[key] if key in right else left[key]
                return f"{place} is only in the {side}: {shown(value)}"
            found = difference(left[key], right[key], place, nulls=nulls)
            if found:
                return found
        return None
    if isinstance(left, list) and isinstance(right, list):
        for index, (one, other) in enumerate(zip(left, right, strict=False)):
            found = difference(one, other, f"{path}[{index}]", nulls=nulls)
            if found:
                return found
        if len(left) != len(right):
            return f"{path or 'the list'} has {len(left)} and {len(right)} entries"
        return None
    if type(left) is not type(right) and not _numbers(left, right):
        return f"{path or 'the value'} is {shown(left)} and {shown(right)}"
    return None if left == right else f"{path or 'the value'} is {shown(left)} and {shown(right)}"


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
