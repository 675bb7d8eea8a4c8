"""What the rules are: the words of `catalogue.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from responses_conformance.texts import parsed_yaml

Level = Literal["must", "should", "exact"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `breaks` are the clients that fail where it is broken."""

    id: str
    requirement: str
    level: Level
    source: tuple[str, ...]
    breaks: tuple[str, ...]


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, in the order of the catalogue."""
    text = files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8")
    return {
        name: Rule(
            name,
            entry["requirement"],
            entry["level"],
            tuple(entry["source"]),
            tuple(entry["breaks"]),
        )
        for name, entry in parsed_yaml(text).items()
    }
