"""Decides what of a valid request is done, left out or refused, as `coverage.yaml` says.

Nothing is ignored in silence: what is left out is named, so that the caller can be told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from antiphon import errors
from antiphon.responses.tools import BRINGING, SEARCH, as_function
from antiphon.spec import Contract

Status = Literal["served", "dropped", "rejected"]
#: What becomes of tools that are not served: left out, offered as functions that the client runs
#: where they can be and else left out, or refused.
HostedTools = Literal["drop", "offer", "refuse"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the coverage: what becomes of a field, an item, a part, a tool or a value."""

    status: Status
    why: str = ""
    neutral: tuple[Any, ...] = ()


_NO_SEARCH = Rule(
    "dropped", "The server runs no searches. Tools that wait to be found are shown at once."
)

#: Where items have content parts, by their types.
_PART_FIELDS = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something left out: its place in the body, and its name whatever the place."""

    path: str
    name: str


class Gate:
    """Applies the coverage to request bodies. With `strict` whatever would be left out is refused,
    with `stateless` what needs a store is left out or refused. Unless it `summarises`, summaries of
    reasoning are left out. `hosted_tools` is for tools alone.

    A body that passes holds only what is done, and no null where null means absent.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        strict: bool = False,
        stateless: bool = False,
        summarises: bool = False,
        hosted_tools: HostedTools = "drop",
    ) -> None:
        coverage = contract.coverage
        overlays = {"stateless": stateless, "unsummarised": not summarises}
        for overlay, applies in overlays.items():
            lines = coverage[overlay].items() if applies else ()
            coverage = {**coverage, **{name: {**coverage[name], **rules} for name, rules in lines}}
        self._strict = strict
        self._hosted = hosted_tools
        self._fields = _field_rules(coverage["request"])
        self._conversation_fields = _field_rules(coverage["conversation"])
        self._foreign: Mapping[str, str | None] = coverage["foreign"]
        self._includes = _rules(coverage["include"])
        self._items = _rules(coverage["input_items"])
        self._parts = _rules(coverage["content_parts"])
        self._tools = _rules(coverage["tools"])

    def apply(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], list[Dropped]]:
        """The part of `body` that is done, and what was left out of it.

        Raises `UnsupportedParameter`, `UnsupportedValue`, `UnknownParameter` or `InvalidTool`.
        """
        kept, dropped = self._fields_of(body, self._fields, self._refuse_foreign)
        if "include" in kept:
            kept["include"] = self._included(kept["include"], dropped)
        if "tools" in kept:
            kept["tools"] = self._offered("tools", kept["tools"], dropped)
        if isinstance(kept.get("input"), list):
            kept["input"] = self._admitted("input", kept["input"], dropped)
        return kept, dropped

    def apply_conversation(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], list[Dropped]]:
        """The same for the body of a request about a conversation."""
        kept, dropped = self._fields_of(body, self._conversation_fields, lambda name: None)
        if "items" in kept:
            kept["items"] = self._admitted("items", kept["items"], dropped)
        return kept, dropped

    def leave_out(self, kept: dict[str, Any], path: str, why: str, dropped: list[Dropped]) -> None:
        """Leave a field out of a body that passed, for a reason that is not known before. Raises
        `UnsupportedParameter` if the gate is strict."""
        if self._strict:
            raise errors.UnsupportedParameter(f"Unsupported parameter: '{path}'. {why}", param=path)
        name, *inner = path.split(".")
        kept[name] = _without(kept[name], inner)
        dropped.append(Dropped(path, path))

    def _fields_of(
        self,
        body: Mapping[str, Any],
        fields: Mapping[str, Sequence[tuple[tuple[str, ...], Rule]]],
        refuse_foreign: Callable[[str], None],
    ) -> tuple[dict[str, Any], list[Dropped]]:
        kept: dict[str, Any] = {}
        dropped: list[Dropped] = []
        for name, value in body.items():
            if value is None:
                continue
            rules = fields.get(name)
            if rules is None:
                refuse_foreign(name)
                self._unknown(name, dropped)
                continue
            value = self._field(name, value, rules, dropped)
            if value is not None:
                kept[name] = value
        return kept, dropped

    def _refuse_foreign(self, name: str) -> None:
        if name in self._foreign:
            instead = self._foreign[name]
            hint = f" Use {instead} instead." if instead else ""
            raise errors.UnknownParameter(
                f"Unknown parameter: '{name}'. It belongs to the Chat Completions API.{hint}",
                param=name,
            )

    def _unknown(self, path: str, dropped: list[Dropped]) -> None:
        if self._strict:
            raise errors.UnknownParameter(f"Unknown parameter: '{path[:64]}'.", param=path)
        dropped.append(Dropped(path, "unknown field"))

    def _field(
        self,
        name: str,
        value: Any,
        rules: Sequence[tuple[tuple[str, ...], Rule]],
        dropped: list[Dropped],
    ) -> Any:
        """`value` without what is left out of it; None if nothing remains."""
        options = {inner[0] for inner, _ in rules if inner}
        for option in value if options and isinstance(value, Mapping) else ():
            if option not in options and value[option] is not None:
                self._unknown(f"{name}.{option}", dropped)
        for inner, rule in rules:
            if rule.status == "served":
                continue
            found = _get(value, inner)
            if found is None or found in rule.neutral:
                continue
            path = ".".join((name, *inner))
            if rule.status == "rejected" or self._strict:
                raise errors.UnsupportedParameter(
                    f"Unsupported parameter: '{path}'. {rule.why}", param=path
                )
            dropped.append(Dropped(path, path))
            if not inner:
                return None
            value = _without(value, inner)
        return value

    def _included(self, values: list[str], dropped: list[Dropped]) -> list[str]:
        return [
            value
            for index, value in enumerate(values)
            if self._passes(
                self._includes[value],
                f"include[{index}]",
                f"include.{value}",
                errors.UnsupportedValue,
                dropped,
            )
        ]

    def _offered(
        self, place: str, tools: list[dict[str, Any]], dropped: list[Dropped]
    ) -> list[dict[str, Any]]:
        unknown = Rule("dropped", "Tools of this type are not known here.")
        offers = self._hosted == "offer" and self._tools["function"].status == "served"
        offered = []
        for index, tool in enumerate(tools):
            kind, path = tool["type"], f"{place}[{index}]"
            rule = self._tools.get(kind, unknown)
            if kind == SEARCH and tool.get("execution") != "client" and rule.status == "served":
                rule = _NO_SEARCH
            name = f"tools.{kind}" if kind in self._tools else "unknown tool"
            if rule.status == "dropped" and self._hosted == "refuse":
                rule = Rule("rejected", rule.why)
            function = as_function(kind) if rule.status != "served" else None
            if function is not None and offers:
                offered.append(function)
            elif self._passes(rule, path, name, errors.InvalidTool, dropped, ".type"):
                offered.append(tool)
        return offered

    def _admitted(
        self, place: str, items: list[dict[str, Any]], dropped: list[Dropped]
    ) -> list[Any]:
        admitted = []
        for index, item in enumerate(items):
            kind = item.get("type") or ("message" if "role" in item else "item_reference")
            if not self._passes(
                self._items[kind],
                f"{place}[{index}]",
                f"input.{kind}",
                errors.UnsupportedValue,
                dropped,
                ".type" if item.get("type") else "",
            ):
                continue
            for field, number, part in _parts(kind, item):
                self._passes(
                    self._parts[part["type"]],
                    f"{place}[{index}].{field}[{number}]",
                    f"content.{part['type']}",
                    errors.UnsupportedValue,
                    dropped,
                    ".type",
                )
            if kind in BRINGING:
                brought = self._offered(f"{place}[{index}].tools", item["tools"], dropped)
                item = {**item, "tools": brought}
            admitted.append(item)
        return admitted

    def _passes(
        self,
        rule: Rule,
        path: str,
        name: str,
        error: type[errors.InvalidRequest],
        dropped: list[Dropped],
        tag: str = "",
    ) -> bool:
        """Whether the thing at `path` is done. Refusals name its tag, such as `tools[1].type`."""
        if rule.status == "served":
            return True
        if rule.status == "rejected" or self._strict:
            raise error(f"Unsupported: {name} at '{path}'. {rule.why}", param=path + tag)
        dropped.append(Dropped(path, name))
        return False


def _rules(lines: Mapping[str, Mapping[str, Any]]) -> dict[str, Rule]:
    return {
        name: Rule(line["status"], line.get("why", ""), tuple(line.get("neutral", ())))
        for name, line in lines.items()
    }


def _field_rules(
    lines: Mapping[str, Mapping[str, Any]],
) -> dict[str, list[tuple[tuple[str, ...], Rule]]]:
    """By top-level field: the rules on it and on fields inside it, by their inner paths."""
    fields: dict[str, list[tuple[tuple[str, ...], Rule]]] = {}
    for path, rule in _rules(lines).items():
        name, *inner = path.split(".")
        fields.setdefault(name, []).append((tuple(inner), rule))
    return fields


def _get(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def _without(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    copy = dict(value)
    if rest:
        copy[first] = _without(value[first], rest)
    else:
        del copy[first]
    return copy


def _parts(kind: str, item: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The content parts of an item, each with its field and place.

    Only in the field where the item's kind has them: a field of another name is the sender's own
    and may hold anything. Reasoning has parts of its own, which are always read.
    """
    field = _PART_FIELDS.get(kind)
    if field is None:
        return
    parts = item.get(field)
    if isinstance(parts, list):
        for number, part in enumerate(parts):
            yield field, number, part
