"""Stored responses being made: by whom, and what becomes of those that nobody makes any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from said import SaidModel, in_a_loop
from writing import STOP, types

from antiphon import errors
from antiphon.metrics import Metrics
from antiphon.models.base import Model
from antiphon.models.router import Router
from antiphon.principal import ANONYMOUS
from antiphon.responses.admission import HistoryBudget, Readers
from antiphon.responses.context import ContextLoader
from antiphon.responses.gate import Gate
from antiphon.responses.intake import Intake
from antiphon.responses.journal import Journal
from antiphon.responses.log import read_frame
from antiphon.responses.observer import Observer
from antiphon.responses.request import RequestReader
from antiphon.responses.service import ResponseService
from antiphon.responses.stored import StoredResponses
from antiphon.responses.worker import Worker
from antiphon.settings import Settings
from antiphon.spec import packaged_contract
from antiphon.store.build import SqlStore, open_store
from antiphon.store.failures import StoreUnavailable
from antiphon.store.records import StoreLimits
from antiphon.store.sealing import PlainSealer
from antiphon.turn import TextDelta


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One process of several on a store. It works only once its worker is started."""

    def __init__(self, store: SqlStore, *models: Model, name: str = "one", **options: Any) -> None:
        settings = Settings(**{"background_deadline_seconds": 10**12, **options})
        contract = packaged_contract()
        reader = RequestReader(Router(models or [SaidModel(TextDelta("Hello"), STOP)], {}))
        observer = Observer(Metrics(), log_content=False)
        journal = Journal(store.runs, contract, events_per_run=1000, event_bytes_per_run=1_000_000)
        self.store = store
        self.worker = Worker(
            name, store, journal, reader, options=settings, on_start=observer.started
        )
        self.stored = StoredResponses(
            store, journal, self.worker, Readers(100, 100), options=settings
        )
        self.service = ResponseService(
            contract,
            Intake(Gate(contract), reader, stores=True, options=settings),
            ContextLoader(store, HistoryBudget(10**6)),
            self.stored,
            observer,
            keep_alive_seconds=100,
        )

    async def create(self, **body: Any) -> str:
        """The id of a new response."""
        started = await self.service.create(ANONYMOUS, {"input": "hi", **body})
        (frame, *_) = await started.answer.tail.frames_from(0)
        event: Any = read_frame(frame)
        return str(event["response"]["id"])

    async def events(self, response_id: str) -> list[dict[str, Any]]:
        """All events up to the end, as a reader here gets them."""
        reading = await self.stored.tail(ANONYMOUS, response_id, None)
        events: list[Any] = []
        while frames := await reading.tail.frames_from(len(events)):
            events += [read_frame(frame) for frame in frames]
        reading.leave()
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        return events

    async def status(self, response_id: str) -> str:
        return (await self.stored.retrieve(ANONYMOUS, response_id))["status"]


@asynccontextmanager
async def opened(clock: Clock | None = None) -> AsyncIterator[SqlStore]:
    store = open_store(
        "sqlite:///:memory:",
        limits=StoreLimits(lease_seconds=10),
        sealer=PlainSealer(),
        blobs=None,
        clock=clock or Clock(),
    )
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


def text_of(response: Any) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


# Here and now


@in_a_loop
async def test_sta_05_what_was_sent_as_the_end_is_what_is_found_later():
    async with opened() as store:
        one = Process(store)
        response_id = await one.create()
        events = await one.events(response_id)
        assert types(events)[0] == "created" and types(events)[-1] == "completed"
        assert await one.stored.retrieve(ANONYMOUS, response_id) == events[-1]["response"]
        assert await one.events(response_id) == events
        await one.worker.drain(0, keeps=True)


@in_a_loop
async def test_a_store_that_fails_while_it_answers_fails_the_response():
    gate = asyncio.Event()
    async with opened() as store:
        one = Process(store, SaidModel(TextDelta("Hel"), gate, TextDelta("lo"), STOP))
        started = await one.service.create(ANONYMOUS, {"input": "hi"})
        tail = started.answer.tail
        number = 0
        while number < 5:
            number += len(await tail.frames_from(number))

        async def fail(_: object) -> Any:
            raise StoreUnavailable("disk full")

        store.runs.append = fail  # type: ignore[method-assign]
        gate.set()
        seen: list[Any] = []
        while frames := await tail.frames_from(number + len(seen)):
            seen += [read_frame(frame) for frame in frames]
        assert types(seen)[-2:] == ["error", "failed"]
        assert seen[-2]["code"] == "storage_unavailable"
        assert text_of(seen[-1]["response"]) == "Hel"
        with pytest.raises(errors.StorageUnavailable):
            await started.answer.result()


