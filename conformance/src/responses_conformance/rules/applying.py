"""Which rules an answer gave anything to judge by: what never came keeps no rule."""

from typing import Any

from responses_conformance.rules.catalogue import rules
from responses_conformance.rules.kinds import ANNOTATION, CALL_FIELDS, CALLS, OF_ITEMS, PARTS, TEXT
from responses_conformance.rules.stream import Judged

#: What is judged by the end of a stream, which one that was left has not.
OF_THE_END = frozenset({"LIFE-3", "LIFE-12", "FRAME-6", "FRAME-7", "FOLD-1", "FOLD-2"})
#: What is judged by the beginning of a stream, which one that was resumed has not.
_OF_THE_BEGINNING = frozenset({"SEQ-2", "LIFE-1", "LIFE-2", "LIFE-8", "LIFE-10"})
_NEED_AN_ERROR = frozenset({"LIFE-12", "FAULT-4", "FAULT-5"})


def of_stream(judged: Judged, *, whole: bool, left: bool) -> set[str]:
    """The rules that a stream was judged by; a stream that is not `whole` was resumed."""
    kinds = set(judged.kinds)
    events = [frame.data for frame in judged.frames]
    families = ["FRAME-", "LIFE-"]
    if kinds:
        families += ["SEQ-", "SHAPE-"]
    if whole:
        families += _of_items(kinds, events)
    found = {name for name in rules() if name.startswith(tuple(families))}
    if not kinds:
        found -= {name for name in found if name.startswith("LIFE-") and name != "LIFE-3"}
    if not whole:
        found -= _OF_THE_BEGINNING
    if "response.queued" not in kinds:
        found.discard("LIFE-8")
    found = found | _NEED_AN_ERROR if "error" in kinds else found - _NEED_AN_ERROR
    found.discard("LIFE-11")
    if judged.response is not None:
        found |= of_response(judged.response) | ({"FOLD-1", "FOLD-2"} if whole else set())
    return found - OF_THE_END if left else found


def of_response(response: Any) -> set[str]:
    """The rules that a response was judged by as such."""
    found = {"LIFE-11", "SHAPE-1", "SHAPE-2"}
    if not isinstance(response, dict):
        return found
    if isinstance(response.get("usage"), dict):
        found |= {"TOKENS-1", "TOKENS-2"}
    output = response.get("output")
    if _types(output if isinstance(output, list) else []) & set(CALL_FIELDS):
        found |= {"ARGS-7", "ARGS-8"}
    return found


def _of_items(kinds: set[str], events: list[dict[str, Any]]) -> list[str]:
    """The families, and of those that need more the single rules, that items are judged by."""
    types = _types(event.get("item") for event in events)
    found = []
    if kinds & OF_ITEMS or any("output_index" in event for event in events):
        found.append("ITEM-")
    if types & {"message", "reasoning"} or kinds & (set(TEXT) | set(PARTS)):
        found += ["PART-", *(f"TEXT-{number}" for number in range(1, 7))]
    if types & set(CALL_FIELDS) or kinds & set(CALLS):
        found += [f"ARGS-{number}" for number in range(1, 7)]
    if any(event.get("logprobs") for event in events):
        found.append("TEXT-7")
    if ANNOTATION in kinds or any(_annotated(event.get("part")) for event in events):
        found.append("TEXT-8")
    return found


def _annotated(part: Any) -> bool:
    return isinstance(part, dict) and bool(part.get("annotations"))


def _types(items: Any) -> set[str]:
    return {str(item.get("type")) for item in items if isinstance(item, dict)}
