"""Logs that are stored: who gets what when, and what happens if it cannot be stored."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from said import in_a_loop
from writing import STOP, USAGE, as_read, asked, types

from antiphon.errors import ServerError
from antiphon.principal import ANONYMOUS
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.journal import Journal, StoredLog
from antiphon.responses.log import EventsGone, read_frame
from antiphon.spec import packaged_contract
from antiphon.store.failures import LeaseLost, StoreUnavailable
from antiphon.store.records import Append, Lease
from antiphon.turn import TextDelta


class Commits:
    """Stands for the store: a commit ends when the test lets it. `lost` are leases it refuses."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Append]] = []
        self.lost: list[Lease] = []
        self.failing: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.begun = asyncio.Event()

    async def append(self, batch: Sequence[Append]) -> Sequence[Lease]:
        self.batches.append(batch)
        self.begun.set()
        await self.open.wait()
        if self.failing is not None:
            raise self.failing
        return [entry.lease for entry in batch if entry.lease in self.lost]

    def numbers(self, lease: Lease) -> list[int]:
        """The numbers of all events that were to be committed under a lease."""
        return [
            entry.first + place
            for batch in self.batches
            for entry in batch
            if entry.lease == lease
            for place in range(len(entry.frames))
        ]


def journal_of(commits: Any, **limits: Any) -> Journal:
    limits = {"events_per_run": 1000, "event_bytes_per_run": 10**6, **limits}
    return Journal(commits, packaged_contract(), **limits)


def lease(number: int = 1) -> Lease:
    return Lease(f"resp_{number}", number, ANONYMOUS, 1)


def begun(journal: Journal, number: int = 1) -> tuple[StoredLog, ResponseBuilder]:
    """A log whose first two events are stored with its response."""
    log = journal.new_log()
    builder = ResponseBuilder(asked({"input": "hi"}).response(), log)
    builder.start()
    log.attach(lease(number))
    return log, builder


@in_a_loop
async def test_the_first_events_are_there_once_the_response_is_stored():
    log = journal_of(Commits()).new_log()
    ResponseBuilder(asked({"input": "hi"}).response(), log).start()
    reading = asyncio.create_task(log.frames_from(0))
    await asyncio.sleep(0)
    assert not reading.done() and len(log.frames) == 2
    log.attach(lease())
    assert len(await reading) == 2


@in_a_loop
async def test_readers_get_nothing_before_it_is_committed():
    commits = Commits()
    log, builder = begun(journal_of(commits))
    commits.open.clear()
    builder.feed(TextDelta("a"))
    reading = asyncio.create_task(log.frames_from(2))
    await commits.begun.wait()
    assert not reading.done()
    commits.open.set()
    assert [read_frame(frame)["sequence_number"] for frame in await reading] == [2, 3, 4]


@in_a_loop
async def test_what_comes_in_during_a_commit_goes_into_the_next_one():
    commits = Commits()
    log, builder = begun(journal_of(commits))
    commits.open.clear()
    builder.feed(TextDelta("a"))
    await commits.begun.wait()
    for text in "bcd":
        builder.feed(TextDelta(text))
    commits.open.set()
    await log.end(builder.response)
    assert [len(batch[0].frames) for batch in commits.batches] == [3, 3]
    assert commits.numbers(lease()) == list(range(2, 8))


@in_a_loop
async def test_what_comes_after_a_commit_waits_for_more_but_not_for_ever():
    commits = Commits()
    log, builder = begun(journal_of(commits, pause_seconds=0.01))
    builder.feed(TextDelta("a"))
    await log.frames_from(2)
    for text in "bc":
        builder.feed(TextDelta(text))
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(commits.batches) == 1
    assert len(await log.frames_from(5)) == 2
    assert [len(batch[0].frames) for batch in commits.batches] == [3, 2]


@in_a_loop
async def test_an_end_waits_for_nothing():
    commits = Commits()
    log, builder = begun(journal_of(commits, pause_seconds=3600))
    builder.feed(TextDelta("a"))
    await log.frames_from(2)
    builder.feed(TextDelta("b"))
    await log.end(builder.response)
    assert [len(batch[0].frames) for batch in commits.batches] == [3, 1]


@in_a_loop
async def test_an_end_that_comes_during_a_commit_waits_for_that_alone():
    commits = Commits()
    log, builder = begun(journal_of(commits, pause_seconds=3600))
    commits.open.clear()
    builder.feed(TextDelta("a"))
    await commits.begun.wait()
    ending = asyncio.create_task(log.end(builder.response))
    await asyncio.sleep(0)
    commits.open.set()
    await ending
    assert [batch[0].end is not None for batch in commits.batches] == [False, True]


@in_a_loop
async def test_runs_that_write_at_the_same_moment_share_a_commit():
    commits = Commits()
    journal = journal_of(commits)
    builders = [begun(journal, number)[1] for number in range(5)]
    for builder in builders:
        builder.feed(TextDelta("a"))
    await commits.begun.wait()
    assert [len(batch) for batch in commits.batches] == [5]


