"""What a model must do so that recorded requests can be sent again as they were.

A request that brings reasoning, a message or a call of the assistant, or what came of a call,
relies on an earlier answer of its flow: the latest to a request that nothing relies on yet and that
declares the tools in question. What that answer must be is told as steps of a scripted model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jsonschema_rs

from responses_conformance.recorded.bodies import (
    ANSWERS,
    PREFIXES,
    Flow,
    Recorded,
    is_placeholder,
)

#: One of `text`, `reasoning`, `call` (with `arguments`) or `delay` (seconds).
Step = dict[str, Any]

#: How long a response runs that is cancelled next.
_SLOW = 5.0
_MADE = frozenset({*ANSWERS.values(), "reasoning", "message"})
_REFERENCE = "item_reference"


def premises(flow: Flow) -> dict[str, list[Step]]:
    """The steps of the answers to requests of a flow, by the requests' names; none where any answer
    will do."""
    steps: dict[int, list[Step]] = {}
    seen: set[str] = set()
    slow: set[int] = set()
    for number, request in enumerate(flow):
        earlier = [at for at in range(number) if flow[at].creates]
        if request.path.endswith("/cancel") and earlier:
            slow.add(earlier[-1])
        new = _unseen(request, seen) if request.creates else []
        if new:
            free = [at for at in earlier if at not in steps and _declares(flow[at], new)]
            if free:
                steps[free[-1]] = [made for item in new for made in _steps(item, flow[free[-1]])]
    found: dict[str, list[Step]] = {}
    for number, request in enumerate(flow):
        if request.creates:
            own = steps.get(number) or _held(request)
            own = [{"delay": _SLOW}, *(own or [{"text": "Done."}])] if number in slow else own
            if own:
                found[request.name] = own
    return found


def _unseen(request: Recorded, seen: set[str]) -> list[dict[str, Any]]:
    """The items of a request that an earlier answer must have made; they are seen from now on."""
    items = request.items
    calls = {item.get("call_id") for item in items if item.get("type") in ANSWERS.values()}
    new: list[dict[str, Any]] = []
    for item in items:
        kind = _kind(item)
        by_model = kind in _MADE and (kind != "message" or item.get("role", "assistant") != "user")
        if by_model and kind == "message" and item.get("role") in ("system", "developer"):
            continue
        alone = item.get("type") in ANSWERS and item.get("call_id") not in calls
        if alone and any(_kind(one) == ANSWERS[str(item["type"])] for one in new):
            alone = False  # The call is there as a reference.
        keys = {str(item[name]) for name in ("id", "call_id") if is_placeholder(item.get(name))}
        keys = keys or {json.dumps(item, sort_keys=True)}
        if (by_model or alone) and not keys & seen:
            new.append(item)
            seen |= keys
    return new


def _kind(item: Mapping[str, Any]) -> str | None:
    """The type of an item, or of the one that a reference stands for."""
    kind = item.get("type") or ("message" if "role" in item else _REFERENCE)
    if kind == _REFERENCE:
        return PREFIXES.get(str(item.get("id")).partition("_")[0])
    return str(kind)


def _declares(request: Recorded, items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a request declares all that these items call."""
    names = {tool["name"] for tool, _ in _tools(request.asked.get("tools"))}
    for item in items:
        if item.get("type") in ("function_call", "custom_tool_call"):
            if item["name"] not in names:
                return False
        elif item.get("type") in ANSWERS and not names:
            return False
    return True


def _tools(tools: Any, namespace: str = "") -> Iterator[tuple[Mapping[str, Any], str]]:
    """All tools with a name, and the names by which a model calls them."""
    for tool in tools if isinstance(tools, list) else []:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools"), f"{tool['name']}__")
        elif isinstance(tool.get("name"), str):
            yield tool, f"{namespace}{tool['name']}"


def _steps(item: Mapping[str, Any], request: Recorded) -> Iterator[Step]:
    """The steps by which an item comes to be."""
    kind = _kind(item)
    if item.get("type") in ANSWERS:
        wanted = ANSWERS[str(item["type"])].removesuffix("_call").removesuffix("_tool")
        yield from _any_call(request, wanted)
    elif kind == "reasoning":
        yield {"reasoning": _text(item.get("content")) or _text(item.get("summary")) or "Hm."}
    elif kind == "message":
        yield {"text": _text(item.get("content")) or "Well."}
    elif item.get("type") == _REFERENCE:
        yield from _any_call(request, "custom" if kind == "custom_tool_call" else "function")
    elif kind == "tool_search_call":
        yield {"call": "tool_search", "arguments": json.dumps(item["arguments"])}
    elif kind in ("function_call", "custom_tool_call"):
        space = f"{item['namespace']}__" if item.get("namespace") else ""
        said = item["input"] if kind == "custom_tool_call" else item["arguments"]
        yield _fitting({"call": f"{space}{item['name']}", "arguments": said}, request)


def _fitting(call: Step, request: Recorded) -> Step:
    """A call, with other arguments if the recorded ones do not fit a strict function: a server that
    holds models to those lets nobody call it so."""
    for tool, name in _tools(request.asked.get("tools")):
        if name == call["call"] and tool.get("strict") and tool.get("type") == "function":
            try:
                fits = jsonschema_rs.is_valid(tool["parameters"], json.loads(call["arguments"]))
            except ValueError:
                fits = False
            return call if fits else _call(tool, name)
    return call


def _any_call(request: Recorded, kind: str) -> Iterator[Step]:
    """A call of the first tool of a type that a request declares."""
    for tool, name in _tools(request.asked.get("tools")):
        if tool.get("type") == kind:
            yield _call(tool, name)
            return


def _call(tool: Mapping[str, Any], name: str) -> Step:
    if tool.get("type") == "custom":
        return {"call": name, "arguments": "text"}
    return {"call": name, "arguments": json.dumps(smallest(tool.get("parameters") or {}))}


def _held(request: Recorded) -> list[Step]:
    """What a request holds the model to: a call, or a text of a form."""
    asked = request.asked
    choice = asked.get("tool_choice")
    named = choice.get("name") if isinstance(choice, dict) else None
    if choice == "required" or named is not None:
        for tool, name in _tools(asked.get("tools")):
            if tool.get("type") in ("function", "custom") and named in (None, tool["name"]):
                return [_call(tool, name)]
    text = asked.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return [{"text": json.dumps(smallest(form["schema"]))}]
    if isinstance(form, dict) and form.get("type") == "json_object":
        return [{"text": "{}"}]
    return []


def smallest(schema: Any, root: Any = None) -> Any:
    """A small value that fits a schema of the simple kind that clients send."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return None
    if "$ref" in schema:
        found = root
        for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            found = found.get(part, {}) if part else found
        return smallest(found, root)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return smallest(schema[name][0], root)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            known = schema.get("properties") or {}
            return {name: smallest(known.get(name), root) for name in schema.get("required", ())}
        case "array":
            return [smallest(schema.get("items"), root)] * schema.get("minItems", 0)
        case "string":
            return "a" * max(1, schema.get("minLength", 1))
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
    return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
