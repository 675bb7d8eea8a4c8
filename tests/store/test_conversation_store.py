"""Stored conversations on every kind of database."""

import pytest
from sqlalchemy import select, update
from stored import ANNA, BERT, DictBlobs, Kept, answered, said, stored

from antiphon.store import schema
from antiphon.store.failures import ConversationBusy, Corrupt, NotFound, TooLarge
from antiphon.store.lines import LARGE_BYTES
from antiphon.store.records import Conversation, StoreLimits


def texts(items) -> list[str]:
    return [item["content"][0]["text"] for item in items]


async def made(kept: Kept, *items, metadata=None) -> str:
    return (await kept.conversations.create(ANNA, metadata or {}, items)).id


async def held(kept: Kept, id: str) -> list[str]:
    return texts((await kept.conversations.history(ANNA, id)).items)


@stored()
async def test_a_conversation_comes_back_as_it_was_made(kept):
    conversation = await kept.conversations.create(ANNA, {"topic": "tides\0"}, [said("a")])
    assert conversation == Conversation(conversation.id, 1_000_000, {"topic": "tides\0"})
    assert conversation.id.startswith("conv_")
    assert await kept.conversations.retrieve(ANNA, conversation.id) == conversation
    assert await held(kept, conversation.id) == ["a"]


@stored()
async def test_metadata_are_replaced(kept):
    id = await made(kept, metadata={"a": "1", "b": "2"})
    kept.now += 1
    updated = await kept.conversations.update(ANNA, id, {"b": "3"})
    assert updated == Conversation(id, 1_000_000, {"b": "3"})
    assert await kept.conversations.retrieve(ANNA, id) == updated


@stored()
async def test_items_are_appended_and_come_back_as_stored(kept):
    id = await made(kept, said("a", "msg_a"))
    added = await kept.conversations.add_items(ANNA, id, [said("b", "msg_a"), said("c", "msg_c")])
    assert texts(added) == ["b", "c"]
    assert added[0]["id"] not in ("msg_a", "msg_c")
    assert added[1] == said("c", "msg_c")
    page = await kept.conversations.list_items(ANNA, id, order="asc", after="msg_a")
    assert list(page.items) == list(added)
    assert await kept.conversations.item(ANNA, id, "msg_c") == said("c", "msg_c")


@stored()
async def test_items_are_listed_in_pages(kept):
    id = await made(kept, *(said(t, f"m_{t}") for t in "abcd"))
    page = await kept.conversations.list_items(ANNA, id, limit=3)
    assert (texts(page.items), page.has_more) == (list("dcb"), True)
    page = await kept.conversations.list_items(ANNA, id, limit=3, after="m_b")
    assert (texts(page.items), page.has_more) == (["a"], False)
    with pytest.raises(NotFound):
        await kept.conversations.list_items(ANNA, id, after="m_unknown")


@stored()
async def test_a_deleted_item_is_gone_from_the_conversation_alone(kept):
    id = await made(kept, *(said(t, f"m_{t}") for t in "ab"))
    response = await kept.respond(ANNA, [said("c", "m_c")], [answered("d")], conversation=id)
    conversation = await kept.conversations.delete_item(ANNA, id, "m_b")
    assert conversation.id == id
    assert await held(kept, id) == list("acd")
    with pytest.raises(NotFound) as raised:
        await kept.conversations.item(ANNA, id, "m_b")
    assert raised.value.what == "m_b"
    with pytest.raises(NotFound):
        await kept.conversations.delete_item(ANNA, id, "m_b")
    assert texts((await kept.responses.history(ANNA, response)).items) == list("abcd")
    await kept.respond(ANNA, [said("e")], conversation=id)
    assert await held(kept, id) == list("acde")


@stored()
async def test_an_item_that_stands_twice_is_deleted_everywhere(kept):
    twice = said("x", "m_x")
    id = await made(kept, twice, said("a"), twice, twice, said("b"))
    await kept.conversations.delete_item(ANNA, id, "m_x")
    assert await held(kept, id) == ["a", "b"]
    assert await kept.count(schema.items) == 2
    assert await kept.count(schema.lines) == 1


@stored()
async def test_the_last_item_can_be_deleted(kept):
    id = await made(kept, said("a", "m_a"))
    await kept.conversations.delete_item(ANNA, id, "m_a")
    assert await held(kept, id) == []
    assert await kept.count(schema.items) == 0
    await kept.conversations.add_items(ANNA, id, [said("b")])
    assert await held(kept, id) == ["b"]


