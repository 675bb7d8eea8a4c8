"""What is removed, when, and what is left: sweeps, pruning, forgetting."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select
from stored import ANNA, BERT, DictBlobs, Kept, answered, said, stored

from antiphon.store import schema
from antiphon.store.failures import (
    ConversationBusy,
    Corrupt,
    NotFound,
    StillActive,
    StoreUnavailable,
)
from antiphon.store.keyring import MasterKey, MasterKeys
from antiphon.store.lines import LARGE_BYTES
from antiphon.store.records import Idempotency, StoreLimits, Swept
from antiphon.store.sealing import AesSealer

LARGE = "x" * (LARGE_BYTES + 1)


def sealing() -> AesSealer:
    return AesSealer(MasterKeys([MasterKey("one", "2026-01-01", bytes(range(32)))]))


def texts(items) -> list[str]:
    return [item["content"][0]["text"] for item in items]


# --- sweeps ---


@stored(limits=lambda: StoreLimits(retention_seconds=100))
async def test_an_expired_response_is_swept_and_its_descendants_are_whole(kept):
    first = await kept.respond(ANNA, [said("a")], [answered("b")])
    kept.now += 50
    second = await kept.respond(ANNA, [said("c")], previous=first)
    kept.now += 50
    assert (await kept.sweeper.sweep()).responses == 1
    assert await kept.count(schema.responses) == 1
    assert texts((await kept.responses.history(ANNA, second)).items) == list("abc")
    kept.now += 50
    assert (await kept.sweeper.sweep()).responses == 1
    assert not any((await kept.counts()).values())
    assert kept.counters.expirations == 2
    assert kept.lines.cached_bytes == 0


@stored(limits=lambda: StoreLimits(retention_seconds=None))
async def test_without_a_limit_nothing_expires(kept):
    id = await kept.respond(ANNA, [said("a")])
    kept.now += 1e9
    assert (await kept.sweeper.sweep()).responses == 0
    await kept.responses.retrieve(ANNA, id)


@stored()
async def test_active_responses_never_expire(kept):
    lease = await kept.begin(ANNA, [said("a")])
    kept.now += 1e9
    await kept.sweeper.sweep()
    assert (await kept.responses.retrieve(ANNA, lease.response_id)).active


@stored(limits=lambda: StoreLimits(event_log_seconds=10))
async def test_events_go_before_their_response(kept):
    id = await kept.respond(ANNA, [said("a")])
    active = await kept.begin(ANNA, [said("b")])
    kept.now += 10
    assert await kept.sweeper.sweep() == Swept(event_logs=1)
    assert await kept.count(schema.events) == 1
    record = await kept.responses.retrieve(ANNA, id)
    assert not record.log_kept
    assert record.first_event == record.next_event == 2
    assert (await kept.responses.retrieve(ANNA, active.response_id)).log_kept
    assert await kept.sweeper.sweep() == Swept()


@stored(limits=lambda: StoreLimits(idempotency_seconds=10))
async def test_idempotency_keys_are_swept_after_their_time(kept):
    await kept.begin(ANNA, idempotency=Idempotency("one", b""))
    kept.now += 5
    await kept.begin(ANNA, idempotency=Idempotency("two", b""))
    kept.now += 5
    await kept.sweeper.sweep()
    assert await kept.count(schema.idempotency_keys) == 1


@stored()
async def test_workers_that_are_gone_are_swept(kept):
    def register(connection):
        rows = [{"id": id, "models": "[]", "seen_at": at} for id, at in (("old", 0), ("new", 1e6))]
        connection.execute(insert(schema.workers), rows)

    await kept.db.write(register)
    await kept.sweeper.sweep()
    assert await kept.db.read(
        lambda connection: connection.execute(select(schema.workers.c.id)).scalars().all()
    ) == ["new"]


@stored(limits=lambda: StoreLimits(retention_seconds=10))
async def test_more_than_one_transaction_removes_is_swept(kept):
    for number in range(120):
        await kept.respond(ANNA, [said(str(number))])
    kept.now += 10
    assert (await kept.sweeper.sweep()).responses == 120
    assert not any((await kept.counts()).values())


@stored(blobs=DictBlobs, limits=lambda: StoreLimits(retention_seconds=10))
async def test_a_blob_goes_when_nothing_refers_to_it_and_nobody_has_begun_to_write_it(kept):
    await kept.respond(ANNA, [said(LARGE, "msg_1")])
    kept.now += 10
    assert (await kept.sweeper.sweep()).blobs == 0
    assert len(kept.lines.blobs.held) == 1
    kept.now += 580
    await kept.respond(ANNA, [said(LARGE, "msg_2")])
    kept.now += 11
    assert (await kept.sweeper.sweep()).blobs == 0
    kept.now += 590
    assert (await kept.sweeper.sweep()).blobs == 1
    assert not kept.lines.blobs.held
    assert not any((await kept.counts()).values())


@stored(blobs=DictBlobs)
async def test_a_blob_that_is_referred_to_stays(kept):
    id = await kept.respond(ANNA, [said(LARGE)])
    kept.now += 10_000
    assert (await kept.sweeper.sweep()).blobs == 0
    assert texts((await kept.responses.history(ANNA, id)).items) == [LARGE]


@stored(blobs=DictBlobs)
async def test_a_blob_that_cannot_be_deleted_is_swept_the_next_time(kept):
    id = await kept.respond(ANNA, [said(LARGE)])
    await kept.responses.delete(ANNA, id)
    kept.now += 1000
    blobs = kept.lines.blobs

    def fail(name):
        raise StoreUnavailable("far away")

    blobs.delete = fail
    with pytest.raises(StoreUnavailable):
        await kept.sweeper.sweep()
    assert await kept.count(schema.blobs) == 1
    del blobs.delete
    assert (await kept.sweeper.sweep()).blobs == 1


@stored()
async def test_what_a_crash_or_a_bug_left_over_is_swept(kept):
    id = await kept.respond(ANNA, [said("a")])
    response = await kept.respond(ANNA, [said("kept")])

    def cut_loose(connection):
        events = schema.events
        connection.execute(events.delete())
        connection.execute(schema.responses.delete().where(schema.responses.c.id == id))
        owner, line = connection.execute(
            select(schema.responses.c.owner, schema.responses.c.line)
        ).one()
        key = connection.execute(
            insert(schema.items),
            {"owner": owner, "id": "loose", "digest": b"", "size": 1, "body": b""},
        ).inserted_primary_key[0]
        connection.execute(
            insert(schema.items),
            {"owner": owner, "id": "looser", "digest": b"", "size": 1, "body": b""},
        )
        connection.execute(insert(schema.line_items), {"line": line, "position": 7, "item": key})
        connection.execute(insert(schema.lines), {"owner": owner, "length": 0})

    await kept.db.write(cut_loose)
    await kept.sweeper.sweep()
    counts = await kept.counts()
    assert (counts["lines"], counts["line_items"], counts["items"]) == (1, 1, 1)
    assert texts((await kept.responses.history(ANNA, response)).items) == ["kept"]


@pytest.fixture
def two(shared_url: str):
    """Two processes' parts of one store."""
    blobs = DictBlobs()
    limits = StoreLimits(retention_seconds=10)
    pair = [Kept(shared_url, blobs=blobs, limits=limits) for _ in range(2)]
    yield pair
    for kept in pair:
        kept.db.close()