# Waiting and taken


@in_a_loop
async def test_what_waits_is_made_by_whoever_looks_for_work():
    async with opened() as store:
        one, two = Process(store), Process(store, name="two")
        response_id = await one.create(background=True)
        assert await one.status(response_id) == "queued"
        two.worker.start()
        events = await one.events(response_id)
        assert types(events)[:3] == ["created", "queued", "in_progress"]
        assert types(events)[-1] == "completed"
        await two.worker.drain(0, keeps=True)


@in_a_loop
async def test_no_more_are_made_at_once_than_there_are_workers():
    gate = asyncio.Event()
    async with opened() as store:
        model = SaidModel(TextDelta("a"), gate, STOP)
        one = Process(store, model, background_workers=2)
        one.worker.start()
        made = [await one.create(background=True) for _ in range(4)]
        while len(model.generations) < 2:
            await asyncio.sleep(0)
        assert one.worker.num_claimed == 2
        gate.set()
        for response_id in made:
            assert types(await one.events(response_id))[-1] == "completed"
        await one.worker.drain(0, keeps=True)


@in_a_loop
async def test_a_model_that_refuses_fails_what_waited():
    async with opened() as store:

        class Refusing(SaidModel):
            async def prepare(self, turn: Any) -> Any:
                if self.generations:
                    raise errors.ContextLengthExceeded("too long", param="input")
                return await super().prepare(turn)

        one = Process(store, Refusing(STOP))
        response_id = await one.create(background=True)
        one.worker.start()
        events = await one.events(response_id)
        assert types(events)[-2:] == ["error", "failed"]
        assert events[-2]["code"] == "context_length_exceeded"
        assert await one.status(response_id) == "failed"
        await one.worker.drain(0, keeps=True)


@in_a_loop
async def test_what_waited_too_long_is_never_made():
    async with opened() as store:
        model = SaidModel(STOP)
        one = Process(store, model, background_deadline_seconds=1)
        response_id = await one.create(background=True)
        model.generations.clear()
        one.worker.start()
        assert (await one.events(response_id))[-2]["code"] == "deadline_exceeded"
        assert model.generations == []
        await one.worker.drain(0, keeps=True)


# Left behind


@in_a_loop
async def test_a_run_without_output_is_made_anew_by_another_process():
    clock = Clock()
    async with opened(clock) as store:
        one = Process(store, SaidModel(asyncio.Event()))
        response_id = await one.create()
        clock.now += 11
        two = Process(store, SaidModel(TextDelta("Hello"), STOP), name="two")
        two.worker.start()
        events = await two.events(response_id)
        assert types(events)[:4] == ["created", "in_progress", "in_progress", "output_item.added"]
        assert text_of(events[-1]["response"]) == "Hello"
        assert store.counters.takeovers == 1
        for process in (one, two):
            await process.worker.drain(0, keeps=True)


@in_a_loop
async def test_a_run_with_output_is_ended_and_keeps_what_it_had():
    clock = Clock()
    async with opened(clock) as store:
        one = Process(store, SaidModel(TextDelta("Hel"), asyncio.Event()))
        response_id = await one.create()
        reading = await one.stored.tail(ANONYMOUS, response_id, None)
        number = 0
        while number < 5:
            number += len(await reading.tail.frames_from(number))
        clock.now += 11
        model = SaidModel(TextDelta("Hello"), STOP)
        two = Process(store, model, name="two")
        two.worker.start()
        events = await two.events(response_id)
        closing = ["output_text.done", "content_part.done", "output_item.done", "error", "failed"]
        assert types(events)[5:] == closing
        assert events[-2]["code"] == "server_restarted"
        assert text_of(await two.stored.retrieve(ANONYMOUS, response_id)) == "Hel"
        assert model.generations == []
        for process in (one, two):
            await process.worker.drain(0, keeps=True)


