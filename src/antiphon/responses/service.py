"""The operations on responses, for whatever transport."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from antiphon.errors import ContextLengthExceeded, IntegerBelowMinimum, ShuttingDown
from antiphon.metrics import Metrics
from antiphon.models.base import Generation, Model
from antiphon.models.router import Router
from antiphon.principal import Principal
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.gate import Dropped, Gate
from antiphon.responses.log import EventLog
from antiphon.responses.request import EffectiveRequest
from antiphon.responses.run import Run
from antiphon.spec import Contract
from antiphon.turn import Turn

_logger = structlog.get_logger("antiphon.responses")


@dataclass(frozen=True, slots=True)
class Started:
    """A run under way, whether its caller wants events, and what was left out of its request."""

    run: Run
    streams: bool
    dropped: Sequence[Dropped]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tokens an input is, and what was left out of it."""

    input_tokens: int
    dropped: Sequence[Dropped]


class ServiceOptions(Protocol):
    """How long a stream may be silent, the smallest `max_output_tokens` there may be, and whether
    prompts and answers are written to the log."""

    @property
    def keep_alive_seconds(self) -> float: ...
    @property
    def min_output_tokens(self) -> int: ...
    @property
    def log_content(self) -> bool: ...


class ResponseService:
    """Makes responses. Bodies come in as the document allows them."""

    def __init__(
        self,
        contract: Contract,
        router: Router,
        gate: Gate,
        metrics: Metrics,
        *,
        options: ServiceOptions,
    ) -> None:
        self._contract = contract
        self._router = router
        self._gate = gate
        self._metrics = metrics
        self._options = options
        self._runs: dict[asyncio.Task[None], Run] = {}
        self._draining = False

    @property
    def accepting(self) -> bool:
        """Whether new responses are begun."""
        return not self._draining

    async def create(self, principal: Principal, body: Mapping[str, Any]) -> Started:
        """Begin a response. Whatever can be wrong with the request is raised here."""
        self._admit()
        request, generation, dropped = await self._accept(principal, body)
        self._admit()
        log = EventLog(self._contract)
        run = Run(
            generation,
            ResponseBuilder(request.response(), log),
            log,
            keep_alive_seconds=self._options.keep_alive_seconds,
        )
        self._follow(run, request.model)
        return Started(run, request.streams, dropped)

    async def count_input_tokens(self, principal: Principal, body: Mapping[str, Any]) -> Counted:
        """Count what `create` would report as `usage.input_tokens`."""
        self._admit()
        _, generation, dropped = await self._accept(principal, body)
        return Counted(generation.usage.input_tokens, dropped)

    async def drain(self, grace_seconds: float) -> None:
        """Begin nothing new, let runs end, and after the grace end those that have not."""
        self._draining = True
        if self._runs:
            await asyncio.wait(list(self._runs), timeout=grace_seconds)
        for run in list(self._runs.values()):
            run.stop(ShuttingDown("The server is shutting down."))
        if self._runs:
            await asyncio.wait(list(self._runs))

    def _admit(self) -> None:
        if self._draining:
            raise ShuttingDown("The server is shutting down.", headers={"retry-after": "1"})

    async def _accept(
        self, principal: Principal, body: Mapping[str, Any]
    ) -> tuple[EffectiveRequest, Generation, list[Dropped]]:
        """What is asked, ready to be answered, and what was left out of it."""
        kept, dropped = self._gate.apply(body)
        fewest = self._options.min_output_tokens
        limit = kept.get("max_output_tokens", fewest)
        if limit < fewest:
            raise IntegerBelowMinimum(
                f"Invalid 'max_output_tokens': expected at least {fewest}, but got {limit}.",
                param="max_output_tokens",
            )
        request = EffectiveRequest(kept, self._router.find(kept.get("model")))
        turn = request.turn(principal)
        generation = await self._prepare(request.model, turn, truncates=request.truncates)
        self._metrics.count_dropped(dropped)
        if self._options.log_content:
            _logger.info("asked", body=kept)
        return request, generation, dropped

    async def _prepare(self, model: Model, turn: Turn, *, truncates: bool) -> Generation:
        try:
            return await model.prepare(turn)
        except ContextLengthExceeded:
            if not truncates:
                raise
        return await self._prepare_truncated(model, turn)

    async def _prepare_truncated(self, model: Model, turn: Turn) -> Generation:
        """Leave out as few of the oldest messages as make the turn fit.

        Leading system messages and the last message stay, whatever their length.
        """
        messages = turn.messages
        first = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
        fewest, most = 1, len(messages) - first - 1
        fitting: Generation | None = None
        while fewest <= most:
            middle = (fewest + most) // 2
            shorter = replace(turn, messages=messages[:first] + messages[first + middle :])
            try:
                fitting = await model.prepare(shorter)
                most = middle - 1
            except ContextLengthExceeded:
                fewest = middle + 1
        return fitting or await model.prepare(turn)

    def _follow(self, run: Run, model: Model) -> None:
        task = run.start()
        self._metrics.run_started(model.name)
        self._runs[task] = run

        def ended(task: asyncio.Task[None]) -> None:
            del self._runs[task]
            self._metrics.run_ended(model.name, run.outcome, run.usage)
            _logger.info(
                "response",
                model=model.name,
                outcome=run.outcome,
                input_tokens=run.usage.input_tokens,
                output_tokens=run.usage.output_tokens,
            )
            if self._options.log_content:
                _logger.info("answered", output=run.result()["output"])

        task.add_done_callback(ended)