def test_two_processes_sweep_at_once(two):
    async def main():
        one, other = two
        for number in range(60):
            await one.respond(ANNA, [said(f"{number} {LARGE}")])
        one.now += 1000
        other.now += 1000
        swept = await asyncio.gather(one.sweeper.sweep(), other.sweeper.sweep())
        # One may pass by what the other is just removing.
        swept = [*swept, await one.sweeper.sweep()]
        assert sum(part.responses for part in swept) == 60
        assert not one.lines.blobs.held
        assert not any((await one.counts()).values())

    asyncio.run(main())


def test_a_sweep_takes_no_blob_from_who_is_about_to_refer_to_it(two):
    async def main():
        one, other = two
        for _ in range(5):
            for kept in two:
                kept.now += 10_000
            made, _, _ = await asyncio.gather(
                one.respond(ANNA, [said(LARGE)]), other.sweeper.sweep(), other.sweeper.sweep()
            )
            assert texts((await other.responses.history(ANNA, made)).items) == [LARGE]

    asyncio.run(main())


def test_an_owner_forgotten_by_another_process_comes_back_as_a_new_one(shared_url):
    async def main(one: Kept, other: Kept):
        await one.respond(ANNA, [said("a", "msg_1")])
        await other.respond(ANNA, [said("b")])
        await other.sweeper.forget(ANNA)
        with pytest.raises(NotFound):
            await one.responses.items(ANNA, ["msg_1"])
        id = await one.respond(ANNA, [said("c")])
        assert texts((await other.responses.history(ANNA, id)).items) == ["c"]

    sealer = sealing()
    one, other = Kept(shared_url, sealer=sealer), Kept(shared_url, sealer=sealer)
    try:
        asyncio.run(main(one, other))
    finally:
        one.db.close()
        other.db.close()