@in_a_loop
async def test_the_end_is_committed_with_the_last_events_and_to_disk():
    commits = Commits()
    log, builder = begun(journal_of(commits))
    builder.feed(TextDelta("a"))
    builder.finish(STOP, USAGE)
    await log.end(builder.response)
    (entry,) = commits.batches[-1]
    assert entry.end == builder.response and entry.end["status"] == "completed"
    assert entry.durable and entry.published
    assert log.told_end


@in_a_loop
async def test_states_alone_are_no_output():
    commits = Commits()
    log, builder = begun(journal_of(commits))
    builder.keep_alive()
    await log.end(builder.response)
    assert not commits.batches[0][0].published and not log.has_output


@in_a_loop
async def test_whole_items_are_on_disk_and_deltas_need_not_be():
    commits = Commits()
    log, builder = begun(journal_of(commits))
    builder.feed(TextDelta("a"))
    await log.frames_from(4)
    builder.finish(STOP, USAGE)
    await log.end(builder.response)
    assert [batch[0].durable for batch in commits.batches] == [False, True]


@in_a_loop
async def test_a_failing_store_is_told_once_and_nothing_of_it_is_seen():
    commits = Commits()
    commits.failing = StoreUnavailable("disk full")
    log, builder = begun(journal_of(commits))
    told: list[Exception] = []
    failed = asyncio.Event()

    def on_failure(error: Exception) -> None:
        told.append(error)
        failed.set()

    log.on_failure = on_failure
    builder.feed(TextDelta("a"))
    await failed.wait()
    builder.feed(TextDelta("b"))
    with pytest.raises(StoreUnavailable):
        await log.end(builder.response)
    assert len(told) == 1 and len(commits.batches) == 1
    log.detach()
    assert types(as_read(log)) == ["created", "in_progress"]


@in_a_loop
async def test_what_is_written_after_a_failure_is_told_though_not_stored():
    commits = Commits()
    commits.failing = StoreUnavailable("disk full")
    log, builder = begun(journal_of(commits))
    builder.feed(TextDelta("a"))
    with pytest.raises(StoreUnavailable):
        await log.end(builder.response)
    log.detach()
    ResponseBuilder(asked({"input": "hi"}).response(), log).fail(ServerError("no"), USAGE)
    events = [read_frame(frame) for frame in await log.frames_from(2)]
    assert [event["type"] for event in events] == ["error", "response.failed"]
    assert log.told_end


@in_a_loop
async def test_who_lost_a_lease_is_told_and_the_others_go_on():
    commits = Commits()
    journal = journal_of(commits)
    (lost, first), (kept, second) = begun(journal, 1), begun(journal, 2)
    commits.lost.append(lease(1))
    first.feed(TextDelta("a"))
    second.feed(TextDelta("a"))
    assert len(await kept.frames_from(2)) == 3
    with pytest.raises(LeaseLost):
        await lost.end(first.response)
    assert not lost.told_end


@in_a_loop
async def test_the_oldest_events_go_once_there_are_too_many():
    commits = Commits()
    log, builder = begun(journal_of(commits, events_per_run=32))
    for number in range(200):
        builder.feed(TextDelta(str(number)))
        await log.frames_from(log.next_number - 1)
    assert 32 <= len(log.frames) <= 34
    with pytest.raises(EventsGone) as gone:
        await log.frames_from(0)
    (frame, *_) = await log.frames_from(gone.value.first)
    assert read_frame(frame)["sequence_number"] == gone.value.first
    assert commits.numbers(lease()) == list(range(2, log.next_number))


@in_a_loop
async def test_the_oldest_events_go_once_they_are_too_large():
    log, builder = begun(journal_of(Commits(), event_bytes_per_run=20_000))
    for _ in range(100):
        builder.feed(TextDelta("x" * 500))
        await log.frames_from(log.next_number - 1)
    assert sum(map(len, log.frames)) <= 20_000 * 17 / 16
    assert len(log.frames) > 20


@in_a_loop
async def test_an_event_that_is_too_large_is_refused():
    log, builder = begun(journal_of(Commits(), event_bytes_per_run=5000))
    with pytest.raises(ServerError, match="cannot be kept"):
        builder.feed(TextDelta("x" * 5000))
    builder.fail(ServerError("too large"), USAGE)
    await log.end(builder.response)
    assert as_read(log)[-1]["type"] == "response.failed"


@in_a_loop
async def test_a_log_goes_on_where_another_process_stopped():
    commits = Commits()
    journal = journal_of(commits)
    log, builder = begun(journal)
    builder.feed(TextDelta("Hel"))
    await log.frames_from(4)
    other = journal.resumed_log(lease(2), 0, list(log.frames))
    assert other.next_number == log.next_number and other.has_output
    assert await other.frames_from(0) == await log.frames_from(0)
