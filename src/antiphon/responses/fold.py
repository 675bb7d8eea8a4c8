"""Folds a response's events back into the response.

A pure function of the events: the answer to a request that did not stream, and what is known of a
response whose stream broke off. For a whole stream the result equals the terminal event's response.
"""

from collections.abc import Iterable
from typing import Any, cast

from antiphon.spec.types import Response, StreamEvent

_TEXT_FIELDS = {"output_text": "text", "reasoning_text": "text", "refusal": "refusal"}


class FoldError(Exception):
    """The events are no stream of one response."""


def fold(events: Iterable[StreamEvent]) -> Response:
    """The response as of the last of `events`, which begin with `response.created`.

    Output is rebuilt from the item events alone; everything else is as the last lifecycle event
    says. Raises `FoldError` if an event refers to something that was not announced.
    """
    response: dict[str, Any] | None = None
    output: list[dict[str, Any]] = []
    pieces: dict[tuple[int, int], list[str]] = {}
    summaries: dict[tuple[int, int], list[str]] = {}
    for event in events:
        kind = event["type"]
        fields = cast(dict[str, Any], event)
        try:
            if kind == "response.output_text.delta":
                key = (fields["output_index"], fields["content_index"])
                pieces[key].append(fields["delta"])
                if fields["logprobs"]:
                    _part(output, fields)["logprobs"] += fields["logprobs"]
            elif kind in ("response.reasoning_text.delta", "response.refusal.delta"):
                pieces[fields["output_index"], fields["content_index"]].append(fields["delta"])
            elif kind == "response.reasoning_summary_text.delta":
                summaries[fields["output_index"], fields["summary_index"]].append(fields["delta"])
            elif kind == "response.function_call_arguments.delta":
                output[fields["output_index"]]["arguments"] += fields["delta"]
            elif kind == "response.custom_tool_call_input.delta":
                output[fields["output_index"]]["input"] += fields["delta"]
            elif kind == "response.output_item.added":
                if fields["output_index"] != len(output):
                    raise FoldError(f"item {fields['output_index']} is announced out of order")
                output.append(_copied(fields["item"]))
            elif kind == "response.content_part.added":
                part = _copied(fields["part"])
                output[fields["output_index"]]["content"].append(part)
                text = part[_TEXT_FIELDS[part["type"]]]
                pieces[fields["output_index"], fields["content_index"]] = [text] if text else []
            elif kind == "response.content_part.done":
                content = output[fields["output_index"]]["content"]
                content[fields["content_index"]] = _copied(fields["part"])
                pieces.pop((fields["output_index"], fields["content_index"]))
            elif kind == "response.reasoning_summary_part.added":
                output[fields["output_index"]]["summary"].append(_copied(fields["part"]))
                summaries[fields["output_index"], fields["summary_index"]] = []
            elif kind == "response.reasoning_summary_part.done":
                summary = output[fields["output_index"]]["summary"]
                summary[fields["summary_index"]] = _copied(fields["part"])
                summaries.pop((fields["output_index"], fields["summary_index"]))
            elif kind == "response.output_item.done":
                output[fields["output_index"]] = _copied(fields["item"])
            elif "response" in fields:
                response = fields["response"]
        except (KeyError, IndexError) as error:
            raise FoldError(f"{kind} refers to something that was not announced") from error
    if response is None:
        raise FoldError("there is no response among the events")
    for (item, index), texts in pieces.items():
        part = output[item]["content"][index]
        part[_TEXT_FIELDS[part["type"]]] = "".join(texts)
    for (item, index), texts in summaries.items():
        output[item]["summary"][index]["text"] = "".join(texts)
    return cast(Response, {**response, "output": output})


def _part(output: list[dict[str, Any]], fields: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = output[fields["output_index"]]["content"][fields["content_index"]]
    return part


def _copied(value: dict[str, Any]) -> dict[str, Any]:
    """A copy that can be added to without touching the event."""
    return {k: list(v) if isinstance(v, list) else v for k, v in value.items()}
