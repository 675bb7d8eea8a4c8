"""Stored responses, as clients see them, on every kind of database."""

import asyncio

import pytest
from sqlalchemy import select, update
from stored import ANNA, BERT, CREATED, ENDED, DictBlobs, Kept, answered, body_of, said, stored

from antiphon.store import schema
from antiphon.store.failures import (
    ConversationBusy,
    Corrupt,
    KeyReused,
    NotContinuable,
    NotFound,
    StillActive,
    TooDeep,
    TooLarge,
    TooMany,
)
from antiphon.store.lines import LARGE_BYTES
from antiphon.store.records import History, Idempotency, NewResponse, StoreLimits

LARGE = "x" * (LARGE_BYTES + 1)
NO_IDS = ["resp_unknown", "", "nul\0", "x" * 200, "ü"]


def texts(items) -> list[str]:
    return [item["content"][0]["text"] for item in items]


# --- create, retrieve, history ---


@stored()
async def test_an_accepted_response_is_there_at_once(kept):
    lease = await kept.begin(ANNA, [said("hello")], metadata={"a": "\0b"})
    record = await kept.responses.retrieve(ANNA, lease.response_id)
    assert record.response == body_of(lease.response_id, metadata={"a": "\0b"})
    assert record.active
    assert record.log_kept
    assert (record.first_event, record.next_event) == (0, 1)
    page = await kept.responses.events(ANNA, lease.response_id, 0)
    assert (list(page.frames), page.ended) == ([CREATED], False)
    assert kept.counters.writes == 1


@stored()
async def test_a_lease_goes_to_the_worker_that_is_named_only(kept):
    new = NewResponse(body_of("resp_q", status="queued"), [said("hello")], {}, worker=None)
    assert (await kept.responses.create(ANNA, new)).lease is None
    new = NewResponse(body_of("resp_w"), [said("hello")], {}, worker="me")
    lease = (await kept.responses.create(ANNA, new)).lease
    assert (lease.response_id, lease.owner, lease.fence) == ("resp_w", ANNA, 1)
    assert not (await kept.runs.heartbeat("me", [lease])).lost


@stored()
async def test_the_final_response_comes_back_as_it_was(kept):
    lease = await kept.begin(ANNA, [said("hello")])
    output = [{"id": "rs_1", "type": "reasoning", "summary": []}, answered("hi")]
    await kept.end(lease, output, usage={"input_tokens": 3}, error=None)
    record = await kept.responses.retrieve(ANNA, lease.response_id)
    assert record.response == body_of(
        lease.response_id,
        status="completed",
        output=output,
        usage={"input_tokens": 3},
        error=None,
    )
    assert not record.active


@stored()
async def test_history_is_every_earlier_item_in_order(kept):
    first = await kept.respond(ANNA, [said("a"), said("b")], [answered("c")])
    second = await kept.respond(ANNA, [said("d")], [answered("e"), answered("f")], previous=first)
    third = await kept.respond(ANNA, [], [answered("g")], previous=second)
    assert texts((await kept.responses.history(ANNA, first)).items) == list("abc")
    assert texts((await kept.responses.history(ANNA, second)).items) == list("abcdef")
    history = await kept.responses.history(ANNA, third)
    assert texts(history.items) == list("abcdefg")
    assert history.depth == 3


@stored()
async def test_branches_do_not_see_each_other(kept):
    root = await kept.respond(ANNA, [said("root")])
    left = await kept.begin(ANNA, [said("left")], previous=root)
    right = await kept.begin(ANNA, [said("right")], previous=root)
    await kept.end(right, [answered("r")])
    await kept.end(left, [answered("l")])
    histories = [
        texts((await kept.responses.history(ANNA, lease.response_id)).items)
        for lease in (left, right)
    ]
    assert histories == [["root", "left", "l"], ["root", "right", "r"]]


@stored()
async def test_history_bytes_are_known_without_reading(kept):
    first = await kept.respond(ANNA, [said("a" * 100)], [answered("b" * 100)])
    second = await kept.respond(ANNA, [said("c" * 100)], previous=first)
    before = await kept.responses.history_bytes(ANNA, first)
    after = await kept.responses.history_bytes(ANNA, second)
    assert 200 < before < after - 100 < 2 * before