@stored()
async def test_a_deleted_conversation_is_gone_and_its_responses_are_whole(kept):
    id = await made(kept, said("a"))
    response = await kept.respond(ANNA, [said("b")], [answered("c")], conversation=id)
    await kept.conversations.add_items(ANNA, id, [said("d")])
    await kept.conversations.delete(ANNA, id)
    with pytest.raises(NotFound):
        await kept.conversations.retrieve(ANNA, id)
    assert texts((await kept.responses.history(ANNA, response)).items) == list("abc")
    await kept.responses.delete(ANNA, response)
    assert not any((await kept.counts()).values())


@stored()
async def test_responses_can_be_deleted_under_a_conversation(kept):
    id = await made(kept, said("a"))
    response = await kept.respond(ANNA, [said("b")], [answered("c")], conversation=id)
    await kept.responses.delete(ANNA, response)
    assert await held(kept, id) == list("abc")


@stored()
async def test_nothing_changes_while_a_response_is_made(kept):
    id = await made(kept, said("a", "m_a"))
    lease = await kept.begin(ANNA, [said("b")], conversation=id)
    for call in (
        kept.conversations.history(ANNA, id),
        kept.conversations.add_items(ANNA, id, [said("c")]),
        kept.conversations.delete_item(ANNA, id, "m_a"),
        kept.conversations.delete(ANNA, id),
    ):
        with pytest.raises(ConversationBusy):
            await call
    page = await kept.conversations.list_items(ANNA, id)
    assert texts(page.items) == ["a"]
    await kept.end(lease)
    assert await held(kept, id) == ["a", "b"]


@stored()
async def test_a_response_that_is_gone_does_not_block_its_conversation(kept):
    id = await made(kept, said("a"))
    await kept.db.write(
        lambda connection: connection.execute(
            update(schema.conversations).values(active="resp_gone")
        )
    )
    assert await held(kept, id) == ["a"]
    await kept.respond(ANNA, [said("b")], conversation=id)
    assert await held(kept, id) == ["a", "b"]


@pytest.mark.parametrize("id", ["conv_unknown", "", "nul\0", "x" * 200])
@stored()
async def test_what_is_unknown_is_not_found(kept, id):
    await made(kept)
    await _is_not_there(kept, ANNA, id)


@stored()
async def test_what_is_anothers_is_not_found(kept):
    id = await made(kept, said("a", "m_a"))
    await _is_not_there(kept, BERT, id)
    await kept.conversations.create(BERT, {}, [said("b")])
    await _is_not_there(kept, BERT, id)
    assert await held(kept, id) == ["a"]


async def _is_not_there(kept: Kept, owner, id: str) -> None:
    conversations = kept.conversations
    for call in (
        conversations.retrieve(owner, id),
        conversations.update(owner, id, {}),
        conversations.delete(owner, id),
        conversations.history(owner, id),
        conversations.add_items(owner, id, [said("x")]),
        conversations.list_items(owner, id),
        conversations.item(owner, id, "m_a"),
        conversations.delete_item(owner, id, "m_a"),
    ):
        with pytest.raises(NotFound) as raised:
            await call
        assert raised.value.what == id


@stored()
async def test_an_item_of_elsewhere_is_not_in_a_conversation(kept):
    id = await made(kept, said("a"))
    await kept.respond(ANNA, [said("b", "m_b")])
    for item in ("m_b", "nul\0"):
        with pytest.raises(NotFound):
            await kept.conversations.item(ANNA, id, item)


@stored(limits=lambda: StoreLimits(entry_bytes=1000))
async def test_items_are_no_larger_together_than_allowed(kept):
    with pytest.raises(TooLarge):
        await kept.conversations.create(ANNA, {}, [said("a" * 1000)])
    id = await made(kept, said("a" * 400))
    with pytest.raises(TooLarge):
        await kept.conversations.add_items(ANNA, id, [said("b" * 600)])
    assert await held(kept, id) == ["a" * 400]


@stored(blobs=DictBlobs)
async def test_large_items_are_kept_as_blobs(kept):
    large = "x" * (LARGE_BYTES + 1)
    id = await made(kept, said(large))
    await kept.conversations.add_items(ANNA, id, [said(large + "!", "m_2")])
    assert len(kept.lines.blobs.held) == 2
    assert await held(kept, id) == [large, large + "!"]
    assert texts([await kept.conversations.item(ANNA, id, "m_2")]) == [large + "!"]


@stored()
async def test_damaged_metadata_are_corrupt(kept):
    id = await made(kept, metadata={"a": "b"})

    def damage(connection):
        column = schema.conversations.c.metadata
        sealed = bytearray(connection.execute(select(column)).scalar_one())
        sealed[-2] ^= 1
        connection.execute(update(schema.conversations).values(metadata=bytes(sealed)))

    await kept.db.write(damage)
    with pytest.raises(Corrupt):
        await kept.conversations.retrieve(ANNA, id)
