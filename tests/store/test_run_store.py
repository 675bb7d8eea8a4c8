"""Runs: who has the lease, what is written under it, and how it ends. On every database."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, text, update

from antiphon.principal import Principal
from antiphon.store import schema
from antiphon.store.blobs import open_blobs
from antiphon.store.build import SqlStore, open_store
from antiphon.store.claims import Wanted, claim
from antiphon.store.database import Database
from antiphon.store.failures import ConversationBusy, Corrupt, NotFound
from antiphon.store.keyring import MasterKeyFile
from antiphon.store.records import Append, EventPage, Lease, NewResponse, Run, StoreLimits
from antiphon.store.sealing import AesSealer, PlainSealer

ME = Principal("me")
OTHER = Principal("other")
LIMITS = StoreLimits(
    max_active_background=100,
    max_active_background_per_owner=100,
    lease_seconds=10.0,
    retention_seconds=1000.0,
    event_log_seconds=100.0,
)
HELLO = {"id": "msg_in", "type": "message", "role": "user", "content": "hello"}
ANSWER = {"id": "msg_out", "type": "message", "role": "assistant", "content": "hi"}


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Process = Callable[..., SqlStore]


@pytest.fixture
def process(clock: Clock) -> Iterator[Process]:
    """Opens stores, each of which stands for a process: `process(url, limits=..., ...)`."""
    with ExitStack() as stack:

        def open_one(url: str, **options: Any) -> SqlStore:
            options = {"limits": LIMITS, "sealer": PlainSealer(), "blobs": None} | options
            store = open_store(url, clock=clock, **options)
            stack.callback(store.close)
            return store

        yield open_one


def response(number: int = 1, **fields: Any) -> Any:
    return {
        "id": f"resp_{number}",
        "status": "queued",
        "model": "m",
        "previous_response_id": None,
        "background": True,
        "error": None,
        "output": [],
        **fields,
    }


async def accept(
    store: SqlStore,
    number: int = 1,
    *,
    worker: str | None = "w1",
    principal: Principal = ME,
    items: Sequence[Any] = (HELLO,),
    conversation: str | None = None,
    background: bool = True,
    **fields: Any,
) -> Any:
    """The lease on a new response, None without a worker."""
    accepted = await store.responses.create(
        principal,
        NewResponse(
            response(number, background=background, **fields),
            items,
            {"model": "m", "n": number},
            worker,
            conversation=conversation,
            background=background,
        ),
    )
    return accepted.lease


def frames(*texts: str) -> list[bytes]:
    return [f"event: {text}\n\n".encode() for text in texts]


async def append(store: SqlStore, lease: Lease, first: int, *texts: str, **options: Any) -> bool:
    """Whether events were appended."""
    lost = await store.runs.append([Append(lease, first, frames(*texts), **options)])
    assert lost in ([], [lease])
    return not lost


async def events(store: SqlStore, number: int = 0, id: str = "resp_1", **options: Any) -> EventPage:
    return await store.responses.events(ME, id, number, **options)


async def claimed(store: SqlStore, worker: str, models: Sequence[str] | None = None) -> Run:
    run = await store.runs.claim(worker, models)
    assert run is not None
    return run


def run_flow(flow: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(flow())


# --- appending ---


def test_events_are_read_as_they_were_appended(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        assert await append(store, lease, 0, "a", "b")
        assert await append(store, lease, 2, "c", published=True)
        assert await events(store) == EventPage(0, frames("a", "b", "c"), ended=False)
        assert await events(store, 1, limit=1) == EventPage(1, frames("b"), ended=False)
        assert await events(store, 3) == EventPage(3, [], ended=False)
        assert await events(store, 9) == EventPage(9, [], ended=False)
        record = await store.responses.retrieve(ME, "resp_1")
        assert record.response["status"] == "in_progress"
        assert (record.first_event, record.next_event) == (0, 3)
        assert (store.counters.events, store.counters.event_bytes) == (3, 30)

    run_flow(flow)


def test_strangers_see_no_events(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        await accept(store, 2, principal=OTHER)
        await append(store, lease, 0, "a")
        with pytest.raises(NotFound):
            await store.responses.events(OTHER, "resp_1", 0)

    run_flow(flow)


def test_a_batch_is_of_many_runs_and_owners(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        leases = [await accept(store, n, principal=(ME, OTHER)[n % 2]) for n in range(6)]
        gone = Lease("resp_0", leases[0].key, leases[0].owner, leases[0].fence + 1)
        batch = [Append(lease, 0, frames(lease.response_id)) for lease in reversed(leases)]
        assert await store.runs.append([*batch, Append(gone, 1, frames("x"))]) == [gone]
        for lease in leases:
            page = await store.responses.events(lease.owner, lease.response_id, 0)
            assert page.frames == frames(lease.response_id)
        assert await store.runs.append([]) == []

    run_flow(flow)


def test_a_batch_is_committed_whole_or_not_at_all(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        first, second = await accept(store, 1), await accept(store, 2)
        broken: Any = {"id": "resp_2", "status": "completed", "output": [{"content": object()}]}
        with pytest.raises(TypeError):
            await store.runs.append(
                [Append(first, 0, frames("a")), Append(second, 0, frames("b"), end=broken)]
            )
        assert (await events(store)).frames == []
        assert await append(store, first, 0, "a")

    run_flow(flow)


def test_events_come_in_order_or_not_at_all(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        assert await append(store, lease, 0, "a")
        assert not await append(store, lease, 0, "a")
        assert not await append(store, lease, 2, "c")
        assert (await events(store)).frames == frames("a")

    run_flow(flow)


def test_the_oldest_events_go_when_there_are_too_many(store_url: str, process: Process):
    limits = StoreLimits(events_per_run=32)
    store = process(store_url, limits=limits)

    async def flow() -> None:
        lease = await accept(store, background=False)
        for number in range(100):
            assert await append(store, lease, number, str(number))
            page = await events(store, limit=1000)
            assert page.first + len(page.frames) == number + 1
            assert min(number + 1, 32) <= len(page.frames) <= 34
        assert page.frames == frames(*map(str, range(page.first, 100)))
        assert (await store.responses.retrieve(ME, "resp_1")).first_event == page.first > 60

    run_flow(flow)


def test_the_oldest_events_go_when_they_are_too_many_bytes(store_url: str, process: Process):
    store = process(store_url, limits=StoreLimits(event_bytes_per_run=1600))

    async def flow() -> None:
        lease = await accept(store, background=False)
        for number in range(40):
            assert await append(store, lease, number, "x" * 91)  # 100 bytes.
            page = await events(store)
            assert min(number + 1, 16) <= len(page.frames) <= 17
        assert await append(store, lease, 40, "y" * 1591)
        assert (await events(store)).first == 40
        size = select(schema.responses.c.event_bytes)
        assert await store.shared.db.read(lambda connection: connection.scalar(size)) == 1600

    run_flow(flow)


def test_the_oldest_of_events_that_came_together_go_alone(store_url: str, process: Process):
    store = process(store_url, limits=StoreLimits(events_per_run=32))

    async def flow() -> None:
        lease = await accept(store, background=False)
        for number in range(0, 100, 5):
            assert await append(store, lease, number, *map(str, range(number, number + 5)))
            page = await events(store, limit=1000)
            assert page.frames == frames(*map(str, range(page.first, number + 5)))
            assert min(number + 5, 32) <= len(page.frames) <= 34
        record = await store.responses.retrieve(ME, "resp_1")
        assert record.first_event == page.first == 68
        # What is gone is gone from the table, too, but for what shares a row with what is kept.
        first = select(func.min(schema.events.c.number))
        assert await store.shared.db.read(lambda connection: connection.scalar(first)) == 65

    run_flow(flow)


@pytest.mark.parametrize("size", [1, 6000, 40_000])
def test_events_that_came_together_are_read_from_any_of_them(
    store_url: str, process: Process, size: int
):
    store = process(store_url)
    texts = [f"{number} " + "x" * size for number in range(7)]

    async def flow() -> None:
        lease = await accept(store)
        await append(store, lease, 0, *texts[:1])
        await append(store, lease, 1, *texts[1:6], published=True)
        await append(store, lease, 6, *texts[6:], end=final())
        for begin in range(7):
            for limit in (1, 2, 500):
                page = await events(store, begin, limit=limit)
                assert page.frames == frames(*texts[begin : begin + limit])
                assert (page.first, page.ended) == (begin, begin + limit >= 7)

    run_flow(flow)


def test_a_missing_event_is_no_end(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        for number in range(3):
            await append(store, lease, number, "a")
        await store.shared.db.write(
            lambda connection: connection.execute(
                text("DELETE FROM events WHERE number = 1")
            ).close()
        )
        with pytest.raises(Corrupt, match="resp_1:1"):
            await events(store)

    run_flow(flow)


def test_appended_events_wake_their_readers(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        waiter = store.signals.waiter("resp_1")
        await append(store, lease, 0, "a")
        await asyncio.wait_for(waiter, 10)

    run_flow(flow)


# --- ends ---


def final(number: int = 1, status: str = "completed", **fields: Any) -> Any:
    return response(number, **{"status": status, "output": [ANSWER], **fields})


def test_the_end_is_the_response_with_its_output(store_url: str, process: Process, clock: Clock):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        assert await append(store, lease, 0, "a", end=final())
        record = await store.responses.retrieve(ME, "resp_1")
        assert record.response == final()
        assert not record.active
        assert await events(store) == EventPage(0, frames("a"), ended=True)
        assert (await events(store, limit=0)).ended is False
        assert (await events(store, 1)).ended is True
        history = await store.responses.history(ME, "resp_1")
        assert list(history.items) == [HELLO, ANSWER]
        row = await store.shared.db.read(
            lambda connection: connection.execute(select(schema.responses)).one()
        )
        assert (row.request, row.worker, row.lease_until) == (None, None, None)
        assert (row.ended_at, row.expires_at) == (clock.now, clock.now + 1000)
        assert row.log_until == clock.now + 100

    run_flow(flow)


def test_nothing_follows_the_end(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        assert await append(store, lease, 0, "a", end=final())
        assert not await append(store, lease, 1, "b")
        assert not await append(store, lease, 1, end=final(status="failed"))
        assert (await store.responses.retrieve(ME, "resp_1")).response["status"] == "completed"
        assert (await events(store)).frames == frames("a")

    run_flow(flow)


def test_an_end_may_come_without_events(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        await append(store, lease, 0, "a")
        assert await append(store, lease, 1, end=final())
        assert (await events(store)).ended

    run_flow(flow)


def test_the_owner_is_charged_for_the_output(store_url: str, process: Process):
    store = process(store_url)

    async def charged() -> tuple[int, int]:
        def work(connection: Any) -> tuple[int, int]:
            size = connection.scalar(select(schema.responses.c.size))
            return connection.scalar(select(schema.owners.c.num_bytes)), size

        return await store.shared.db.read(work)

    async def flow() -> None:
        lease = await accept(store)
        before = await charged()
        large = {**ANSWER, "content": "x" * 1000}
        await append(store, lease, 0, "a", end=final(output=[large]))
        after = await charged()
        assert after[0] == after[1]
        assert 1000 < after[0] - before[0] < 1200
        assert await store.responses.history_bytes(ME, "resp_1") > 1000

    run_flow(flow)


def test_large_output_goes_to_the_blobs(store_url: str, process: Process):
    store = process(store_url, blobs=open_blobs("memory:"))

    async def flow() -> None:
        mine, others = await accept(store, 1), await accept(store, 2, principal=OTHER)
        large = {**ANSWER, "content": "x" * 100_000}
        batch = [
            Append(mine, 0, frames("a"), end=final(1, output=[large])),
            Append(others, 0, frames("b"), end=final(2, output=[large])),
        ]
        assert await store.runs.append(batch) == []
        for principal, id in ((ME, "resp_1"), (OTHER, "resp_2")):
            record = await store.responses.retrieve(principal, id)
            assert record.response["output"] == [large]
        assert (await store.stats()).blobs == 2
        assert store.counters.events == 2

    run_flow(flow)


@pytest.mark.parametrize(
    ("status", "items"), [("completed", [HELLO, ANSWER]), ("failed", []), ("cancelled", [])]
)
def test_a_conversation_goes_on_from_a_turn_that_ended_well(
    store_url: str, process: Process, status: str, items: list[Any]
):
    store = process(store_url)

    async def flow() -> None:
        conversation = await store.conversations.create(ME, {}, [])
        lease = await accept(store, conversation=conversation.id)
        with pytest.raises(ConversationBusy):
            await store.conversations.history(ME, conversation.id)
        await append(store, lease, 0, "a", end=final(status=status))
        history = await store.conversations.history(ME, conversation.id)
        assert list(history.items) == items
        # And it does go on, whatever an ended turn has left behind.
        again = await accept(store, 2, conversation=conversation.id, items=[])
        second = {**ANSWER, "id": "msg_2"}
        await append(store, again, 0, "a", end=final(2, output=[second]))
        history = await store.conversations.history(ME, conversation.id)
        assert list(history.items) == [*items, second]
        assert list((await store.responses.history(ME, "resp_2")).items) == [*items, second]

    run_flow(flow)


def test_the_end_of_a_background_run_is_announced(store_url: str, process: Process):
    store = process(store_url, announce_webhooks=True)

    async def flow() -> None:
        told = store.signals.waiter("delivery")
        foreground = await accept(store, 1, background=False)
        await append(store, foreground, 0, "a", end=final(1, background=False))
        assert not await store.deliveries.due(9)
        background = await accept(store, 2)
        await append(store, background, 0, "a", end=final(2, status="incomplete"))
        await asyncio.wait_for(told, 10)
        (delivery,) = await store.deliveries.due(9)
        assert (delivery.type, delivery.response_id) == ("response.incomplete", "resp_2")
        assert delivery.id.startswith("evt_")
        assert delivery.created_at == 1_000_000

    run_flow(flow)


def test_no_end_is_announced_unless_somebody_listens(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        await append(store, await accept(store), 0, "a", end=final())
        assert not await store.deliveries.due(9)

    run_flow(flow)


def test_only_what_must_be_is_synced_to_disk(store_url: str, process: Process, monkeypatch):
    store = process(store_url)
    asked: list[bool] = []
    write = Database.write

    async def watched(self: Database, work: Any, *, durable: bool = False) -> Any:
        asked.append(durable)
        return await write(self, work, durable=durable)

    async def flow() -> None:
        lease = await accept(store)
        monkeypatch.setattr(Database, "write", watched)
        await append(store, lease, 0, "a")
        await append(store, lease, 1, "b", durable=True)
        await append(store, lease, 2, "c", end=final())

    run_flow(flow)
    assert asked == [False, True, True]


# --- leases ---


def test_a_queued_run_is_claimed_with_all_that_it_needs(
    store_url: str, process: Process, clock: Clock
):
    store = process(store_url)

    async def flow() -> None:
        first = await accept(store, 1)
        await append(store, first, 0, "a", end=final(1))
        told = store.signals.waiter("queue")
        more = {**HELLO, "id": "msg_more"}
        assert (
            await accept(store, 2, worker=None, items=[more], previous_response_id="resp_1") is None
        )
        await asyncio.wait_for(told, 10)
        run = await claimed(store, "w2", ["other", "m"])
        assert run.lease.response_id == "resp_2"
        assert run.lease.owner == ME
        assert run.response == response(2, previous_response_id="resp_1")
        assert run.request == {"model": "m", "n": 2}
        assert list(run.history.items) == [HELLO, ANSWER]
        assert run.history.depth == 1
        assert list(run.items) == [more]
        assert (run.first_event, run.next_event, run.frames) == (0, 0, [])
        assert not run.published and not run.cancel_requested
        assert run.created_at == clock.now
        assert store.counters.takeovers == 0
        assert await store.runs.claim("w3", None) is None
        assert await append(store, run.lease, 0, "x")

    run_flow(flow)


def test_nobody_takes_over_a_run_of_its_own(shared_url: str, process: Process, clock: Clock):
    store = process(shared_url)

    async def flow() -> None:
        lease = await accept(store, 1, background=False)
        clock.now += 100  # The machine slept.
        assert await store.runs.claim("w", None, [lease]) is None
        assert await append(store, lease, 0, "a")
        clock.now += 100
        assert await store.runs.claim("w", None, []) is not None

    run_flow(flow)


def test_the_longest_wait_comes_first(store_url: str, process: Process, clock: Clock):
    store = process(store_url)

    async def flow() -> list[str]:
        for number in (3, 1, 2):
            await accept(store, number, worker=None)
            clock.now += 1
        return [(await claimed(store, "w")).lease.response_id for _ in range(3)]

    assert asyncio.run(flow()) == ["resp_3", "resp_1", "resp_2"]


def test_a_run_waits_for_a_worker_that_has_its_model(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        await accept(store, 1, worker=None, model="big")
        await accept(store, 2, worker=None, model="small")
        assert await store.runs.claim("w", []) is None
        assert (await claimed(store, "w", ["small"])).lease.response_id == "resp_2"
        assert await store.runs.claim("w", ["small"]) is None
        assert (await claimed(store, "w", ["big", "small"])).lease.response_id == "resp_1"

    run_flow(flow)


def test_a_run_whose_worker_is_gone_is_taken_over(shared_url: str, process: Process, clock: Clock):
    old, new = process(shared_url), process(shared_url)

    async def flow() -> None:
        lease = await accept(old, 1, background=False)
        await append(old, lease, 0, "a", "b")
        clock.now += 9.9
        assert await new.runs.claim("w2", None) is None
        clock.now += 0.2
        run = await claimed(new, "w2")
        assert run.frames == frames("a", "b")
        assert run.next_event == 2
        assert run.response["status"] == "in_progress"
        assert not run.published
        assert new.counters.takeovers == 1
        # Whoever thought to have it writes no more.
        assert not await append(old, lease, 2, "from the grave")
        assert not await append(old, lease, 2, end=final())
        assert await append(new, run.lease, 2, "c")
        assert (await events(old)).frames == frames("a", "b", "c")

    run_flow(flow)


def test_what_has_published_is_taken_over_whatever_the_model(
    store_url: str, process: Process, clock: Clock
):
    store = process(store_url)

    async def flow() -> None:
        await append(store, await accept(store, 1), 0, "a")
        await append(store, await accept(store, 2), 0, "a", published=True)
        clock.now += 60
        run = await claimed(store, "w2", ["other"])
        assert (run.lease.response_id, run.published) == ("resp_2", True)
        assert await store.runs.claim("w2", ["other"]) is None

    run_flow(flow)


def test_appending_prolongs_the_lease(store_url: str, process: Process, clock: Clock):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        for number in range(5):
            clock.now += 8
            assert await append(store, lease, number, "a")
            assert await store.runs.claim("w2", None) is None

    run_flow(flow)


def test_a_heartbeat_prolongs_leases_and_tells_of_cancelled_and_lost_ones(
    store_url: str, process: Process, clock: Clock
):
    store = process(store_url)

    async def flow() -> None:
        kept, wanted, lost, ended, foreign = [await accept(store, n) for n in range(1, 6)]
        await store.responses.request_cancel(ME, "resp_2")
        await append(store, ended, 0, "a", end=final(4))
        leases = [kept, wanted, lost, ended]
        beat = await store.runs.heartbeat("w1", leases)
        assert (list(beat.cancelled), list(beat.lost)) == (["resp_2"], [])
        clock.now += 11
        assert (await claimed(store, "w2")).lease.response_id == "resp_1"
        assert (await claimed(store, "w2")).lease.response_id == "resp_2"
        beat = await store.runs.heartbeat("w1", leases)
        assert (list(beat.cancelled), list(beat.lost)) == ([], ["resp_1", "resp_2"])
        # Late, but in time for this one; the one that it did not name is free.
        assert (await claimed(store, "w2")).lease == Lease(
            "resp_5", foreign.key, ME, foreign.fence + 1
        )
        assert await store.runs.claim("w2", None) is None
        assert (await store.runs.heartbeat("w1", [])).lost == ()

    run_flow(flow)


def test_a_heartbeat_is_for_thousands_of_leases(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        gone = [Lease(f"resp_x{n}", 1000 + n, ME, 1) for n in range(1200)]
        beat = await store.runs.heartbeat("w1", [*gone, lease])
        assert list(beat.lost) == [one.response_id for one in gone]

    run_flow(flow)


def test_what_is_released_may_be_taken_at_once(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        lease = await accept(store)
        await append(store, lease, 0, "a")
        told = store.signals.waiter("queue")
        await store.runs.release(lease)
        await asyncio.wait_for(told, 10)
        assert not await append(store, lease, 1, "b")
        run = await claimed(store, "w2")
        assert run.frames == frames("a")
        assert store.counters.takeovers == 0
        await store.runs.release(lease)  # Nothing happens.
        assert await append(store, run.lease, 1, "b")

    run_flow(flow)


def test_a_queued_run_is_claimed_by_its_id(store_url: str, process: Process):
    store = process(store_url)

    async def flow() -> None:
        await accept(store, 1, worker=None)
        await accept(store, 2, worker=None)
        assert await store.runs.claim_queued("w1", "resp_9") is None
        assert await store.runs.claim_queued("w1", "no\0thing") is None
        await store.responses.request_cancel(ME, "resp_2")
        run = await store.runs.claim_queued("w1", "resp_2")
        assert run is not None
        assert run.cancel_requested
        assert await store.runs.claim_queued("w1", "resp_2") is None
        assert (await claimed(store, "w2")).lease.response_id == "resp_1"
        await append(store, run.lease, 0, "a", end=final(2, status="cancelled", output=[]))
        assert (await store.responses.retrieve(ME, "resp_2")).response["status"] == "cancelled"

    run_flow(flow)


def test_what_has_begun_is_not_claimed_as_queued(store_url: str, process: Process, clock: Clock):
    store = process(store_url)

    async def flow() -> None:
        await append(store, await accept(store), 0, "a")
        clock.now += 60
        assert await store.runs.claim_queued("w1", "resp_1") is None

    run_flow(flow)


def test_each_run_is_claimed_once_however_many_ask(shared_url: str, process: Process):
    stores = [process(shared_url), process(shared_url)]

    async def take_all(store: SqlStore, worker: str) -> list[str]:
        taken = []
        while run := await store.runs.claim(worker, None):
            taken.append(run.lease.response_id)
        return taken

    async def flow() -> list[str]:
        for number in range(50):
            await accept(stores[0], number, worker=None)
        taken = await asyncio.gather(
            *(take_all(store, f"w{number}") for number, store in enumerate(stores * 2))
        )
        return [id for ids in taken for id in ids]

    taken = asyncio.run(flow())
    assert len(taken) == 50
    assert set(taken) == {f"resp_{number}" for number in range(50)}


def test_appends_of_two_processes_do_not_block_one_another_for_long(
    shared_url: str, process: Process
):
    stores = [process(shared_url), process(shared_url)]

    async def write_all(store: SqlStore, offset: int) -> None:
        leases = [await accept(store, offset + n, principal=(ME, OTHER)[n % 2]) for n in range(8)]
        for number in range(10):
            batch = [Append(lease, number, frames("a")) for lease in leases]
            assert await store.runs.append(batch) == []
        ends = [
            Append(
                lease, 10, (), end=final(offset + n, output=[{**ANSWER, "id": f"m{offset + n}"}])
            )
            for n, lease in enumerate(leases)
        ]
        assert await store.runs.append(ends) == []

    async def flow() -> None:
        await asyncio.wait_for(
            asyncio.gather(write_all(stores[0], 0), write_all(stores[1], 100)), 30
        )
        stats = await stores[0].stats()
        assert (stats.responses, stats.running, stats.events) == (16, 0, 160)

    run_flow(flow)


def test_a_run_that_cannot_be_read_keeps_nobody_waiting(
    store_url: str, process: Process, clock: Clock
):
    store = process(store_url)

    async def damage() -> None:
        change = update(schema.responses).where(schema.responses.c.id == "resp_1")
        await store.shared.db.write(
            lambda connection: connection.execute(change.values(request=b"\0damaged")).close()
        )

    async def flow() -> None:
        await accept(store, 1, worker=None)
        await accept(store, 2, worker=None)
        await damage()
        assert (await claimed(store, "w")).lease.response_id == "resp_2"
        assert await store.runs.claim("w", None) is None
        assert (await store.responses.retrieve(ME, "resp_1")).active
        # The right keys were not found in time.
        clock.now += 3601
        assert (await claimed(store, "w")).lease.response_id == "resp_2"
        record = await store.responses.retrieve(ME, "resp_1")
        assert record.response["status"] == "failed"
        assert (await events(store)).ended

    run_flow(flow)


def test_looking_for_work_does_not_pass_all_that_ever_ended(tmp_path: Path, process: Process):
    store = process(f"sqlite:///{tmp_path / 'a.db'}")

    def plan(connection: Connection) -> list[str]:
        driver: Any = connection.connection.dbapi_connection
        asked: list[str] = []
        driver.set_trace_callback(asked.append)
        claim(store.shared, "w", Wanted(models=["m"]), connection)
        driver.set_trace_callback(None)
        (query,) = (sql for sql in asked if sql.startswith("SELECT"))
        return [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {query}")]

    steps = asyncio.run(store.shared.db.write(plan))
    assert any("ix_responses_status_lease_until" in step for step in steps), steps
    assert not any(step.startswith("SCAN responses") for step in steps), steps


def test_a_claim_lasts_from_one_process_to_the_next(shared_url: str, process: Process):
    first, second = process(shared_url), process(shared_url)

    async def flow() -> None:
        await accept(first, worker=None)
        waiter = first.signals.waiter("resp_1")
        run = await claimed(second, "w2")
        await append(second, run.lease, 0, "a", end=final())
        await asyncio.wait_for(waiter, 10)
        page = await events(first)
        assert page.ended and page.frames == frames("a")
        count = select(func.count()).select_from(schema.events)
        assert await first.shared.db.read(lambda connection: connection.scalar(count)) == 1

    run_flow(flow)


def test_request_and_frames_are_sealed(tmp_path: Path, process: Process):
    ring = MasterKeyFile(tmp_path / "ring.toml")
    ring.create()
    store = process(f"sqlite:///{tmp_path / 'a.db'}", sealer=AesSealer(ring.read()))

    async def flow() -> None:
        lease = await accept(store)
        await append(
            store, lease, 0, "very secret", end=final(output=[{**ANSWER, "content": "secret"}])
        )
        assert (await events(store)).frames == frames("very secret")
        await store.shared.db.checkpoint()

    run_flow(flow)
    written = b"".join(file.read_bytes() for file in tmp_path.glob("a.db*"))
    assert b"secret" not in written and b"hello" not in written


def test_a_run_from_before_there_was_encryption_ends_encrypted(tmp_path: Path, process: Process):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    ring = MasterKeyFile(tmp_path / "ring.toml")
    ring.create()
    before, after = process(url), process(url, sealer=AesSealer(ring.read()))

    async def flow() -> None:
        lease = await accept(before)
        assert await append(after, lease, 0, "a")
        said = [{**ANSWER, "content": "secret"}]
        assert await append(after, lease, 1, "b", end=final(output=said))
        record = await after.responses.retrieve(ME, "resp_1")
        assert record.response["output"] == said
        await after.shared.db.checkpoint()

    run_flow(flow)
    assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.glob("a.db*"))