@stored()
async def test_an_incomplete_response_can_be_continued(kept):
    lease = await kept.begin(ANNA, [said("a")])
    await kept.end(lease, [answered("b")], status="incomplete")
    assert texts((await kept.responses.history(ANNA, lease.response_id)).items) == ["a", "b"]
    await kept.begin(ANNA, [said("c")], previous=lease.response_id)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@stored()
async def test_what_failed_or_was_cancelled_cannot_be_continued(kept, status):
    lease = await kept.begin(ANNA, [said("a")])
    await kept.end(lease, status=status)
    with pytest.raises(NotContinuable):
        await kept.responses.history(ANNA, lease.response_id)
    with pytest.raises(NotContinuable):
        await kept.begin(ANNA, [said("b")], previous=lease.response_id)


@stored()
async def test_what_is_being_made_cannot_be_continued(kept):
    lease = await kept.begin(ANNA, [said("a")])
    with pytest.raises(StillActive):
        await kept.responses.history(ANNA, lease.response_id)
    with pytest.raises(StillActive):
        await kept.begin(ANNA, [said("b")], previous=lease.response_id)
    assert kept.counters.rejections == 1


@stored()
async def test_a_refused_response_leaves_nothing(kept):
    with pytest.raises(NotFound):
        await kept.begin(ANNA, [said("a")], previous="resp_unknown")
    assert not any((await kept.counts()).values())


@stored()
async def test_a_damaged_body_is_corrupt_and_nothing_else(kept):
    id = await kept.respond(ANNA, [said("a")])

    def damage(connection):
        body = bytearray(connection.execute(select(schema.responses.c.body)).scalar_one())
        body[20] ^= 1
        connection.execute(update(schema.responses).values(body=bytes(body)))

    await kept.db.write(damage)
    with pytest.raises(Corrupt):
        await kept.responses.retrieve(ANNA, id)
    assert texts((await kept.responses.history(ANNA, id)).items) == ["a"]


# --- strangers ---


@pytest.mark.parametrize("id", NO_IDS)
@stored()
async def test_what_is_unknown_is_not_found(kept, id):
    await kept.respond(ANNA, [said("a")])
    await _is_not_there(kept, ANNA, id)


@stored()
async def test_what_is_anothers_is_not_found(kept):
    id = await kept.respond(ANNA, [said("a")])
    await _is_not_there(kept, BERT, id)
    await kept.respond(BERT, [said("b")])
    await _is_not_there(kept, BERT, id)
    assert texts((await kept.responses.history(ANNA, id)).items) == ["a"]


@stored()
async def test_what_has_expired_is_not_found_before_any_sweep(kept):
    id = await kept.respond(ANNA, [said("a", "msg_old")])
    kept.now += kept.shared.limits.retention_seconds
    await _is_not_there(kept, ANNA, id)
    with pytest.raises(NotFound):
        await kept.responses.items(ANNA, ["msg_old"])


async def _is_not_there(kept: Kept, owner, id: str) -> None:
    responses = kept.responses
    for call in (
        responses.history(owner, id),
        responses.history_bytes(owner, id),
        responses.retrieve(owner, id),
        responses.delete(owner, id),
        responses.input_items(owner, id),
        responses.request_cancel(owner, id),
        responses.events(owner, id, 0),
        kept.begin(owner, [said("b")], previous=id),
    ):
        with pytest.raises(NotFound) as raised:
            await call
        assert raised.value.what == id


# --- items ---


@stored()
async def test_items_are_found_by_their_ids_in_the_order_asked_for(kept):
    await kept.respond(ANNA, [said("a", "msg_a")], [answered("b", "msg_b")])
    found = await kept.responses.items(ANNA, ["msg_b", "msg_a", "msg_b"])
    assert texts(found) == ["b", "a", "b"]
    assert await kept.responses.items(ANNA, []) == []


@pytest.mark.parametrize("id", ["msg_unknown", "", "nul\0"])
@stored()
async def test_an_item_that_is_unknown_is_named(kept, id):
    await kept.respond(ANNA, [said("a", "msg_a")])
    with pytest.raises(NotFound) as raised:
        await kept.responses.items(ANNA, ["msg_a", id])
    assert raised.value.what == id


@stored()
async def test_items_of_another_are_not_found(kept):
    await kept.respond(ANNA, [said("a", "msg_a")])
    with pytest.raises(NotFound):
        await kept.responses.items(BERT, ["msg_a"])
    await kept.respond(BERT, [said("b", "msg_b")])
    with pytest.raises(NotFound):
        await kept.responses.items(BERT, ["msg_a"])