@in_a_loop
async def test_who_was_taken_for_dead_writes_nothing_any_more():
    clock, gate = Clock(), asyncio.Event()
    async with opened(clock) as store:
        one = Process(store, SaidModel(gate, TextDelta("from one"), STOP))
        response_id = await one.create()
        clock.now += 11
        two = Process(store, SaidModel(TextDelta("from two"), STOP), name="two")
        two.worker.start()
        await two.events(response_id)
        gate.set()
        # Its reader goes on with what the other wrote.
        events = await one.events(response_id)
        assert text_of(events[-1]["response"]) == "from two"
        assert "from one" not in str(events)
        for process in (one, two):
            await process.worker.drain(0, keeps=True)


# Cancelling


@in_a_loop
async def test_what_is_cancelled_while_it_waits_is_never_made():
    async with opened() as store:
        model = SaidModel(STOP)
        one = Process(store, model)
        response_id = await one.create(background=True)
        model.generations.clear()
        answer = await one.stored.cancel(ANONYMOUS, response_id)
        assert answer["status"] == "cancelled"
        one.worker.start()
        events = await one.events(response_id)
        assert types(events) == ["created", "queued", "error"]
        assert events[-1]["code"] == "response_cancelled"
        assert model.generations == []
        await one.worker.drain(0, keeps=True)


@in_a_loop
async def test_a_running_response_is_cancelled_from_another_process():
    async with opened() as store:
        model = SaidModel(TextDelta("Hel"), asyncio.Event())
        one, two = Process(store, model), Process(store, name="two")
        one.worker.start()
        response_id = await one.create()
        answer = await two.stored.cancel(ANONYMOUS, response_id)
        assert answer["status"] == "cancelled" and model.generations[0].ended.is_set()
        assert types(await two.events(response_id))[-1] == "error"
        assert await two.stored.cancel(ANONYMOUS, response_id) == answer
        await one.worker.drain(0, keeps=True)


@in_a_loop
async def test_nothing_is_called_cancelled_before_the_model_has_let_go():
    released = asyncio.Event()

    class Slow(SaidModel):
        async def prepare(self, turn: Any) -> Any:
            generation = await super().prepare(turn)
            generation.released = released.wait  # type: ignore[method-assign]
            return generation

    async with opened() as store:
        one = Process(store, Slow(TextDelta("a"), asyncio.Event()), cancel_wait_seconds=0.05)
        one.worker.start()
        response_id = await one.create()
        assert (await one.stored.cancel(ANONYMOUS, response_id))["status"] == "in_progress"
        released.set()
        assert types(await one.events(response_id))[-1] == "error"
        assert await one.status(response_id) == "cancelled"
        await one.worker.drain(0, keeps=True)


# Shutting down


@in_a_loop
async def test_a_drain_leaves_what_has_no_output_to_others_at_once():
    async with opened() as store:
        one = Process(store, SaidModel(asyncio.Event()))
        response_id = await one.create()
        assert await one.worker.drain(0, keeps=True)
        two = Process(store, SaidModel(TextDelta("Hello"), STOP), name="two")
        two.worker.start()
        assert types(await two.events(response_id))[-1] == "completed"
        await two.worker.drain(0, keeps=True)


@in_a_loop
async def test_a_drain_ends_what_had_output():
    async with opened() as store:
        one = Process(store, SaidModel(TextDelta("Hel"), asyncio.Event()))
        response_id = await one.create()
        reading = await one.stored.tail(ANONYMOUS, response_id, None)
        number = 0
        while number < 5:
            number += len(await reading.tail.frames_from(number))
        assert await one.worker.drain(0, keeps=True)
        assert (await one.events(response_id))[-2]["code"] == "server_restarted"


@in_a_loop
async def test_a_drain_cancels_all_where_nothing_outlives_the_process():
    async with opened() as store:
        one = Process(store, SaidModel(asyncio.Event()))
        response_id = await one.create()
        assert await one.worker.drain(0, keeps=False)
        assert await one.status(response_id) == "cancelled"


@in_a_loop
async def test_a_model_that_does_not_let_go_is_told_of():
    class Stuck(SaidModel):
        async def prepare(self, turn: Any) -> Any:
            generation = await super().prepare(turn)
            generation.released = asyncio.Event().wait  # type: ignore[method-assign]
            return generation

    async with opened() as store:
        one = Process(store, Stuck(asyncio.Event()), lease_seconds=0.05)
        await one.create()
        assert not await one.worker.drain(0, keeps=True)
