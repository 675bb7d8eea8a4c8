"""A create request with every default filled in: what is asked of the model, and what is echoed."""

from collections.abc import Iterator, Mapping
from typing import Any

from antiphon import ids
from antiphon.errors import InvalidValue, MissingParameter
from antiphon.models.base import Model
from antiphon.models.router import Route
from antiphon.principal import Principal
from antiphon.spec.types import EffectiveServiceTier, Response
from antiphon.turn import Message, Role, Sampling, Turn

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
#: The tiers that differ from the default. What hosted services call fast is urgent here.
_TIERS: Mapping[str, EffectiveServiceTier] = {
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
    "ultrafast": "priority",
}
_PRIORITIES: Mapping[EffectiveServiceTier, int] = {"flex": -1, "default": 0, "priority": 1}
#: How long an idle prefix stays, in seconds; None for as long as the settings say.
_KEEP_SECONDS: Mapping[str, float | None] = {"in_memory": None, "24h": 24 * 3600.0}
_LOGPROBS = "message.output_text.logprobs"
_LARGEST = 2**64 - 1  # What a response can be told of: its JSON has no larger integer.


class EffectiveRequest:
    """A body that passed the gate, and the model that will answer it.

    Raises `MissingParameter` or `InvalidValue` if there is nothing to answer.
    """

    def __init__(self, body: Mapping[str, Any], route: Route) -> None:
        self._body = body
        self._route = route
        if "input" not in body:
            raise MissingParameter("Missing required parameter: 'input'.", param="input")
        if not body["input"] and isinstance(body["input"], list) and not body.get("instructions"):
            raise InvalidValue("Invalid 'input': there is nothing to answer.", param="input")

    @property
    def model(self) -> Model:
        """What answers."""
        return self._route.model

    @property
    def truncates(self) -> bool:
        """Whether old messages may be left out to make the input fit."""
        return bool(self._body.get("truncation") == "auto")

    @property
    def streams(self) -> bool:
        """Whether the caller wants events."""
        return bool(self._body.get("stream", False))

    def turn(self, principal: Principal) -> Turn:
        """What to ask the model."""
        body = self._body
        return Turn(
            messages=tuple(_messages(body["input"])),
            instructions=body.get("instructions"),
            sampling=self._sampling(),
            max_output_tokens=_whole(body.get("max_output_tokens")),
            top_logprobs=self._top_logprobs() if _LOGPROBS in body.get("include", ()) else None,
            tenant=principal.id,
            priority=_PRIORITIES[self._service_tier()],
            cache_key=body.get("prompt_cache_key") or "",
            keep_seconds=_KEEP_SECONDS[body.get("prompt_cache_retention", "in_memory")],
        )

    def response(self) -> Response:
        """The response as it is accepted: in progress, without output, settings echoed."""
        body = self._body
        sampling = self._sampling()
        return {
            "id": ids.response_id(),
            "object": "response",
            "created_at": ids.now(),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": self._route.name,
            "previous_response_id": None,
            "instructions": body.get("instructions"),
            "output": [],
            "usage": None,
            "tools": [],
            "tool_choice": body.get("tool_choice", "auto"),
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "max_tool_calls": _whole(body.get("max_tool_calls")),
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": None, "summary": None},
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "top_logprobs": self._top_logprobs(),
            "max_output_tokens": _whole(body.get("max_output_tokens")),
            "truncation": body.get("truncation", "disabled"),
            "store": False,
            "background": False,
            "service_tier": self._service_tier(),
            "metadata": body.get("metadata", {}),
            "safety_identifier": body.get("safety_identifier"),
            "user": None if "safety_identifier" in body else body.get("user"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "prompt_cache_retention": body.get("prompt_cache_retention", "in_memory"),
        }

    def _sampling(self) -> Sampling:
        body, defaults = self._body, self._route.model.defaults
        return Sampling(
            temperature=body.get("temperature", defaults.temperature),
            top_p=body.get("top_p", defaults.top_p),
            presence_penalty=body.get("presence_penalty", 0),
            frequency_penalty=body.get("frequency_penalty", 0),
            seed=_whole(body.get("seed")),
        )

    def _service_tier(self) -> EffectiveServiceTier:
        return _TIERS.get(self._body.get("service_tier", "auto"), "default")

    def _top_logprobs(self) -> int:
        return _whole(self._body.get("top_logprobs")) or 0


def _messages(value: str | list[dict[str, Any]]) -> Iterator[Message]:
    if isinstance(value, str):
        yield Message("user", value)
        return
    for item in value:
        yield Message(_ROLES[item["role"]], _text(item["content"]))


def _text(content: str | list[dict[str, Any]]) -> str:
    """A message's text. Parts are separate thoughts, so each begins on a line of its own."""
    if isinstance(content, str):
        return content
    return "\n".join(
        part["refusal"] if part["type"] == "refusal" else part["text"] for part in content
    )


def _whole(value: float | None) -> int | None:
    """An integer field's value; JSON may write 16 as 16.0, and numbers that no limit can reach."""
    return None if value is None else min(int(value), _LARGEST)