@stored()
async def test_input_is_listed_from_either_end(kept):
    first = await kept.respond(ANNA, [said("a", "m_a"), said("b", "m_b")], [answered("c", "m_c")])
    second = await kept.respond(ANNA, [said("d", "m_d")], [answered("e", "m_e")], previous=first)
    page = await kept.responses.input_items(ANNA, second)
    assert (texts(page.items), page.has_more) == (list("dcba"), False)
    page = await kept.responses.input_items(ANNA, second, order="asc", limit=3)
    assert (texts(page.items), page.has_more) == (list("abc"), True)
    page = await kept.responses.input_items(ANNA, second, order="asc", limit=3, after="m_c")
    assert (texts(page.items), page.has_more) == (["d"], False)
    page = await kept.responses.input_items(ANNA, second, limit=2, after="m_c")
    assert (texts(page.items), page.has_more) == (["b", "a"], False)
    page = await kept.responses.input_items(ANNA, second, after="m_a")
    assert (page.items, page.has_more) == ([], False)


@pytest.mark.parametrize("after", ["m_output", "m_unknown", "nul\0"])
@stored()
async def test_a_page_after_what_is_not_in_the_input_is_not_found(kept, after):
    id = await kept.respond(ANNA, [said("a", "m_a")], [answered("b", "m_output")])
    with pytest.raises(NotFound) as raised:
        await kept.responses.input_items(ANNA, id, after=after)
    assert raised.value.what == after


@pytest.mark.parametrize("order", ["asc", "desc"])
@stored()
async def test_an_item_given_twice_is_listed_once_and_pages_end(kept, order):
    again = said("again", "m_again")
    first = await kept.respond(ANNA, [said("a"), again])
    second = await kept.respond(ANNA, [said("b"), again, said("c")], previous=first)
    assert texts((await kept.responses.history(ANNA, second)).items) == [
        *("a", "again", "b", "again", "c")
    ]
    listed, after = [], None
    for number in range(4):
        page = await kept.responses.input_items(ANNA, second, order=order, limit=1, after=after)
        listed += texts(page.items)
        after = page.items[-1]["id"]
        assert page.has_more == (number < 3)
    expected = ["a", "again", "b", "c"]
    assert listed == (expected if order == "asc" else expected[::-1])


# --- delete, cancel, events ---


@stored()
async def test_a_deleted_response_is_gone_and_its_descendants_are_whole(kept):
    first = await kept.respond(ANNA, [said("a")], [answered("b")])
    second = await kept.respond(ANNA, [said("c")], [answered("d")], previous=first)
    await kept.responses.delete(ANNA, first)
    await _is_not_there(kept, ANNA, first)
    assert texts((await kept.responses.history(ANNA, second)).items) == list("abcd")
    page = await kept.responses.input_items(ANNA, second, order="asc")
    assert texts(page.items) == list("abc")
    await kept.responses.delete(ANNA, second)
    assert not any((await kept.counts()).values())


@stored()
async def test_deleting_the_end_of_a_chain_leaves_the_rest(kept):
    first = await kept.respond(ANNA, [said("a")], [answered("b")])
    second = await kept.respond(ANNA, [said("c")], [answered("d")], previous=first)
    await kept.responses.delete(ANNA, second)
    assert await kept.count(schema.items) == 2
    third = await kept.respond(ANNA, [said("e")], previous=first)
    assert texts((await kept.responses.history(ANNA, third)).items) == list("abe")


@stored()
async def test_what_is_being_made_cannot_be_deleted(kept):
    lease = await kept.begin(ANNA, [said("a")])
    with pytest.raises(StillActive):
        await kept.responses.delete(ANNA, lease.response_id)
    await kept.end(lease)
    await kept.responses.delete(ANNA, lease.response_id)


@stored()
async def test_cancelling_is_noted_once_while_a_response_is_active(kept):
    lease = await kept.begin(ANNA, [said("a")])
    for _ in range(2):
        record = await kept.responses.request_cancel(ANNA, lease.response_id)
        assert record.cancel_requested
        assert record.active
    beat = await kept.runs.heartbeat("worker", [lease])
    assert list(beat.cancelled) == [lease.response_id]


