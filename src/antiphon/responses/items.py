"""Input items: made complete, matched to each other, and put as entries of a turn.

An item in its complete form is what the API shows of it later, and what is stored. Its keys stand
in the order in which those of output items do, so that an answer which comes back as input, even
with fields left out, is the same item again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from antiphon import ids
from antiphon.errors import InvalidValue, MissingParameter
from antiphon.responses.parts import answer_part, input_part, reasoning_parts
from antiphon.turn import Call, CallResult, Entry, Message, Reasoning, Role

Item = dict[str, Any]

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
#: What answers which calls, and the words for it.
_ANSWERS = {
    "function_call_output": ("function_call", "function call output"),
    "custom_tool_call_output": ("custom_tool_call", "custom tool call output"),
}
_CALLS = frozenset(call for call, _ in _ANSWERS.values())
_PHASES = ("commentary", "final_answer")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def kind_of(item: Mapping[str, Any]) -> str:
    """An input item's type, also where the client left it out."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def normalized(value: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    """A valid `input` as complete items; references stay as they are.

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
        make_id, fields_of = _KINDS[kind]
        item_id = given.get("id")
        if not isinstance(item_id, str) or not _ID.fullmatch(item_id) or item_id in seen:
            item_id = make_id()
        seen.add(item_id)
        items.append({"type": kind, "id": item_id, **fields_of(given)})
    return items


def references(value: str | Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The places of an input's references, and the ids of the items that they stand for."""
    if isinstance(value, str):
        return []
    return [
        (place, item["id"]) for place, item in enumerate(value) if kind_of(item) == "item_reference"
    ]


def paired(
    history: Sequence[Mapping[str, Any]], items: Sequence[Item], *, field: str = "input"
) -> list[Item]:
    """The items of `field`, each output with the `call_id` of the call that it answers.

    An output that names only its function answers the first such call that has no output. Raises
    `InvalidValue` or `MissingParameter` at the place of an output without a call, of a second
    output of one call, or of a second call of one id. Calls without an output are let through.
    """
    open_calls: dict[tuple[str, str], str] = {}
    calls: set[str] = set()
    for item in history:
        if item["type"] in _CALLS:
            calls.add(item["call_id"])
            open_calls[item["type"], item["call_id"]] = item["name"]
        elif item["type"] in _ANSWERS:
            open_calls.pop((_ANSWERS[item["type"]][0], item["call_id"]), None)
    result = []
    for place, item in enumerate(items):
        param = f"{field}[{place}].call_id"
        if item["type"] in _CALLS:
            if item["call_id"] in calls:
                raise InvalidValue(
                    f"Duplicate call_id '{item['call_id']}': there is an earlier call of that id.",
                    param=param,
                )
            calls.add(item["call_id"])
            open_calls[item["type"], item["call_id"]] = item["name"]
        elif item["type"] in _ANSWERS:
            item = _answering(item, open_calls, calls, param)
        result.append(item)
    return result


def turn_entries(items: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    """What complete items are to a model. Reasoning that cannot be read is nothing."""
    return tuple(entry for item in items for entry in _entries(item))


def _answering(
    item: Item, open_calls: dict[tuple[str, str], str], calls: set[str], param: str
) -> Item:
    call_kind, words = _ANSWERS[item["type"]]
    call_id = item.get("call_id")
    if call_id is None:
        name = item.get("name")
        if name is None:
            raise MissingParameter(f"Missing required parameter: '{param}'.", param=param)
        waiting = (key[1] for key, of in open_calls.items() if key[0] == call_kind and of == name)
        call_id = next(waiting, None)
        if call_id is None:
            raise InvalidValue(
                f"No tool call without an output found for the {words} of '{name[:64]}'.",
                param=param,
            )
        item = {**item, "call_id": call_id}
    if open_calls.pop((call_kind, call_id), None) is None:
        if call_id in calls and not any(key[1] == call_id for key in open_calls):
            raise InvalidValue(
                f"Duplicate output: the tool call with call_id '{call_id}' already has one.",
                param=param,
            )
        raise InvalidValue(f"No tool call found for {words} with call_id '{call_id}'.", param=param)
    return item


def _entries(item: Mapping[str, Any]) -> Iterator[Entry]:
    match item["type"]:
        case "message":
            yield Message(_ROLES[item["role"]], _text(item["content"]))
        case "reasoning":
            if text := _text(item.get("content") or ()):
                yield Reasoning(text)
        case "function_call":
            yield Call(item["call_id"], item["name"], item["arguments"])
        case "custom_tool_call":
            yield Call(item["call_id"], item["name"], item["input"], custom=True)
        case "function_call_output" | "custom_tool_call_output":
            yield CallResult(item["call_id"] or "", _text(item["output"]))
        case kind:
            raise ValueError(f"no model can be shown an item of type {kind}")


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
}
