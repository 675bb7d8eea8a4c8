"""Input items: made complete, and put as entries of a turn.

An item in its complete form is what the API shows of it later, and what is stored. Its keys stand
in the order in which those of output items do, so that an answer which comes back as input, even
with fields left out, is the same item again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from antiphon import ids
from antiphon.responses import shells
from antiphon.responses.parts import answer_part, input_part, reasoning_parts
from antiphon.responses.tools import effective_tools, model_name, tool_table
from antiphon.turn import Call, CallResult, Entry, Message, Reasoning, Role

Item = dict[str, Any]

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_PHASES = ("commentary", "final_answer")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def kind_of(item: Mapping[str, Any]) -> str:
    """An input item's type, also where the client left it out."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def normalized(value: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    """A valid `input` as complete items; references stay as they are, and reasoning of which there
    is nothing but its id becomes one.

    An id that the client gave stays if it can be one and no item before it has it.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    seen: set[str] = set()
    items = []
    for given in value:
        kind = kind_of(given)
        if kind == "item_reference":
            items.append(dict(given))
            continue
        if _is_bare(given):
            items.append({"type": "item_reference", "id": given["id"]})
            continue
        make_id, fields_of = _KINDS[kind]
        item_id = given.get("id")
        if not isinstance(item_id, str) or not _ID.fullmatch(item_id) or item_id in seen:
            item_id = make_id()
        seen.add(item_id)
        items.append({"type": kind, "id": item_id, **fields_of(given)})
    return items


def bare_reasoning(value: str | Sequence[Mapping[str, Any]]) -> set[int]:
    """The places of reasoning of which an input has nothing but the id."""
    if isinstance(value, str):
        return set()
    return {place for place, item in enumerate(value) if _is_bare(item)}


def references(value: str | Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The places of an input's references, and the ids of the items that they stand for."""
    if isinstance(value, str):
        return []
    return [
        (place, item["id"]) for place, item in enumerate(value) if kind_of(item) == "item_reference"
    ]


def turn_entries(items: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    """What complete items are to a model. Reasoning that cannot be read is nothing."""
    return tuple(entry for item in items for entry in _entries(item))


def _is_bare(given: Mapping[str, Any]) -> bool:
    said = ("content", "summary", "encrypted_content")
    return (
        given.get("type") == "reasoning"
        and str(given.get("id") or "").startswith("rs_")
        and not any(given.get(field) for field in said)
    )


def _entries(item: Mapping[str, Any]) -> Iterator[Entry]:
    match item["type"]:
        case "message":
            remark = item.get("phase") == "commentary"
            yield Message(_ROLES[item["role"]], _text(item["content"]), remark)
        case "reasoning":
            if text := _text(item.get("content") or ()):
                yield Reasoning(text)
        case "function_call":
            yield Call(item["call_id"], _name(item), item["arguments"])
        case "custom_tool_call":
            yield Call(item["call_id"], _name(item), item["input"], custom=True)
        case "function_call_output" | "custom_tool_call_output":
            yield CallResult(item["call_id"] or "", _text(item["output"]))
        case "tool_search_call":
            # A search that a server ran has no id, and what it found is all there is to tell.
            if item["call_id"] is not None:
                arguments = orjson.dumps(item["arguments"]).decode()
                yield Call(item["call_id"], "tool_search", arguments)
        case "tool_search_output":
            if item["call_id"] is not None:
                yield CallResult(item["call_id"], _found(item["tools"]))
        case "additional_tools":
            pass  # They are among the tools.
        case kind if kind in shells.FORMS:
            yield shells.entry(item)
        case kind:
            raise ValueError(f"no model can be shown an item of type {kind}")


def _name(item: Mapping[str, Any]) -> str:
    return model_name(item["name"], item.get("namespace"))


def _found(tools: Sequence[Mapping[str, Any]]) -> str:
    """What a search for tools found. The tools themselves are shown as tools."""
    return orjson.dumps({"tools": [tool.name for tool in tool_table(tools).tools]}).decode()


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a content. Parts are separate thoughts, so each begins on a line of its own."""
    if isinstance(content, str):
        return content
    return "\n".join(
        part["refusal"] if part["type"] == "refusal" else part["text"] for part in content
    )


def _message(given: Mapping[str, Any]) -> Item:
    content = given["content"]
    answer = given["role"] == "assistant"
    if isinstance(content, str):
        content = [{"type": "output_text" if answer else "input_text", "text": content}]
    item = {
        "role": given["role"],
        "status": _status(given),
        "content": [answer_part(part) if answer else input_part(part) for part in content],
    }
    if answer and given.get("phase") in _PHASES:
        item["phase"] = given["phase"]
    return item


def _reasoning(given: Mapping[str, Any]) -> Item:
    item = {
        "status": _status(given),
        "summary": reasoning_parts(given.get("summary")),
        "content": reasoning_parts(given.get("content")),
    }
    if given.get("encrypted_content") is not None:
        item["encrypted_content"] = given["encrypted_content"]
    return item


def _call(given: Mapping[str, Any], said: str) -> Item:
    item = {"call_id": given["call_id"], "name": given["name"]}
    if given.get("namespace") is not None:
        item["namespace"] = given["namespace"]
    return {**item, said: given[said], "status": _status(given)}


def _function_call(given: Mapping[str, Any]) -> Item:
    return _call(given, "arguments")


def _custom_tool_call(given: Mapping[str, Any]) -> Item:
    return _call(given, "input")


def _custom_tool_call_output(given: Mapping[str, Any]) -> Item:
    output = given["output"]
    if not isinstance(output, str):
        output = [input_part(part) for part in output]
    return {"call_id": given.get("call_id"), "output": output, "status": _status(given)}


def _function_call_output(given: Mapping[str, Any]) -> Item:
    item = _custom_tool_call_output(given)
    for name in ("name", "namespace"):
        if given.get(name) is not None:
            item[name] = given[name]
    return item


def _additional_tools(given: Mapping[str, Any]) -> Item:
    return {"role": "developer", "tools": effective_tools(given["tools"])}


def _tool_search(given: Mapping[str, Any], **fields: Any) -> Item:
    return {
        "call_id": given.get("call_id"),
        "execution": given.get("execution") or "server",
        **fields,
        "status": _status(given),
    }


def _tool_search_call(given: Mapping[str, Any]) -> Item:
    return _tool_search(given, arguments=_object(given["arguments"]))


def _tool_search_output(given: Mapping[str, Any]) -> Item:
    return _tool_search(given, tools=effective_tools(given["tools"]))


def _object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a search, which come as an object or as a JSON text."""
    if isinstance(arguments, Mapping):
        return arguments
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"query": arguments}


def _status(given: Mapping[str, Any]) -> str:
    # Kept where it matters, so that a cut answer comes back as the item it was.
    return "incomplete" if given.get("status") == "incomplete" else "completed"


_KINDS: Mapping[str, tuple[Callable[[], str], Callable[[Mapping[str, Any]], Item]]] = {
    "message": (ids.message_id, _message),
    "reasoning": (ids.reasoning_id, _reasoning),
    "function_call": (ids.function_call_id, _function_call),
    "function_call_output": (ids.function_call_output_id, _function_call_output),
    "custom_tool_call": (ids.custom_tool_call_id, _custom_tool_call),
    "custom_tool_call_output": (ids.custom_tool_call_output_id, _custom_tool_call_output),
    "additional_tools": (ids.additional_tools_id, _additional_tools),
    "tool_search_call": (ids.tool_search_call_id, _tool_search_call),
    "tool_search_output": (ids.tool_search_output_id, _tool_search_output),
    **shells.FORMS,
}