@stored()
async def test_cancelling_what_has_ended_changes_nothing(kept):
    id = await kept.respond(ANNA, [said("a")], [answered("b")])
    record = await kept.responses.request_cancel(ANNA, id)
    assert not record.cancel_requested
    assert record == await kept.responses.retrieve(ANNA, id)


@stored(limits=lambda: StoreLimits(event_log_seconds=100))
async def test_events_are_kept_for_a_while_after_the_end(kept):
    id = await kept.respond(ANNA, [said("a")])
    page = await kept.responses.events(ANNA, id, 0)
    assert (list(page.frames), page.ended) == ([CREATED, ENDED], True)
    kept.now += 100
    assert not (await kept.responses.retrieve(ANNA, id)).log_kept
    page = await kept.responses.events(ANNA, id, 0)
    assert (list(page.frames), page.ended) == ([], True)


# --- idempotency ---


@stored()
async def test_a_key_makes_one_response(kept):
    key = Idempotency("key \0 of mine", b"digest")
    lease = await kept.begin(ANNA, [said("a")], idempotency=key)
    again = await kept.begin(ANNA, [said("a")], idempotency=key)
    assert again.response_id == lease.response_id
    await kept.end(lease)
    again = await kept.begin(ANNA, [said("a")], idempotency=key)
    assert again.response_id == lease.response_id
    assert await kept.count(schema.responses) == 1
    assert kept.counters.writes == 1


@stored()
async def test_a_key_with_another_body_is_refused(kept):
    await kept.begin(ANNA, [said("a")], idempotency=Idempotency("key", b"one"))
    with pytest.raises(KeyReused):
        await kept.begin(ANNA, [said("b")], idempotency=Idempotency("key", b"two"))


@stored()
async def test_another_owner_may_use_the_same_key(kept):
    key = Idempotency("key", b"digest")
    anna = await kept.begin(ANNA, [said("a")], idempotency=key)
    bert = await kept.begin(BERT, [said("a")], idempotency=key)
    assert anna.response_id != bert.response_id
    assert (await kept.responses.retrieve(BERT, bert.response_id)).active


@stored(limits=lambda: StoreLimits(idempotency_seconds=50))
async def test_what_a_key_made_can_be_looked_up_by_its_owner(kept):
    key = Idempotency("key", b"one")
    assert await kept.responses.made_with(ANNA, key) is None
    lease = await kept.begin(ANNA, idempotency=key)
    assert await kept.responses.made_with(ANNA, key) == lease.response_id
    assert await kept.responses.made_with(BERT, key) is None
    await kept.begin(BERT, [said("b")])
    assert await kept.responses.made_with(BERT, key) is None
    with pytest.raises(KeyReused):
        await kept.responses.made_with(ANNA, Idempotency("key", b"two"))
    kept.now += 50
    assert await kept.responses.made_with(ANNA, key) is None


@stored(limits=lambda: StoreLimits(idempotency_seconds=50))
async def test_a_key_is_free_again_after_its_time_or_when_its_response_is_gone(kept):
    first = await kept.begin(ANNA, idempotency=Idempotency("key", b"one"))
    kept.now += 50
    second = await kept.begin(ANNA, idempotency=Idempotency("key", b"two"))
    assert second.response_id != first.response_id
    await kept.end(second)
    await kept.responses.delete(ANNA, second.response_id)
    third = await kept.begin(ANNA, idempotency=Idempotency("key", b"three"))
    assert third.response_id != second.response_id


@stored()
async def test_of_many_with_one_key_at_once_one_is_stored(kept):
    key = Idempotency("key", b"digest")
    leases = await asyncio.gather(*(kept.begin(ANNA, idempotency=key) for _ in range(8)))
    assert len({lease.response_id for lease in leases}) == 1
    assert await kept.count(schema.responses) == 1


# --- limits ---


@stored(limits=lambda: StoreLimits(max_depth=2))
async def test_a_chain_is_no_longer_than_allowed(kept):
    first = await kept.respond(ANNA, [said("a")])
    second = await kept.respond(ANNA, [said("b")], previous=first)
    with pytest.raises(TooDeep) as raised:
        await kept.begin(ANNA, [said("c")], previous=second)
    assert raised.value.limit == 2


