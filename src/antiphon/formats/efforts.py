"""How much a model reasons, and how it is told: found out by rendering with its chat template.

A template may have a variable for the level, or a switch. Where it has a level, the ones that make
a difference are the model's own, and another is taken for the nearest of them. Where it has no more
than a switch, or nothing, reasoning is cut at a number of tokens. A model whose template knows no
reasoning does not reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from antiphon.formats.calls import Shown
from antiphon.formats.dialects.dialect import Dialect
from antiphon.turn import Effort, Message

#: Every effort, the least first.
EFFORTS: tuple[Effort, ...] = get_args(Effort)

#: Tokens that reasoning may have where a template knows no levels; the rest have no limit.
_BUDGETS: Mapping[Effort, int] = {
    "none": 0,
    "minimal": 256,
    "low": 1024,
    "medium": 4096,
    "high": 16384,
}
#: What a model knows whose template writes down any level.
_WRITTEN: tuple[Effort, ...] = ("low", "medium", "high")
#: What stands for levels that are all the same to a template, if it is one of them.
_USUAL: Effort = "medium"
_LEVEL = "reasoning_effort"
#: Variables that switch reasoning, with what switches it on and off.
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("thinking_mode", "enabled", "disabled"),
)
_UNKNOWN = "probelevel"
_QUESTION: Sequence[Shown] = (Message("user", "probequestion"),)


class Switched(Protocol):
    """A chat template that can be tried out with variables."""

    source: str

    def probe(
        self,
        messages: Sequence[Shown],
        *,
        generate: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Messages rendered, None if it refuses them."""
        ...


@dataclass(frozen=True, slots=True)
class Reasons:
    """What comes of an effort: itself or another, what the template is told, and how many tokens
    reasoning may have, None for any number."""

    effort: Effort
    variables: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None


#: What comes of each effort; nothing for a model that does not reason.
Efforts = Mapping[Effort, Reasons]


def find_efforts(template: Switched, dialect: Dialect) -> Efforts:
    """What comes of each effort with a template and its dialect."""
    plain = _rendered(template)
    switch = next((one for one in _SWITCHES if _differs(template, one)), None)
    on = {} if switch is None else {switch[0]: switch[1]}
    off = None if switch is None else {switch[0]: switch[2]}
    levels = _levels(template, on)
    marks = dialect.reasoning
    written = marks is not None and marks.open.strip() in template.source + plain
    if not (levels or switch or written):
        return {}
    found: dict[Effort, Reasons] = {}
    for effort in EFFORTS:
        if effort == "none" and "none" not in levels:
            found[effort] = Reasons(effort, off or {}, 0)
        elif levels:
            near = _nearest(effort, levels)
            found[effort] = Reasons(near, {**on, _LEVEL: near})
        else:
            found[effort] = Reasons(effort, on, _BUDGETS.get(effort))
    return found


def _levels(template: Switched, on: Mapping[str, Any]) -> tuple[Effort, ...]:
    """The levels that make a difference to a template, one of those that are alike."""
    unknown = template.probe(_QUESTION, generate=True, variables={**on, _LEVEL: _UNKNOWN})
    if unknown is not None and _UNKNOWN in unknown:
        return _WRITTEN
    alike: dict[str, list[Effort]] = {}
    for effort in EFFORTS:
        rendered = template.probe(_QUESTION, generate=True, variables={**on, _LEVEL: effort})
        if rendered is not None:
            alike.setdefault(rendered, []).append(effort)
    if len(alike) < 2:
        return ()
    return tuple(_USUAL if _USUAL in efforts else efforts[-1] for efforts in alike.values())


def _nearest(effort: Effort, levels: Sequence[Effort]) -> Effort:
    reasoning = [level for level in levels if level != "none"] if effort != "none" else levels
    place = EFFORTS.index(effort)
    return min(reasoning or levels, key=lambda level: abs(EFFORTS.index(level) - place))


def _differs(template: Switched, switch: tuple[str, Any, Any]) -> bool:
    name, on, off = switch
    return _rendered(template, {name: on}) != _rendered(template, {name: off})


def _rendered(template: Switched, variables: Mapping[str, Any] | None = None) -> str:
    return template.probe(_QUESTION, generate=True, variables=variables) or ""