def test_two_processes_continue_and_delete_at_once(two):
    async def main():
        one, other = two
        root = await one.respond(ANNA, [said("root")])
        made = {root: ["root"]}

        async def grow(kept: Kept, word: str) -> None:
            last = root
            for number in range(10):
                last_texts = made[last]
                try:
                    last = await kept.respond(ANNA, [said(f"{word}{number}")], previous=last)
                except NotFound:
                    return
                made[last] = [*last_texts, f"{word}{number}"]

        async def shrink(kept: Kept) -> None:
            for _ in range(10):
                id = list(made)[len(made) // 2]
                try:
                    await kept.responses.delete(ANNA, id)
                except (NotFound, StillActive):
                    pass

        await asyncio.gather(
            grow(one, "a"), grow(one, "b"), grow(other, "c"), shrink(one), shrink(other)
        )
        for kept, id in ((kept, id) for id in made for kept in two):
            try:
                history = await kept.responses.history(ANNA, id)
            except NotFound:
                continue
            assert texts(history.items) == made[id]
        for kept in two:
            kept.now += 10_000
        await one.sweeper.sweep()
        assert not any((await one.counts()).values())

    asyncio.run(main())


# --- pruning and forgetting ---


@stored()
async def test_pruning_removes_what_nobody_used_for_so_long(kept):
    old = await kept.respond(ANNA, [said("a")])
    used = await kept.respond(ANNA, [said("b")])
    active = await kept.begin(ANNA, [said("c")])
    stale = (await kept.conversations.create(ANNA, {}, [said("d")])).id
    busy = (await kept.conversations.create(ANNA, {}, [said("e")])).id
    await kept.begin(ANNA, [said("f")], conversation=busy)
    kept.now += 100
    await kept.responses.retrieve(ANNA, used)
    fresh = (await kept.conversations.create(ANNA, {}, [said("g")])).id
    swept = await kept.sweeper.prune(90)
    assert (swept.responses, swept.conversations) == (1, 1)
    for id in (used, active.response_id):
        await kept.responses.retrieve(ANNA, id)
    for id in (busy, fresh):
        await kept.conversations.retrieve(ANNA, id)
    with pytest.raises(NotFound):
        await kept.responses.retrieve(ANNA, old)
    with pytest.raises(NotFound):
        await kept.conversations.retrieve(ANNA, stale)


async def fill(kept: Kept, owner, word: str) -> str:
    """Store something of every kind; the id of a response."""
    key = Idempotency(word, word.encode())
    first = await kept.respond(
        owner,
        [said(f"{word} in")],
        [answered(f"{word} out")],
        idempotency=key,
        metadata={"w": word},
    )
    await kept.respond(owner, [said(f"{word} {LARGE}")], previous=first)
    conversation = (await kept.conversations.create(owner, {"w": word}, [said(f"{word} c")])).id
    await kept.respond(owner, [said(f"{word} turn")], conversation=conversation)
    return first


@stored(blobs=DictBlobs)
async def test_an_owner_is_forgotten_and_nobody_else(kept):
    await fill(kept, BERT, "bert")
    before = await kept.counts()
    await fill(kept, ANNA, "anna")
    assert await kept.sweeper.forget(ANNA) == Swept(responses=3, conversations=1, blobs=1)
    assert await kept.counts() == before
    assert await kept.count(schema.owners) == 1
    assert len(kept.lines.blobs.held) == 1
    with pytest.raises(NotFound):
        await kept.sweeper.forget(ANNA)


@stored()
async def test_an_owner_whose_response_is_being_made_is_not_forgotten(kept):
    await kept.respond(ANNA, [said("a")])
    lease = await kept.begin(ANNA, [said("b")])
    with pytest.raises(StillActive):
        await kept.sweeper.forget(ANNA)
    assert await kept.count(schema.responses) == 2
    assert await kept.sweeper.forget(ANNA, force=True) == Swept(responses=2)
    assert not any((await kept.counts()).values())
    beat = await kept.runs.heartbeat("worker", [lease])
    assert list(beat.lost) == [lease.response_id]


def test_no_byte_of_what_was_deleted_is_left_in_the_file(tmp_path: Path):
    async def main(kept: Kept):
        kept_id = await kept.respond(BERT, [said("bert stays")])
        lease = await kept.begin(ANNA, [said("anna-secret " * 50)], metadata={"m": "anna-secret"})
        await kept.end(lease, [answered("anna-secret " * 1000)])
        conversation = (
            await kept.conversations.create(ANNA, {"m": "anna-secret"}, [said("anna-secret")])
        ).id
        assert "anna-secret" in bytes_of(tmp_path)
        await kept.responses.delete(ANNA, lease.response_id)
        await kept.conversations.delete(ANNA, conversation)
        await kept.db.checkpoint()
        assert "anna-secret" not in bytes_of(tmp_path)
        assert "bert stays" in bytes_of(tmp_path)
        await kept.responses.retrieve(BERT, kept_id)

    kept = Kept(f"sqlite:///{tmp_path / 'antiphon.db'}")
    try:
        asyncio.run(main(kept))
    finally:
        kept.db.close()


def bytes_of(folder: Path) -> str:
    return "".join(file.read_bytes().decode("latin-1") for file in sorted(folder.iterdir()))


@stored(sealer=sealing, blobs=DictBlobs)
async def test_nothing_can_be_read_in_what_is_encrypted(kept):
    await fill(kept, ANNA, "anna-secret")
    tables = (schema.responses, schema.items, schema.events, schema.conversations)
    tables += (schema.idempotency_keys, schema.owners, schema.lines, schema.line_items)

    def everything(connection):
        rows = (row for table in tables for row in connection.execute(select(table)))
        return [value for row in rows for value in row]

    held = [*await kept.db.read(everything), *kept.lines.blobs.held.values()]
    assert len(held) > 100
    for value in held:
        assert b"anna-secret" not in (value if isinstance(value, bytes) else str(value).encode())


@stored(sealer=sealing, blobs=DictBlobs)
async def test_what_was_copied_before_cannot_be_read_after_its_owner_was_forgotten(kept):
    id = await fill(kept, ANNA, "anna")

    tables = (schema.owners, schema.lines, schema.items, schema.line_items, schema.responses)

    def copied(connection):
        return {
            table: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in tables
        }

    copy = await kept.db.read(copied)
    await kept.sweeper.forget(ANNA)
    await fill(kept, ANNA, "anna again")
    (new,) = (await kept.db.read(copied))[schema.owners]

    def bring_back(connection):
        for table, rows in copy.items():
            for row in rows:
                if table is schema.owners:
                    continue
                values = {**row, "owner": new["key"]} if "owner" in row else row
                values |= {"blob": None} if "blob" in row else {}
                values |= {"conversation": None} if "conversation" in row else {}
                if table is schema.items:
                    values = {**values, "id": values["id"] if values["body"] else "lost"}
                connection.execute(insert(table), values)

    await kept.db.write(bring_back)
    for call in (kept.responses.retrieve(ANNA, id), kept.responses.history(ANNA, id)):
        with pytest.raises(Corrupt):
            await call


# --- any order of anything ---


class Model:
    """What there should be, in Python."""

    def __init__(self) -> None:
        self.inputs: dict[str, list[str]] = {}
        self.outputs: dict[str, list[str]] = {}
        self.conversations: dict[str, list[tuple[str, str]]] = {}


def named(items) -> list[tuple[str, str]]:
    return [(item["id"], text) for item, text in zip(items, texts(items), strict=True)]


def turn() -> st.SearchStrategy[tuple]:
    index = st.integers(0, 7)
    size = st.integers(0, 3)
    return st.one_of(
        st.tuples(st.just("continue_"), index, size, size),
        st.tuples(st.just("start"), size, size),
        st.tuples(st.just("fail"), index, size),
        st.tuples(st.just("delete"), index),
        st.tuples(st.just("converse"), size),
        st.tuples(st.just("turn"), index, size, size),
        st.tuples(st.just("fail turn"), index, size),
        st.tuples(st.just("add"), index, size),
        st.tuples(st.just("cut"), index, index),
        st.tuples(st.just("drop"), index),
        st.tuples(st.just("history"), index),
        st.tuples(st.just("sweep")),
    )


class Story:
    """Does things to a store and to the model of it."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.model = Model()
        self.number = 0

    def some(self, size: int, said=said) -> list[dict]:
        self.number += size
        numbers = range(self.number - size, self.number)
        return [said(f"{number}", f"msg_{number}x{id(self)}") for number in numbers]

    def pick(self, of: dict, index: int) -> str | None:
        return list(of)[index % len(of)] if of else None

    async def do(self, kind: str, *rest: int) -> None:
        await getattr(self, kind.replace(" ", "_"))(*rest)

    async def start(self, size: int, outputs: int) -> None:
        await self._respond([], self.some(size), self.some(outputs, answered))

    # A word of Python's own, so not a method's name by itself.
    async def continue_(self, index: int, size: int, outputs: int) -> None:
        parent = self.pick(self.model.inputs, index)
        before = self.model.inputs[parent] + self.model.outputs[parent] if parent else []
        items, output = self.some(size), self.some(outputs, answered)
        await self._respond(before, items, output, previous=parent)

    async def _respond(self, before: list[str], items, output, **options) -> str:
        id = await self.kept.respond(ANNA, items, output, **options)
        self.model.inputs[id] = before + texts(items)
        self.model.outputs[id] = texts(output)
        return id

    async def history(self, index: int) -> None:
        if id := self.pick(self.model.inputs, index):
            await self.check_history(id)

    async def check_history(self, id: str) -> None:
        history = await self.kept.responses.history(ANNA, id)
        assert texts(history.items) == self.model.inputs[id] + self.model.outputs[id]

    async def fail(self, index: int, size: int) -> None:
        parent = self.pick(self.model.inputs, index)
        lease = await self.kept.begin(ANNA, self.some(size), previous=parent)
        await self.kept.end(lease, self.some(1, answered), status="failed")

    async def delete(self, index: int) -> None:
        if id := self.pick(self.model.inputs, index):
            await self.kept.responses.delete(ANNA, id)
            del self.model.inputs[id], self.model.outputs[id]

    async def converse(self, size: int) -> None:
        items = self.some(size)
        id = (await self.kept.conversations.create(ANNA, {}, items)).id
        self.model.conversations[id] = named(items)

    async def turn(self, index: int, size: int, outputs: int) -> None:
        if id := self.pick(self.model.conversations, index):
            items, output = self.some(size), self.some(outputs, answered)
            held = self.model.conversations[id]
            await self._respond([text for _, text in held], items, output, conversation=id)
            held += named([*items, *output])

    async def fail_turn(self, index: int, size: int) -> None:
        if id := self.pick(self.model.conversations, index):
            lease = await self.kept.begin(ANNA, self.some(size), conversation=id)
            with pytest.raises(ConversationBusy):
                await self.kept.conversations.add_items(ANNA, id, [])
            await self.kept.end(lease, self.some(1, answered), status="cancelled")

    async def add(self, index: int, size: int) -> None:
        if id := self.pick(self.model.conversations, index):
            items = self.some(size)
            await self.kept.conversations.add_items(ANNA, id, items)
            self.model.conversations[id] += named(items)

    async def cut(self, index: int, place: int) -> None:
        id = self.pick(self.model.conversations, index)
        if id and self.model.conversations[id]:
            held = self.model.conversations[id]
            item, _ = held.pop(place % len(held))
            await self.kept.conversations.delete_item(ANNA, id, item)

    async def drop(self, index: int) -> None:
        if id := self.pick(self.model.conversations, index):
            await self.kept.conversations.delete(ANNA, id)
            del self.model.conversations[id]

    async def sweep(self) -> None:
        await self.kept.sweeper.sweep()

    async def check(self) -> None:
        for id, inputs in self.model.inputs.items():
            record = await self.kept.responses.retrieve(ANNA, id)
            assert texts(record.response["output"]) == self.model.outputs[id]
            page = await self.kept.responses.input_items(ANNA, id, order="asc", limit=1000)
            assert texts(page.items) == inputs
            await self.check_history(id)
        for id, held in self.model.conversations.items():
            history = await self.kept.conversations.history(ANNA, id)
            assert texts(history.items) == [text for _, text in held]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(turns=st.lists(turn(), max_size=25))
@stored()
async def test_whatever_is_done_what_is_left_is_whole_and_no_more_is_left(kept, turns):
    story = Story(kept)
    for one in turns:
        await story.do(*one)
    await story.check()
    await kept.sweeper.sweep()
    await story.check()
    kept.now += 2 * kept.shared.limits.retention_seconds
    for id in story.model.conversations:
        await kept.conversations.delete(ANNA, id)
    await kept.sweeper.sweep()
    assert not any((await kept.counts()).values())