@stored(limits=lambda: StoreLimits(entry_bytes=2000))
async def test_a_response_with_its_history_is_no_larger_than_allowed(kept):
    first = await kept.respond(ANNA, [said("a" * 1000)])
    with pytest.raises(TooLarge) as raised:
        await kept.begin(ANNA, [said("b" * 1000)], previous=first)
    assert raised.value.limit == 2000
    await kept.begin(ANNA, [said("b" * 1000)])


@stored(limits=lambda: StoreLimits(owner_records=2))
async def test_the_response_used_longest_ago_makes_room(kept):
    ids = []
    for text in "ab":
        ids.append(await kept.respond(ANNA, [said(text)]))
        kept.now += 100
    await kept.responses.retrieve(ANNA, ids[0])
    other = await kept.respond(BERT, [said("c")])
    await kept.respond(ANNA, [said("d")])
    assert texts((await kept.responses.history(ANNA, ids[0])).items) == ["a"]
    assert texts((await kept.responses.history(BERT, other)).items) == ["c"]
    await _is_not_there(kept, ANNA, ids[1])
    assert kept.counters.evictions == 1


@stored(limits=lambda: StoreLimits(max_records=2))
async def test_the_limit_of_all_counts_everybody(kept):
    anna = await kept.respond(ANNA, [said("a")])
    kept.now += 1
    bert = await kept.respond(BERT, [said("b")])
    kept.now += 1
    await kept.respond(BERT, [said("c")])
    await _is_not_there(kept, ANNA, anna)
    await kept.responses.retrieve(BERT, bert)


@stored(limits=lambda: StoreLimits(owner_bytes=4000))
async def test_bytes_are_limited_as_records_are(kept):
    first = await kept.respond(ANNA, [said("a" * 1500)])
    kept.now += 1
    second = await kept.respond(ANNA, [said("b" * 1500)])
    kept.now += 1
    await kept.respond(ANNA, [said("c" * 1500)])
    await _is_not_there(kept, ANNA, first)
    await kept.responses.retrieve(ANNA, second)


@stored(limits=lambda: StoreLimits(owner_records=2))
async def test_active_responses_never_make_room(kept):
    for _ in range(2):
        await kept.begin(ANNA, [said("a")])
    with pytest.raises(TooMany) as raised:
        await kept.begin(ANNA, [said("b")])
    assert raised.value.limit == 2
    assert "this key" in raised.value.what
    assert await kept.count(schema.responses) == 2
    assert kept.counters.evictions == 0


@stored(limits=lambda: StoreLimits(owner_records=1))
async def test_what_is_continued_may_make_room_and_its_items_stay(kept):
    first = await kept.respond(ANNA, [said("a")], [answered("b")])
    second = await kept.respond(ANNA, [said("c")], previous=first)
    await _is_not_there(kept, ANNA, first)
    assert texts((await kept.responses.history(ANNA, second)).items) == list("abc")


@stored(limits=lambda: StoreLimits(max_active_background=3, max_active_background_per_owner=2))
async def test_active_background_responses_are_limited(kept):
    leases = [await kept.begin(ANNA, background=True) for _ in range(2)]
    with pytest.raises(TooMany):
        await kept.begin(ANNA, background=True)
    await kept.begin(ANNA)
    await kept.begin(BERT, background=True)
    with pytest.raises(TooMany) as raised:
        await kept.begin(BERT, background=True)
    assert raised.value.limit == 3
    await kept.end(leases[0])
    await kept.begin(BERT, background=True)


