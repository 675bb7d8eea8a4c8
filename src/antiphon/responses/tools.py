"""The tools of a request: what the model is offered, and what responses call it.

The model calls a tool by its name, and one in a namespace by `<namespace>__<name>`, whatever else
is declared, so that a prompt stays the same as other tools come and go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from antiphon.errors import ArrayTooLong, InvalidValue
from antiphon.responses.presentation import ShownTool
from antiphon.spec.types import EffectiveTool
from antiphon.turn import TextGrammar, Tool, ToolChoice

Declared = Mapping[str, Any]

#: Items that bring tools into a conversation.
BRINGING = ("additional_tools", "tool_search_output")
#: The type of a search for tools, and what the model calls it by.
SEARCH = "tool_search"

_WEB_SEARCH = ("web_search", "Searches the web.", "query", "What to search for.")
#: Hosted tools as functions that the client runs: name, description, and their one argument.
_AS_FUNCTIONS: Mapping[str, tuple[str, str, str, str]] = {
    "web_search": _WEB_SEARCH,
    "web_search_2025_08_26": _WEB_SEARCH,
    "web_search_preview": _WEB_SEARCH,
    "web_search_preview_2025_03_11": _WEB_SEARCH,
    "file_search": (
        *("file_search", "Searches the user's files."),
        *("query", "What to search for."),
    ),
    "code_interpreter": (
        *("code_interpreter", "Runs Python code and gives back what it prints."),
        *("code", "The code."),
    ),
    "image_generation": (
        *("image_generation", "Makes an image."),
        *("prompt", "What the image is to show."),
    ),
}


def model_name(name: str, namespace: str | None) -> str:
    """What the model calls a tool by."""
    return name if namespace is None else f"{namespace}__{name}"


def as_function(kind: str) -> dict[str, Any] | None:
    """A hosted tool as a function tool that the client runs; None where it cannot be one."""
    if kind not in _AS_FUNCTIONS:
        return None
    name, description, argument, meaning = _AS_FUNCTIONS[kind]
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": {argument: {"type": "string", "description": meaning}},
            "required": [argument],
            "additionalProperties": False,
        },
        "strict": False,
    }


@dataclass(frozen=True, slots=True)
class ToolTable:
    """`tools` are what the model may call; `shown` is what responses call them, by the names that
    the model uses."""

    tools: tuple[Tool, ...]
    shown: Mapping[str, ShownTool]

    def choice(self, given: str | Declared | None, *, param: str = "tool_choice") -> ToolChoice:
        """A request's tool choice. Raises `InvalidValue` where a tool is named that is not there,
        or a call is asked for that cannot be made."""
        if given == "none":
            return ToolChoice("none")
        if given is None or given == "auto":
            return ToolChoice()
        if not self.tools:
            raise InvalidValue(
                f"Invalid '{param}': a tool is to be called, but none is offered to the model.",
                param=param,
            )
        if isinstance(given, str):
            return ToolChoice("required")
        if given["type"] != "allowed_tools":
            return ToolChoice("required", frozenset(self._named(given, param)))
        allowed: set[str] = set()
        for number, named in enumerate(given["tools"]):
            place = f"{param}.tools[{number}]"
            if named.get("type") in ("function", "custom", "namespace"):
                allowed.update(self._named(named, place))
            elif found := _hosted_name(named.get("type"), self.shown):
                allowed.add(found)
        if not allowed:
            raise InvalidValue(
                f"Invalid '{param}.tools': none of these is offered to the model.",
                param=f"{param}.tools",
            )
        must = given.get("mode") == "required"
        return ToolChoice("required" if must else "auto", frozenset(allowed))

    def _named(self, named: Declared, place: str) -> set[str]:
        """The tools that a choice, or an entry of one, means: by the names the model uses."""
        kind, name, namespace = named["type"], named.get("name"), named.get("namespace")
        found = set()
        if kind == "namespace":
            found = {tool.name for tool in self.tools if self.shown[tool.name].namespace == name}
        elif kind in ("function", "custom"):
            alike = {
                tool.name: self.shown[tool.name].namespace
                for tool in self.tools
                if self.shown[tool.name].name == name and tool.custom == (kind == "custom")
            }
            found = {visible for visible, of in alike.items() if of == namespace}
            if namespace is None and not found and len(alike) == 1:
                found = set(alike)
        elif hosted := _hosted_name(kind, self.shown):
            found = {hosted}
        if not found:
            what = kind if name is None else f"{kind} '{str(name)[:64]}'"
            raise InvalidValue(
                f"Invalid '{place}': no {what} is offered to the model.", param=place
            )
        return found


def tool_table(declared: Iterable[Declared], items: Iterable[Mapping[str, Any]] = ()) -> ToolTable:
    """The tools that a request declares, and those that the items of its conversation bring.

    A later tool takes the place of an earlier one of its name. Tools that wait to be found are left
    out until they are, if there is a search for them.
    """
    given, found = list(declared), []
    for item in items:
        if item["type"] == "additional_tools":
            given += item["tools"]
        elif item["type"] == "tool_search_output":
            found += item["tools"]
    offered = list(_each(given))
    if any(tool["type"] == SEARCH for tool in given):
        offered = [one for one in offered if not one.given.get("defer_loading")]
    tools = {one.name: one for one in (*offered, *_each(found))}
    return ToolTable(
        tuple(one.tool() for one in tools.values()),
        {name: one.shown for name, one in tools.items()},
    )


def effective_tools(declared: Iterable[Declared]) -> list[EffectiveTool]:
    """Declared tools as a response gives them back."""
    return [_effective(tool) for tool in declared]


def check_tools(tools: Sequence[Declared], places: Sequence[str], *, param: str, most: int) -> None:
    """Refuse more than `most` tools, and two that the model would call by one name.

    `places` is where each tool stands in the request. Raises `ArrayTooLong` or `InvalidValue`.
    """
    seen: set[str] = set()
    for place, tool in zip(places, tools, strict=True):
        for inner, one in _placed(place, tool):
            if one.name in seen:
                raise InvalidValue(
                    f"Invalid '{inner}.name': there is a tool '{one.name[:64]}' before it.",
                    param=f"{inner}.name",
                )
            seen.add(one.name)
    if len(seen) > most:
        raise ArrayTooLong(
            f"Invalid '{param}': there are {len(seen)} tools, and {most} are allowed.", param=param
        )


def strict_schemas(
    tools: Sequence[Declared], places: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas that arguments are held to, each with its place in the request."""
    for place, tool in zip(places, tools, strict=True):
        for inner, one in _placed(place, tool):
            if one.given.get("strict") and one.given.get("parameters"):
                yield f"{inner}.parameters", one.given["parameters"]


