"""Events as a builder writes them, for tests of what happens before they are sent."""

import json
from collections.abc import Iterable
from typing import Any

from antiphon.errors import ServerError
from antiphon.models.base import ModelDefaults
from antiphon.models.router import Route
from antiphon.models.scripted import ScriptedModel
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.log import EventLog
from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.request import EffectiveRequest
from antiphon.spec import packaged_contract
from antiphon.turn import Delta, Finish, TokenUsage

RESPONSE = "#/components/schemas/Response"
STREAM_EVENT = "#/components/schemas/StreamEvent"

STOP = Finish("stop")
USAGE = TokenUsage(5, cached_tokens=2, output_tokens=4, reasoning_tokens=1)
FAILURE = ServerError("The model failed.")


def asked(
    body: dict[str, Any],
    *,
    name: str = "test-model",
    defaults: ModelDefaults | None = None,
    reasoning: ReasoningPolicy | None = None,
) -> EffectiveRequest:
    """A body that passed the gate and makes sense, for a model that is called `name`."""
    route = Route(name, ScriptedModel("test-model", [], defaults=defaults))
    request = EffectiveRequest(body, route, reasoning=reasoning)
    request.check()
    return request


def new_log() -> EventLog:
    return EventLog(packaged_contract())


def new_builder(log: EventLog | None = None) -> ResponseBuilder:
    """A builder that has not begun."""
    return ResponseBuilder(asked({"input": "hi"}).response(), log or new_log())


def written(
    *deltas: Delta, end: Finish | ServerError = STOP, keep_alive: bool = False
) -> list[dict[str, Any]]:
    """All events of a response, as a client reads them; on request with its state after every
    delta."""
    builder = new_builder()
    builder.start()
    for delta in deltas:
        builder.feed(delta)
        if keep_alive:
            builder.keep_alive()
    if isinstance(end, Finish):
        builder.finish(end, USAGE)
    else:
        builder.fail(end, USAGE)
    return as_read(builder.log)


def as_read(log: EventLog) -> list[dict[str, Any]]:
    """The events of a log, read from its frames."""
    events = []
    for frame in log._frames:
        name, data, *rest = frame.decode().split("\n")
        assert rest == ["", ""] and data.startswith("data: ")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def types(events: Iterable[dict[str, Any]]) -> list[str]:
    """The types of events, without what all of them begin with."""
    return [event["type"].removeprefix("response.") for event in events]


def of(events: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The events of one type, which is given without what all of them begin with."""
    return [event for event in events if event["type"].removeprefix("response.") == kind]


def response_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response of the last event."""
    response: dict[str, Any] = events[-1]["response"]
    return response


def without_ids(value: Any) -> Any:
    """The same without what is random or a time."""
    volatile = ("id", "call_id", "item_id", "created_at", "completed_at")
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in volatile}
    if isinstance(value, list):
        return [without_ids(child) for child in value]
    return value
