"""Paths into JSON values, templates that are filled from them, and what a value is held against.

A path is `output[0].id`. In brackets stand an index, which may be negative; `name=value`, which
takes the first entry that fits; `*`, which takes all; or `*name=value`, which takes all that fit.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from responses_conformance.findings import shown
from responses_conformance.texts import parsed

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_HOLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


#: Stands for a field that is not there.
ABSENT = "$absent"


class Missing(Exception):
    """A path leads nowhere. Says where it ends."""


class Unreadable(Exception):
    """A case says something that the suite does not understand."""


def at(value: Any, path: str) -> Any:
    """What lies at a path. Raises `Missing`."""
    steps = [(name, bracket) for name, bracket in _STEP.findall(path)]
    return _follow(value, steps, path)


def _follow(value: Any, steps: list[tuple[str, str]], path: str) -> Any:
    for number, (name, bracket) in enumerate(steps):
        if name:
            if not isinstance(value, Mapping) or name not in value:
                raise Missing(f"{path}: there is no {name}")
            value = value[name]
            continue
        if not isinstance(value, (list, tuple)):
            raise Missing(f"{path}: [{bracket}] of what is no list")
        if bracket.startswith("*"):
            rest = steps[number + 1 :]
            return [_follow(entry, rest, path) for entry in _fitting(value, bracket[1:])]
        if "=" in bracket:
            fitting = _fitting(value, bracket)
            if not fitting:
                raise Missing(f"{path}: no entry has {bracket}")
            value = fitting[0]
            continue
        try:
            value = value[int(bracket)]
        except (IndexError, ValueError) as error:
            raise Missing(f"{path}: there is no [{bracket}] among {len(value)}") from error
    return value


def _fitting(entries: Any, wanted: str) -> list[Any]:
    name, _, value = wanted.partition("=")
    if not name:
        return list(entries)
    return [e for e in entries if isinstance(e, Mapping) and str(e.get(name)) == value]


def filled(template: Any, scope: Mapping[str, Any]) -> Any:
    """A template with its holes `{{path}}` filled from `scope`.

    A text that is one hole becomes what lies there, whatever its type; an entry of a list that is
    `{{*path}}` is replaced by the entries of the list there; a field whose value comes to `$absent`
    is left out. Raises `Missing`.
    """
    if isinstance(template, str):
        whole = _HOLE.fullmatch(template)
        if whole:
            return _looked_up(whole[1], scope)
        return _HOLE.sub(lambda hole: _as_text(_looked_up(hole[1], scope)), template)
    if isinstance(template, list):
        entries: list[Any] = []
        for entry in template:
            spread = _HOLE.fullmatch(entry) if isinstance(entry, str) else None
            if spread and spread[1].startswith("*"):
                entries += _looked_up(spread[1][1:], scope)
            else:
                entries.append(filled(entry, scope))
        return entries
    if isinstance(template, dict):
        entries_of = {key: filled(value, scope) for key, value in template.items()}
        return {key: value for key, value in entries_of.items() if value != ABSENT}
    return template


def _looked_up(path: str, scope: Mapping[str, Any]) -> Any:
    name, _, argument = path.partition(":")
    if argument and name in _MADE:
        return _MADE[name](argument)
    return at(scope, path)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _nested(depth: str) -> Any:
    """A JSON Schema of `anyOf`s inside one another."""
    schema: Any = {"type": "string"}
    for _ in range(int(depth)):
        schema = {"anyOf": [schema]}
    return schema


_MADE: dict[str, Callable[[str], Any]] = {
    "words": lambda number: "word " * int(number),
    "letters": lambda number: "a" * int(number),
    "nested": _nested,
    "list": lambda number: list(range(int(number))),
}


def mistakes(value: Any, expected: Mapping[str, Any]) -> list[str]:
    """Where a value is not as expected, by path. Raises `Unreadable`."""
    wrong = []
    for path, wanted in expected.items():
        try:
            found = at(value, path)
        except Missing as error:
            if isinstance(wanted, Mapping) and wanted.get("$absent") is True:
                continue
            wrong.append(f"{error} (required: {told(wanted)})")
            continue
        if not fits(found, wanted):
            wrong.append(f"{path} is {shown(found)} (required: {told(wanted)})")
    return wrong


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value is what is wanted: the same, or, of an object of tests, all that it says.

    Raises `Unreadable`.
    """
    if isinstance(wanted, Mapping) and any(str(key).startswith("$") for key in wanted):
        return all(_test(name)(value, argument) for name, argument in wanted.items())
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    return bool(value == wanted)


def _test(name: str) -> Callable[[Any, Any], bool]:
    test = _TESTS.get(name)
    if test is None:
        raise Unreadable(f"there is no test {name}")
    return test


def told(wanted: Any) -> str:
    """What is wanted, for people."""
    if not (isinstance(wanted, Mapping) and any(str(key).startswith("$") for key in wanted)):
        return shown(wanted)
    return ", ".join(f"{str(name)[1:]} {shown(argument)}" for name, argument in wanted.items())


def _typed(value: Any, name: str) -> bool:
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "object": dict,
        "array": list,
        "boolean": bool,
        "null": type(None),
    }
    if name not in kinds:
        raise Unreadable(f"there is no type {name}")
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, kinds[name])


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json(value: Any, wanted: Any) -> bool:
    """Whether a text is JSON that fits: by paths, or, under `$schema`, by a schema."""
    try:
        content = parsed(value)
    except (TypeError, ValueError):
        return False
    if isinstance(wanted, Mapping) and "$schema" in wanted:
        return bool(jsonschema_rs.is_valid(wanted["$schema"], content))
    return not mistakes(content, wanted or {})


def _has(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    if isinstance(value, list):
        return any(fits(entry, part) for entry in value)
    return isinstance(value, Mapping) and part in value


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "$absent": lambda value, wanted: (value is None) is wanted,
    "$present": lambda value, wanted: bool(wanted),
    "$type": lambda value, wanted: any(
        _typed(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted)
    ),
    "$matches": lambda value, wanted: isinstance(value, str) and bool(re.search(wanted, value)),
    "$in": lambda value, wanted: any(fits(value, entry) for entry in wanted),
    "$has": _has,
    "$not": lambda value, wanted: not fits(value, wanted),
    "$min": lambda value, wanted: _number(value) and value >= wanted,
    "$max": lambda value, wanted: _number(value) and value <= wanted,
    "$count": lambda value, wanted: isinstance(value, (list, str)) and fits(len(value), wanted),
    "$all": lambda value, wanted: isinstance(value, list) and all(fits(v, wanted) for v in value),
    "$any": lambda value, wanted: isinstance(value, list) and any(fits(v, wanted) for v in value),
    "$unique": lambda value, wanted: (
        isinstance(value, list)
        and (len({json.dumps(v, sort_keys=True) for v in value}) == len(value)) is wanted
    ),
    "$json": _json,
    "$fields": lambda value, wanted: not mistakes(value, wanted),
}
