"""The cases: what is sent, and what must come back. The YAML files beside this module are data."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from responses_conformance.rules.catalogue import rules
from responses_conformance.texts import parsed_yaml

#: What a server may claim, in the order of reports.
PROFILES = (
    "core",
    "stored",
    "background",
    "conversations",
    "tools",
    "structured",
    "reasoning",
    "media",
    "websocket",
    "exact",
)
#: What a case may need of the suite's configuration; `stored` is the profile of that name.
NEEDS = ("second_key", "auth", "context_window", "scripted", "stored")

_FIELDS = {
    "id",
    "title",
    "requirement",
    "source",
    "profile",
    "needs",
    "behaviour",
    "rules",
    "breaks",
    "steps",
    "note",
}
_STEP_FIELDS = {
    "name",
    "request",
    "body",
    "raw",
    "base64",
    "headers",
    "query",
    "as",
    "each",
    "expect",
    "premise",
    "leave_after",
    "poll",
    "until",
    "within",
    "parallel",
    "steps",
    "socket",
    "turns",
    "send",
    "repeat",
    "compare",
    "cancel_all",
    "without",
    "assert",
    "note",
}
#: What a step does. `send` and `raw` are the messages of a socket's turns.
_ACTIONS = {
    "request",
    "poll",
    "parallel",
    "steps",
    "compare",
    "assert",
    "cancel_all",
    "socket",
    "send",
    "raw",
}


#: What an expectation or a premise may look at.
_LOOKED_AT = {"status", "body", "response", "stream", "error", "headers", "raw"}


class CaseError(Exception):
    """A case that cannot be read. Says which, and why."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a model must do for a case. `script` is how a scripted model does it."""

    name: str
    prompt: str
    does: str
    scripted: bool
    script: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `rules` are the rules of streams and bodies that count for its verdict; all others
    are reported by themselves."""

    id: str
    title: str
    requirement: str
    source: tuple[str, ...]
    profile: str
    needs: tuple[str, ...]
    behaviours: tuple[str, ...]
    rules: tuple[str, ...]
    breaks: tuple[str, ...]
    steps: tuple[Mapping[str, Any], ...]
    file: str

    @property
    def level(self) -> str:
        """`must` or `should`, as its requirement says."""
        return "must" if "MUST" in self.requirement else "should"


@cache
def behaviours() -> Mapping[str, Behaviour]:
    """All behaviours by name."""
    text = files("responses_conformance").joinpath("behaviours.yaml").read_text(encoding="utf-8")
    return {
        name: Behaviour(
            name,
            entry["prompt"],
            entry["does"],
            entry.get("scripted", False),
            tuple(entry["script"]),
        )
        for name, entry in parsed_yaml(text).items()
    }


def load(folders: Iterable[Path] = ()) -> list[Case]:
    """The suite's own cases, and those in further files or `*.yaml` of folders.

    Raises `CaseError`.
    """
    texts = []
    for folder in folders:
        found = [folder] if folder.is_file() else sorted(folder.glob("*.yaml"))
        if not found:
            raise CaseError(f"{folder}: there is no *.yaml in it")
        texts += [(str(file), file.read_text(encoding="utf-8")) for file in found]
    cases = {case.id: case for case in _own()}
    for name, text in texts:
        _add(_cases(name, text), cases)
    order = {profile: number for number, profile in enumerate(PROFILES)}
    return sorted(cases.values(), key=lambda case: (order[case.profile], case.id))


@cache
def _own() -> tuple[Case, ...]:
    cases: dict[str, Case] = {}
    for entry in files(__package__).iterdir():
        if entry.name.endswith(".yaml"):
            _add(_cases(entry.name, entry.read_text(encoding="utf-8")), cases)
    return tuple(cases.values())


def _add(found: Iterable[Case], cases: dict[str, Case]) -> None:
    for case in found:
        if case.id in cases:
            raise CaseError(f"{case.file}: {case.id} is also in {cases[case.id].file}")
        cases[case.id] = case


def _cases(name: str, text: str) -> Iterator[Case]:
    try:
        entries = parsed_yaml(text) or []
    except yaml.YAMLError as error:
        raise CaseError(f"{name}: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CaseError(f"{name}: it must be a list of cases, which are maps")
    for entry in entries:
        if "id" not in entry:
            continue  # An entry that only holds YAML anchors.
        yield _case(name, entry)


def _case(file: str, entry: dict[str, Any]) -> Case:
    where = f"{file}: {entry['id']}"
    unknown = set(entry) - _FIELDS
    if unknown:
        raise CaseError(f"{where}: {', '.join(sorted(unknown))} is no field of a case")
    for name in ("title", "requirement", "source", "profile", "steps"):
        if not entry.get(name):
            raise CaseError(f"{where}: there is no {name}")
        kind = str if name in ("title", "requirement", "profile") else list
        if not isinstance(entry[name], kind):
            raise CaseError(f"{where}: {name} is no {'text' if kind is str else 'list'}")
    if not ("MUST" in entry["requirement"] or "SHOULD" in entry["requirement"]):
        raise CaseError(f"{where}: the requirement says neither MUST nor SHOULD")
    if entry["profile"] not in PROFILES:
        raise CaseError(f"{where}: there is no profile {entry['profile']}")
    named = entry.get("behaviour", [])
    named = (named,) if isinstance(named, str) else tuple(named)
    for known, given in (
        (NEEDS, entry.get("needs", [])),
        (behaviours(), named),
        (rules(), entry.get("rules", [])),
    ):
        for name in given:
            if name not in known:
                raise CaseError(f"{where}: {name} is not known")
    _check_steps(where, entry["steps"])
    needs = list(entry.get("needs", []))
    if any(behaviours()[name].scripted for name in named) and "scripted" not in needs:
        needs.append("scripted")
    return Case(
        str(entry["id"]),
        entry["title"],
        " ".join(entry["requirement"].split()),
        tuple(entry["source"]),
        entry["profile"],
        tuple(needs),
        named,
        tuple(entry.get("rules", [])),
        tuple(entry.get("breaks", [])),
        tuple(entry["steps"]),
        file,
    )


def _check_steps(where: str, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        if not isinstance(step, dict):
            raise CaseError(f"{where}: a step is a map, and {step!r} is none")
        unknown = set(step) - _STEP_FIELDS
        if unknown:
            raise CaseError(f"{where}: {', '.join(sorted(unknown))} is no field of a step")
        if not _ACTIONS & set(step):
            raise CaseError(f"{where}: a step does nothing")
        for part in ("expect", "premise"):
            looked_at = step.get(part, {})
            if not isinstance(looked_at, dict):
                raise CaseError(f"{where}: {part} is no map")
            unknown = set(looked_at) - _LOOKED_AT
            if unknown:
                raise CaseError(f"{where}: {part} cannot look at {', '.join(sorted(unknown))}")
        for inner in ("parallel", "steps", "turns"):
            _check_steps(where, step.get(inner, []))
