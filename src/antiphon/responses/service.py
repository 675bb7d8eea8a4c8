"""The operations on responses, for whatever transport."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from antiphon.errors import ResponseNotFound, ShuttingDown, UnsupportedValue
from antiphon.models.remote import RemoteModel
from antiphon.principal import Principal
from antiphon.responses.answers import Answer, RunAnswer
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.context import ContextLoader
from antiphon.responses.gate import Dropped
from antiphon.responses.intake import Intake
from antiphon.responses.log import EventLog
from antiphon.responses.maker import prepared
from antiphon.responses.observer import Observer
from antiphon.responses.refusals import shortened
from antiphon.responses.request import EffectiveRequest
from antiphon.responses.run import Run
from antiphon.responses.stored import StoredResponses, idempotency_of
from antiphon.spec import Contract

_IDEMPOTENCY = Dropped("idempotency-key", "idempotency-key")


@dataclass(frozen=True, slots=True)
class Started:
    """A response under way, whether its caller wants events, and what was left out of its
    request."""

    answer: Answer
    streams: bool
    dropped: Sequence[Dropped]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tokens an input is, and what was left out of it."""

    input_tokens: int
    dropped: Sequence[Dropped]


class ResponseService:
    """Makes responses. Bodies come in as the document allows them. `stored` is None where nothing
    is stored. A stream is silent for `keep_alive_seconds` at most."""

    def __init__(
        self,
        contract: Contract,
        intake: Intake,
        loader: ContextLoader,
        stored: StoredResponses | None,
        observer: Observer,
        *,
        keep_alive_seconds: float,
    ) -> None:
        self._contract = contract
        self._intake = intake
        self._loader = loader
        self._stored = stored
        self._observer = observer
        self._keep_alive_seconds = keep_alive_seconds
        self._runs: dict[asyncio.Task[None], Run] = {}
        self._draining = False

    @property
    def accepting(self) -> bool:
        """Whether new responses are begun."""
        return not self._draining

    def stored(self, response_id: str) -> StoredResponses:
        """The stored responses, one of which is asked for. Raises `ResponseNotFound` where nothing
        is stored."""
        if self._stored is None:
            raise ResponseNotFound(
                f"There is no response '{shortened(response_id)}': nothing is stored here.",
                param="response_id",
            )
        return self._stored

    async def create(
        self, principal: Principal, body: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Started:
        """Begin a response. Whatever can be wrong with the request is raised here."""
        self._admit()
        request, dropped = await self._intake.accept(body)
        idempotency = None
        if self._stored is not None and request.stores and idempotency_key is not None:
            idempotency = idempotency_of(idempotency_key, body)
            # First of all, as what it continues may be busy with it, or not be there any more.
            again = await self._stored.again(principal, request, idempotency)
            if again is not None:
                return Started(again, request.streams, dropped)
        async with AsyncExitStack() as in_hand:
            context = await in_hand.enter_async_context(
                self._loader.loaded(principal, request.body)
            )
            generation = None
            if not isinstance(request.model, RemoteModel):
                generation = await prepared(request, principal, context.all_items)
            elif not request.stores:
                raise UnsupportedValue(
                    "Unsupported value: 'store' is false, and this server hands its responses to "
                    "others, which it can only through its storage.",
                    param="store",
                )
        self._admit()
        self._observer.accepted(request.body, dropped)
        if self._stored is not None and request.stores:
            answer = await self._stored.begin(principal, request, context, generation, idempotency)
        else:
            assert generation is not None
            if idempotency_key is not None:
                dropped.append(_IDEMPOTENCY)
            generation.start()
            log = EventLog(self._contract)
            run = Run(
                generation,
                ResponseBuilder(
                    request.response(),
                    log,
                    request.presentation(principal, context.all_items),
                ),
                log,
                keep_alive_seconds=self._keep_alive_seconds,
            )
            self._follow(run, request)
            answer = RunAnswer(run)
        return Started(answer, request.streams, dropped)

    async def count_input_tokens(self, principal: Principal, body: Mapping[str, Any]) -> Counted:
        """Count what `create` would report as `usage.input_tokens`."""
        self._admit()
        request, dropped = await self._intake.accept(body)
        async with self._loader.loaded(principal, request.body) as context:
            generation = await prepared(request, principal, context.all_items)
        self._observer.accepted(request.body, dropped)
        return Counted(generation.usage.input_tokens, dropped)

    async def drain(self, grace_seconds: float) -> None:
        """Begin nothing new, let runs end that are not stored, and after the grace end those that
        have not."""
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

    def _follow(self, run: Run, request: EffectiveRequest) -> None:
        task = run.start()
        self._runs[task] = run
        task.add_done_callback(self._runs.pop)
        private = request.body.get("store") is False
        self._observer.started(run, request.model.name, private=private)