@stored(limits=lambda: StoreLimits(max_active_background_per_owner=2))
async def test_the_limit_holds_for_many_at_once(kept):
    made = await asyncio.gather(
        *(kept.begin(ANNA, background=True) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(one, TooMany) for one in made) == 6
    assert await kept.count(schema.responses) == 2


# --- what is remembered ---


@stored()
async def test_a_chain_is_read_once(kept):
    first = await kept.respond(ANNA, [said("a")])
    await kept.responses.history(ANNA, first)
    second = await kept.respond(ANNA, [said("b")], previous=first)
    history = await kept.responses.history(ANNA, second)
    assert (kept.counters.misses, kept.counters.hits) == (1, 1)
    again = await kept.responses.history(ANNA, second)
    assert again.items[0] is history.items[0]
    assert await kept.responses.history(ANNA, first) == History(again.items[:1], 1)


@stored()
async def test_what_is_remembered_is_not_shown_after_it_was_deleted(kept):
    first = await kept.respond(ANNA, [said("a")])
    second = await kept.respond(ANNA, [said("b")], previous=first)
    await kept.responses.history(ANNA, second)
    await kept.responses.delete(ANNA, second)
    with pytest.raises(NotFound):
        await kept.responses.history(ANNA, second)
    third = await kept.respond(ANNA, [said("c")], previous=first)
    assert texts((await kept.responses.history(ANNA, third)).items) == ["a", "c"]


@stored(cache_bytes=0)
async def test_nothing_need_be_remembered(kept):
    first = await kept.respond(ANNA, [said("a")])
    for _ in range(2):
        assert texts((await kept.responses.history(ANNA, first)).items) == ["a"]
    assert kept.counters.hits == 0


# --- large items, conversations ---


@stored(blobs=DictBlobs)
async def test_large_input_and_output_are_kept_as_blobs(kept):
    id = await kept.respond(ANNA, [said(LARGE, "m_in")], [answered(LARGE + "!", "m_out")])
    assert len(kept.lines.blobs.held) == 2
    assert texts((await kept.responses.history(ANNA, id)).items) == [LARGE, LARGE + "!"]
    assert texts(await kept.responses.items(ANNA, ["m_out"])) == [LARGE + "!"]
    assert texts((await kept.responses.input_items(ANNA, id)).items) == [LARGE]


@stored()
async def test_a_turn_in_a_conversation_is_appended_to_it(kept):
    conversation = (await kept.conversations.create(ANNA, {}, [said("a")])).id
    first = await kept.respond(ANNA, [said("b")], [answered("c")], conversation=conversation)
    second = await kept.respond(ANNA, [said("d")], [answered("e")], conversation=conversation)
    history = await kept.conversations.history(ANNA, conversation)
    assert texts(history.items) == list("abcde")
    page = await kept.responses.input_items(ANNA, second, order="asc")
    assert texts(page.items) == list("abcd")
    assert texts((await kept.responses.history(ANNA, first)).items) == list("abc")


@stored()
async def test_one_response_at_a_time_is_made_in_a_conversation(kept):
    conversation = (await kept.conversations.create(ANNA, {}, [])).id
    made = await asyncio.gather(
        *(kept.begin(ANNA, [said(t)], conversation=conversation) for t in "abc"),
        return_exceptions=True,
    )
    assert sum(isinstance(one, ConversationBusy) for one in made) == 2
    (lease,) = (one for one in made if not isinstance(one, Exception))
    await kept.end(lease, [answered("d")])
    await kept.respond(ANNA, [said("e")], conversation=conversation)
    assert len((await kept.conversations.history(ANNA, conversation)).items) == 3


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@stored()
async def test_a_turn_that_failed_leaves_its_conversation_as_it_was(kept, status):
    conversation = (await kept.conversations.create(ANNA, {}, [said("a")])).id
    lease = await kept.begin(ANNA, [said("b")], conversation=conversation)
    await kept.end(lease, [answered("c")], status=status)
    assert texts((await kept.conversations.history(ANNA, conversation)).items) == ["a"]
    await kept.respond(ANNA, [said("d")], conversation=conversation)
    assert texts((await kept.conversations.history(ANNA, conversation)).items) == ["a", "d"]


@pytest.mark.parametrize("id", ["conv_unknown", "", "nul\0"])
@stored()
async def test_a_conversation_that_is_unknown_or_anothers_is_not_found(kept, id):
    anna = (await kept.conversations.create(ANNA, {}, [])).id
    for owner, conversation in ((ANNA, id), (BERT, anna)):
        with pytest.raises(NotFound) as raised:
            await kept.begin(owner, [said("a")], conversation=conversation)
        assert raised.value.what == conversation


@stored(limits=lambda: StoreLimits(entry_bytes=3000))
async def test_a_conversation_grows_no_larger_than_allowed(kept):
    conversation = (await kept.conversations.create(ANNA, {}, [said("a" * 500)])).id
    for _ in range(2):
        await kept.respond(ANNA, [said("b" * 500)], [answered("c")], conversation=conversation)
    await kept.conversations.add_items(ANNA, conversation, [said("d" * 200)])
    with pytest.raises(TooLarge):
        await kept.begin(ANNA, [said("e" * 1000)], conversation=conversation)
