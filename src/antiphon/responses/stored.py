"""Stored responses: begun, and whatever can be done with them later."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from antiphon import errors
from antiphon.models.base import Generation
from antiphon.principal import Principal
from antiphon.responses.admission import Readers
from antiphon.responses.answers import Answer, AwaitedAnswer, GivenAnswer, StoredRunAnswer
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.context import Context
from antiphon.responses.journal import Journal, StoredLog
from antiphon.responses.log import Tail
from antiphon.responses.refusals import on_conversation, on_previous, on_response, told
from antiphon.responses.replay import shown_response
from antiphon.responses.request import EffectiveRequest, conversation_id
from antiphon.responses.stored_run import StoredRun
from antiphon.responses.tails import StoredTail
from antiphon.responses.worker import Worker
from antiphon.spec.types import Response
from antiphon.store.base import Store
from antiphon.store.failures import KeyReused
from antiphon.store.records import Accepted, Idempotency, NewResponse, Order, Page, Record


class StoredOptions(Protocol):
    """What becomes of a stored response whose caller leaves, how long a cancel call waits for the
    model to let go, how large the request of a background response may be, and how long a stream
    may be silent."""

    @property
    def stop_on_disconnect(self) -> bool: ...
    @property
    def cancel_wait_seconds(self) -> float: ...
    @property
    def max_background_bytes(self) -> int: ...
    @property
    def keep_alive_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """Events to be read from number `first` on; `leave` is to be called when they are not read any
    more."""

    tail: Tail
    first: int
    leave: Callable[[], None]


class StoredResponses:
    """The responses of a store. `worker` makes those that are begun here."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        worker: Worker,
        readers: Readers,
        *,
        options: StoredOptions,
    ) -> None:
        self._store = store
        self._journal = journal
        self._worker = worker
        self._readers = readers
        self._options = options

    async def begin(
        self,
        principal: Principal,
        request: EffectiveRequest,
        context: Context,
        generation: Generation | None,
        idempotency: Idempotency | None,
    ) -> Answer:
        """Store a response and have it made: here and now if it has a generation, else by whoever
        takes it. `generation` is prepared and not started.

        Raises what `refusals` has, `IdempotencyKeyReused` and `TooManyRequests`.
        """
        if request.is_background:
            self._refuse_large(request)
        response = request.response()
        log = self._journal.new_log()
        builder = ResponseBuilder(response, log, request.presentation(principal, context.all_items))
        if request.is_background:
            generation = None
            builder.queue()
        else:
            builder.start()
        reads = request.is_background and request.streams
        if reads:
            self._readers.enter(principal)
        try:
            if generation is not None:
                generation.start()
            accepted = await self._accept(
                principal,
                NewResponse(
                    response=builder.response,
                    items=context.items,
                    request=request.saved,
                    worker=None if generation is None else self._worker.id,
                    conversation=conversation_id(request.body),
                    idempotency=idempotency,
                    background=request.is_background,
                    frames=log.frames,
                    model=request.model.name,
                ),
            )
        except BaseException:
            if reads:
                self._readers.leave(principal)
            if generation is not None:
                generation.cancel()
            raise
        if accepted.existing is not None:
            if reads:
                self._readers.leave(principal)
            if generation is not None:
                generation.cancel()
            return await self._attached(principal, request, accepted.existing)
        if generation is None or accepted.lease is None:
            tail = self._tail(principal, response["id"])
            leave = self._leaving(principal) if reads else _nothing
            if request.is_background:
                return GivenAnswer(builder.response, tail, leave)
            return AwaitedAnswer(self._store, principal, response["id"], tail)
        log.attach(accepted.lease)
        return self._run(principal, request, generation, builder, log)

    async def again(
        self, principal: Principal, request: EffectiveRequest, idempotency: Idempotency
    ) -> Answer | None:
        """The answer to a request that was sent before; None if it was not.

        Raises `IdempotencyKeyReused`, and what `tail` does.
        """
        with told(), _on_key():
            existing = await self._store.responses.made_with(principal, idempotency)
        return None if existing is None else await self._attached(principal, request, existing)

    async def retrieve(self, principal: Principal, response_id: str) -> Response:
        """The response as it stands."""
        return shown_response((await self._record(principal, response_id)).response)

    async def delete(self, principal: Principal, response_id: str) -> None:
        """Forget a response that has ended."""
        with on_response(response_id):
            await self._store.responses.delete(principal, response_id)

    async def input_items(
        self, principal: Principal, response_id: str, *, after: str | None, limit: int, order: Order
    ) -> Page:
        """The whole input of a response, history included."""
        with on_response(response_id):
            await self._store.responses.retrieve(principal, response_id)
        try:
            with on_response(response_id):
                return await self._store.responses.input_items(
                    principal, response_id, after=after, limit=limit, order=order
                )
        except errors.ResponseNotFound as error:
            if after is None:
                raise
            raise errors.InvalidValue(
                f"Invalid 'after': there is no item '{after[:64]}' in this list.", param="after"
            ) from error

    async def cancel(self, principal: Principal, response_id: str) -> Response:
        """Have a response cancelled. It is answered with as it then stands, which may still be in
        progress if its model takes long to let go."""
        with on_response(response_id):
            record = await self._store.responses.request_cancel(principal, response_id)
        if not record.active:
            return shown_response(record.response)
        await self._worker.cancel_queued(response_id)
        deadline = asyncio.get_running_loop().time() + self._options.cancel_wait_seconds
        while True:
            changed = asyncio.ensure_future(self._store.signals.waiter(response_id))
            record = await self._record(principal, response_id)
            left = deadline - asyncio.get_running_loop().time()
            if not record.active or left <= 0:
                changed.cancel()
                return shown_response(record.response)
            await asyncio.wait({changed}, timeout=left)
            changed.cancel()

    async def tail(
        self, principal: Principal, response_id: str, starting_after: int | None
    ) -> "Reading":
        """The events of a response behind number `starting_after`."""
        record = await self._record(principal, response_id)
        number = 0 if starting_after is None else starting_after + 1
        if number > record.next_event:
            raise errors.InvalidValue(
                f"Invalid 'starting_after': the last event so far is {record.next_event - 1}.",
                param="starting_after",
            )
        if not record.log_kept:
            raise errors.EventLogExpired(
                "The events of this response are not kept any more. Retrieve it without 'stream'.",
                param="stream",
            )
        if number < record.first_event:
            raise events_expired(record.first_event)
        self._readers.enter(principal)
        return Reading(self._tail(principal, response_id), number, self._leaving(principal))

    async def _record(self, principal: Principal, response_id: str) -> Record:
        with on_response(response_id):
            return await self._store.responses.retrieve(principal, response_id)

    def _refuse_large(self, request: EffectiveRequest) -> None:
        size, limit = len(orjson.dumps(request.body)), self._options.max_background_bytes
        if size > limit:
            raise errors.PayloadTooLarge(
                f"The request is {size} bytes, and one in the background may be {limit}."
            )

    async def _accept(self, principal: Principal, new: NewResponse) -> Accepted:
        previous = new.response["previous_response_id"]
        with on_conversation(new.conversation or "", "conversation"), _on_key():
            if previous is None:
                return await self._store.responses.create(principal, new)
            with on_previous(previous):
                return await self._store.responses.create(principal, new)

    async def _attached(
        self, principal: Principal, request: EffectiveRequest, response_id: str
    ) -> Answer:
        """The answer to a request that was sent before and made this response."""
        record = await self._record(principal, response_id)
        if request.streams:
            reading = await self.tail(principal, response_id, None)
            return GivenAnswer(shown_response(record.response), reading.tail, reading.leave)
        tail = self._tail(principal, response_id)
        if request.is_background or not record.active:
            return GivenAnswer(shown_response(record.response), tail, _nothing)
        return AwaitedAnswer(self._store, principal, response_id, tail)

    def _run(
        self,
        principal: Principal,
        request: EffectiveRequest,
        generation: Generation,
        builder: ResponseBuilder,
        log: StoredLog,
    ) -> Answer:
        run = StoredRun(
            generation, builder, log, keep_alive_seconds=self._options.keep_alive_seconds
        )
        self._worker.adopt(run, request.model.name)
        tail = self._tail(principal, run.response_id)

        def leave() -> None:
            if self._options.stop_on_disconnect and not run.ended:
                run.stop(errors.ResponseCancelled("The client went away."))

        return StoredRunAnswer(run, tail, leave)

    def _tail(self, principal: Principal, response_id: str) -> Tail:
        log = self._worker.log_of(response_id)
        return StoredTail(self._store.responses, self._store.signals, principal, response_id, log)

    def _leaving(self, principal: Principal) -> Callable[[], None]:
        gone = False

        def leave() -> None:
            nonlocal gone
            if not gone:
                gone = True
                self._readers.leave(principal)

        return leave


def idempotency_of(key: str, body: Mapping[str, Any]) -> Idempotency:
    """What a request with an `Idempotency-Key` is known by."""
    canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return Idempotency(key, hashlib.sha256(canonical).digest())


@contextmanager
def _on_key() -> Iterator[None]:
    try:
        yield
    except KeyReused as error:
        raise errors.IdempotencyKeyReused(
            "This 'Idempotency-Key' was used with another request."
        ) from error


def events_expired(first: int) -> errors.EventsExpired:
    """The error for a reader that comes too late, or is too slow."""
    return errors.EventsExpired(
        f"Events before number {first} are not kept any more.", param="starting_after"
    )


def _nothing() -> None:
    """For who holds nothing that would have to be given back."""