def grammars(tools: Sequence[Declared], places: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The grammars that free texts are held to, each with its place in the request."""
    for place, tool in zip(places, tools, strict=True):
        for inner, one in _placed(place, tool):
            grammar = one.grammar
            if grammar is not None:
                yield f"{inner}.format.definition", grammar.definition


def tool_places(tools: Sequence[Declared], places: Sequence[str]) -> dict[str, str]:
    """Where each tool stands in the request, by the name that the model uses."""
    return {
        one.name: inner
        for place, tool in zip(places, tools, strict=True)
        for inner, one in _placed(place, tool)
    }


class _One(NamedTuple):
    """A tool by itself: as it was declared, the namespace it stands in, and what is to be said of
    that before it."""

    given: Declared
    namespace: str | None = None
    about: str = ""

    @property
    def name(self) -> str:
        return model_name(str(self.given.get("name", SEARCH)), self.namespace)

    @property
    def shown(self) -> ShownTool:
        return ShownTool(self.given.get("name", SEARCH), self.namespace, self.searches)

    @property
    def searches(self) -> bool:
        return bool(self.given["type"] == SEARCH)

    @property
    def grammar(self) -> TextGrammar | None:
        wanted = self.given.get("format") if self.given["type"] == "custom" else None
        if not wanted or wanted["type"] != "grammar":
            return None
        return TextGrammar(wanted["syntax"], wanted["definition"])

    def tool(self) -> Tool:
        texts = (self.about, self.given.get("description") or "")
        return Tool(
            name=self.name,
            description="\n\n".join(text for text in texts if text),
            parameters=self.given.get("parameters") or None,
            strict=bool(self.given.get("strict")),
            custom=self.given["type"] == "custom",
            grammar=self.grammar,
            searches=self.searches,
        )


def _each(declared: Iterable[Declared]) -> Iterator[_One]:
    for tool in declared:
        for _, one in _placed("", tool):
            yield one


def _placed(place: str, tool: Declared) -> Iterator[tuple[str, _One]]:
    """A tool, or those of a namespace, each with its place. What a namespace is for is said once,
    with its first tool."""
    if tool["type"] != "namespace":
        yield place, _One(tool)
        return
    about = f"{tool['name']}: {tool['description']}" if tool.get("description") else ""
    for number, inner in enumerate(tool["tools"]):
        yield f"{place}.tools[{number}]", _One(inner, tool["name"], "" if number else about)


def _hosted_name(kind: Any, shown: Mapping[str, ShownTool]) -> str | None:
    """What the model calls a tool by that is chosen by its type alone, if it is offered."""
    if kind == SEARCH:
        return SEARCH if SEARCH in shown and shown[SEARCH].searches else None
    name = _AS_FUNCTIONS[kind][0] if isinstance(kind, str) and kind in _AS_FUNCTIONS else None
    return name if name in shown else None


def _effective(tool: Declared) -> EffectiveTool:
    made: dict[str, Any]
    match tool["type"]:
        case "function":
            made = {
                "name": tool["name"],
                "description": tool.get("description"),
                "parameters": tool.get("parameters"),
                "strict": bool(tool.get("strict")),
            }
        case "custom":
            made = {
                "name": tool["name"],
                "description": tool.get("description"),
                "format": _effective_format(tool.get("format")),
            }
        case "namespace":
            made = {
                "name": tool["name"],
                "description": tool.get("description") or "",
                "tools": [_effective(inner) for inner in tool["tools"]],
            }
        case kind:
            assert kind == SEARCH, kind
            made = {
                "execution": tool.get("execution") or "server",
                "description": tool.get("description"),
                "parameters": tool.get("parameters"),
            }
    if tool.get("defer_loading") is not None and tool["type"] in ("function", "custom"):
        made["defer_loading"] = tool["defer_loading"]
    return cast(EffectiveTool, {"type": tool["type"], **made})


def _effective_format(given: Declared | None) -> dict[str, Any]:
    if not given or given["type"] == "text":
        return {"type": "text"}
    return {
        "type": "grammar",
        "syntax": given["syntax"],
        "definition": given["definition"],
    }
