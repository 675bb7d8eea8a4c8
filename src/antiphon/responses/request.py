"""A create request with every default filled in: what is asked of the model, and what is echoed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from antiphon import ids
from antiphon.comparing import ComparedHere, Comparing
from antiphon.errors import InvalidValue, MissingParameter
from antiphon.models.base import Model
from antiphon.models.router import Route, Router
from antiphon.principal import Principal
from antiphon.responses.answer_format import answer_format, effective_text
from antiphon.responses.items import turn_entries
from antiphon.responses.presentation import Presentation
from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.tools import effective_tools, tool_table
from antiphon.spec.types import EffectiveServiceTier, ReasoningSummaryMode, Response
from antiphon.store.records import ItemBody
from antiphon.turn import Effort, Sampling, Turn

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
_SEALED = "reasoning.encrypted_content"
_LARGEST = 2**64 - 1  # What a response can be told of: its JSON has no larger integer.


class EffectiveRequest:
    """A body that passed the gate, and the model that will answer it.

    `stores` is whether the response is kept where the request does not say, `reasoning` what is
    done with its reasoning here, and `comparing` compares what is said with its schemas.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        route: Route,
        *,
        stores: bool = False,
        reasoning: ReasoningPolicy | None = None,
        comparing: Comparing | None = None,
    ) -> None:
        #: The body itself.
        self.body = body
        self.reasoning = reasoning or ReasoningPolicy()
        self.comparing = comparing or ComparedHere()
        self._route = route
        self._stores = stores
        #: Where tools stand in the request, by the names that the model uses, as far as is known.
        self.tool_places: Mapping[str, str] = {}

    def check(self) -> None:
        """Raise `MissingParameter` or `InvalidValue` if there is nothing to answer, or it cannot be
        done in this way."""
        body = self.body
        if "input" not in body and not _continues(body):
            raise MissingParameter("Missing required parameter: 'input'.", param="input")
        if body.get("input") == [] and not _continues(body) and not body.get("instructions"):
            raise InvalidValue("Invalid 'input': there is nothing to answer.", param="input")
        if "previous_response_id" in body and "conversation" in body:
            raise InvalidValue(
                "Invalid 'conversation': a request continues a response or a conversation, "
                "not both.",
                param="conversation",
            )
        if self.is_background and not self.stores:
            raise InvalidValue(
                "Invalid 'background': a background response is stored, and 'store' is false.",
                param="background",
            )

    @property
    def model(self) -> Model:
        """What answers."""
        return self._route.model

    @property
    def truncates(self) -> bool:
        """Whether old messages may be left out to make the input fit."""
        return bool(self.body.get("truncation") == "auto")

    @property
    def streams(self) -> bool:
        """Whether the caller wants events."""
        return bool(self.body.get("stream", False))

    @property
    def stores(self) -> bool:
        """Whether the response is kept."""
        return bool(self.body.get("store", self._stores))

    @property
    def is_background(self) -> bool:
        """Whether it is made without anybody waiting for it."""
        return bool(self.body.get("background", False))

    @property
    def saved(self) -> Mapping[str, Any]:
        """What another process needs, beside the items, to make the response."""
        left_out = ("input", "client_metadata")
        body = {name: value for name, value in self.body.items() if name not in left_out}
        return {**body, "model": self._route.model.name, "store": True}

    @property
    def seals_reasoning(self) -> bool:
        """Whether the response is to hold its reasoning in the sealed form."""
        return _SEALED in self.body.get("include", ())

    def turn(self, principal: Principal, items: Iterable[ItemBody]) -> Turn:
        """What to ask the model, `items` being all that it is to be shown.

        Raises `InvalidValue` where the tool choice cannot be met.
        """
        body, items = self.body, list(items)
        table = tool_table(body.get("tools", ()), items)
        return Turn(
            messages=turn_entries(items),
            instructions=body.get("instructions"),
            sampling=self._sampling(),
            max_output_tokens=_whole(body.get("max_output_tokens")),
            top_logprobs=self._top_logprobs() if _LOGPROBS in body.get("include", ()) else None,
            tenant=principal.id,
            priority=_PRIORITIES[self._service_tier()],
            cache_key=body.get("prompt_cache_key") or "",
            keep_seconds=_KEEP_SECONDS[body.get("prompt_cache_retention", "in_memory")],
            private=not self.stores,
            tools=tuple(
                replace(tool, place=self.tool_places.get(tool.name, "")) for tool in table.tools
            ),
            tool_choice=table.choice(body.get("tool_choice")),
            parallel_calls=body.get("parallel_tool_calls", True),
            max_calls=_whole(body.get("max_tool_calls")),
            answer=answer_format(body.get("text")),
            effort=self._effort(),
        )

    def presentation(self, principal: Principal, items: Iterable[ItemBody]) -> Presentation:
        """How the answer is shown, `items` being all that the model is shown."""
        policy, shows = self.reasoning, self.seals_reasoning
        # What is hidden is still needed by the responses that continue this one.
        seal = policy.seal(principal, self.model) if shows or policy.hides else None
        return Presentation(
            tool_table(self.body.get("tools", ()), items).shown,
            seal=seal,
            shows_sealed=shows,
            hides_reasoning=policy.hides,
            summarises=self._summary() is not None,
        )

    def response(self) -> Response:
        """The response as it is accepted: without output, settings echoed."""
        body = self.body
        sampling = self._sampling()
        conversation = conversation_id(body)
        return {
            "id": ids.response_id(),
            "object": "response",
            "created_at": ids.now(),
            "completed_at": None,
            "status": "queued" if self.is_background else "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": self._route.name,
            "previous_response_id": body.get("previous_response_id"),
            "conversation": None if conversation is None else {"id": conversation},
            "instructions": body.get("instructions"),
            "output": [],
            "usage": None,
            "tools": effective_tools(body.get("tools", ())),
            "tool_choice": body.get("tool_choice", "auto"),
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "max_tool_calls": _whole(body.get("max_tool_calls")),
            "text": effective_text(body.get("text")),
            "reasoning": {"effort": self._effort(), "summary": self._summary()},
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "top_logprobs": self._top_logprobs(),
            "max_output_tokens": _whole(body.get("max_output_tokens")),
            "truncation": body.get("truncation", "disabled"),
            "store": self.stores,
            "background": self.is_background,
            "service_tier": self._service_tier(),
            "metadata": body.get("metadata", {}),
            "safety_identifier": body.get("safety_identifier"),
            "user": None if "safety_identifier" in body else body.get("user"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "prompt_cache_retention": body.get("prompt_cache_retention", "in_memory"),
        }

    def _effort(self) -> Effort | None:
        return self.model.effort((self.body.get("reasoning") or {}).get("effort"))

    def _summary(self) -> ReasoningSummaryMode | None:
        wished = self.body.get("reasoning") or {}
        asked = wished.get("summary") or wished.get("generate_summary")
        # It is all that there is, however short it was to be.
        return "detailed" if asked and self.reasoning.summarises else None

    def _sampling(self) -> Sampling:
        body, defaults = self.body, self._route.model.defaults
        return Sampling(
            temperature=body.get("temperature", defaults.temperature),
            top_p=body.get("top_p", defaults.top_p),
            presence_penalty=body.get("presence_penalty", 0),
            frequency_penalty=body.get("frequency_penalty", 0),
            seed=_whole(body.get("seed")),
        )

    def _service_tier(self) -> EffectiveServiceTier:
        return _TIERS.get(self.body.get("service_tier", "auto"), "default")

    def _top_logprobs(self) -> int:
        return _whole(self.body.get("top_logprobs")) or 0


class RequestReader:
    """Fills requests in. `router` finds their models; for `reasoning` and `comparing` see
    `EffectiveRequest`."""

    def __init__(
        self,
        router: Router,
        reasoning: ReasoningPolicy | None = None,
        comparing: Comparing | None = None,
    ) -> None:
        self.router = router
        self._reasoning = reasoning
        self._comparing = comparing

    def read(self, body: Mapping[str, Any], *, stores: bool = False) -> EffectiveRequest:
        """A body that passed the gate. `stores` is whether its response is kept where it does not
        say. Raises `ModelNotFound` or `ModelUnavailable`."""
        route = self.router.find(body.get("model"))
        return EffectiveRequest(
            body, route, stores=stores, reasoning=self._reasoning, comparing=self._comparing
        )


def _whole(value: float | None) -> int | None:
    """An integer field's value; JSON may write 16 as 16.0, and numbers that no limit can reach."""
    return None if value is None else min(int(value), _LARGEST)


def conversation_id(body: Mapping[str, Any]) -> str | None:
    """The conversation that a request names, in either form."""
    named = body.get("conversation")
    return named["id"] if isinstance(named, Mapping) else named


def _continues(body: Mapping[str, Any]) -> bool:
    return "previous_response_id" in body or "conversation" in body
