"""What must hold of the items of a request together, and what is put right of it.

Always: a call has an id that no other has, and one output, which comes behind it. Outputs are
matched to calls by `call_id` alone, whatever their order; one that names only its function gets
the `call_id` of the first such call that has none.

With the strict rules also: an output has a `call_id`; reasoning is followed by what the assistant
said or called before anybody else speaks; and what the assistant says right before a call is a
remark, of the phase `commentary`. A request that continues a response or a conversation is not held
to the order of its own items alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import InvalidValue, MissingParameter

Item = dict[str, Any]

#: What answers which calls, and the words for it.
_ANSWERS = {
    "function_call_output": ("function_call", "function call output"),
    "custom_tool_call_output": ("custom_tool_call", "custom tool call output"),
    "tool_search_output": ("tool_search_call", "tool search output"),
    "local_shell_call_output": ("local_shell_call", "local shell call output"),
    "shell_call_output": ("shell_call", "shell call output"),
    "apply_patch_call_output": ("apply_patch_call", "apply patch call output"),
}
_CALLS = frozenset(call for call, _ in _ANSWERS.values())


def arranged(
    history: Sequence[Mapping[str, Any]],
    items: Sequence[Item],
    *,
    continues: bool = False,
    strict: bool = False,
    field: str = "input",
) -> list[Item]:
    """The complete items of `field` behind a `history`, each output with the `call_id` of the call
    that it answers. `continues` is whether the history comes from the store.

    Raises `InvalidValue` or `MissingParameter` at the place of what breaks the rules.
    """
    pairs = _Pairs(history, field, strict=strict)
    result = [pairs.take(place, item) for place, item in enumerate(items)]
    pairs.end()
    if strict and not continues:
        _check_order(result, field)
    return result


class _Pairs:
    """Calls and outputs, matched one by one. Calls of the history need no output: it is given
    back as it is, and what a client left unanswered there it cannot answer any more."""

    def __init__(self, history: Sequence[Mapping[str, Any]], field: str, *, strict: bool) -> None:
        self._field = field
        self._strict = strict
        self._calls: set[str] = set()
        #: Calls without an output by kind and id, each with its function.
        self._open: dict[tuple[str, str], str | None] = {}
        #: The places of the request's own calls.
        self._places: dict[tuple[str, str], int] = {}
        for item in history:
            if item["type"] in _CALLS and item["call_id"] is not None:
                self._calls.add(item["call_id"])
                self._open[item["type"], item["call_id"]] = item.get("name")
            elif item["type"] in _ANSWERS:
                self._open.pop((_ANSWERS[item["type"]][0], item["call_id"]), None)

    def take(self, place: int, item: Item) -> Item:
        """The next item, made to match."""
        param = f"{self._field}[{place}].call_id"
        kind, call_id = item["type"], item.get("call_id")
        if kind in _CALLS and call_id is not None:
            if call_id in self._calls:
                raise InvalidValue(
                    f"Duplicate call_id '{call_id}': there is an earlier call of that id.",
                    param=param,
                )
            self._calls.add(call_id)
            self._open[kind, call_id] = item.get("name")
            self._places[kind, call_id] = place
        elif kind in _ANSWERS and not (kind == "tool_search_output" and call_id is None):
            return self._answering(item, param)
        return item

    def end(self) -> None:
        """Refuse a call of the request that has no output."""
        for (_, call_id), place in sorted(self._places.items(), key=lambda pair: pair[1]):
            if any(key[1] == call_id for key in self._open):
                raise InvalidValue(
                    f"No tool output found for function call {call_id}.",
                    param=f"{self._field}[{place}].call_id",
                )

    def _answering(self, item: Item, param: str) -> Item:
        call_kind, words = _ANSWERS[item["type"]]
        call_id = item.get("call_id")
        if call_id is None:
            call_id = self._first_call(call_kind, words, item.get("name"), param)
            item = {**item, "call_id": call_id}
        if (call_kind, call_id) in self._open:
            del self._open[call_kind, call_id]
            return item
        if call_id in self._calls and not any(key[1] == call_id for key in self._open):
            raise InvalidValue(
                f"Duplicate output: the tool call with call_id '{call_id}' already has one.",
                param=param,
            )
        raise InvalidValue(f"No tool call found for {words} with call_id '{call_id}'.", param=param)

    def _first_call(self, call_kind: str, words: str, name: str | None, param: str) -> str:
        if name is None or self._strict:
            raise MissingParameter(f"Missing required parameter: '{param}'.", param=param)
        for (kind, call_id), of in self._open.items():
            if kind == call_kind and of == name:
                return call_id
        raise InvalidValue(
            f"No tool call without an output found for the {words} of '{name[:64]}'.", param=param
        )


def _check_order(items: Sequence[Item], field: str) -> None:
    thought: int | None = None  # The place of reasoning that nothing has come of yet.
    for place, item in enumerate(items):
        kind, role = item["type"], item.get("role")
        if kind == "reasoning":
            thought = place
        elif kind in _CALLS or role == "assistant":
            thought = None
        elif kind == "message" and thought is not None:
            break
        if kind in _CALLS and place and _is_answer(items[place - 1]):
            raise InvalidValue(
                f"Invalid '{field}[{place - 1}].phase': what the assistant says right before a "
                "call must be of the phase 'commentary'.",
                param=f"{field}[{place - 1}].phase",
            )
    if thought is not None:
        raise InvalidValue(
            f"Invalid '{field}[{thought}]': reasoning must be followed by a message of the "
            "assistant or a call before anybody else speaks.",
            param=f"{field}[{thought}]",
        )


def _is_answer(item: Item) -> bool:
    return item.get("role") == "assistant" and item.get("phase") != "commentary"
