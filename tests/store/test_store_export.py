"""Export and statistics on every kind of database."""

import orjson
import pytest
from sqlalchemy import select, update
from stored import ANNA, BERT, CREATED, ENDED, DictBlobs, Kept, answered, body_of, said, stored

from antiphon.store import schema
from antiphon.store.export import export
from antiphon.store.failures import NotFound
from antiphon.store.lines import LARGE_BYTES
from antiphon.store.records import StoreStats
from antiphon.store.stats import stats


async def exported(kept: Kept, owner=None) -> list[dict]:
    return [orjson.loads(orjson.dumps(entry)) async for entry in export(kept.shared, owner)]


@stored()
async def test_responses_and_conversations_are_exported_whole(kept):
    a, b, c = said("a"), answered("b"), said("c")
    first = await kept.respond(ANNA, [a], [b])
    second = await kept.respond(ANNA, [c], previous=first)
    conversation = await kept.conversations.create(ANNA, {"k": "v"}, [a])
    assert await exported(kept) == [
        {
            "object": "response",
            "owner": ANNA.id,
            "response": body_of(first, status="completed", output=[b]),
            "input": [a],
        },
        {
            "object": "response",
            "owner": ANNA.id,
            "response": body_of(second, status="completed", previous_response_id=first),
            "input": [c],
        },
        {
            "object": "conversation",
            "owner": ANNA.id,
            "id": conversation.id,
            "created_at": 1_000_000,
            "metadata": {"k": "v"},
            "items": [a],
        },
    ]


@stored()
async def test_history_is_exported_where_what_it_was_is_gone(kept):
    a, b, c = said("a"), said("b"), said("c")
    first = await kept.respond(ANNA, [a])
    await kept.respond(ANNA, [b], previous=first)
    conversation = (await kept.conversations.create(ANNA, {}, [a])).id
    await kept.respond(ANNA, [c], conversation=conversation)
    assert not any("history" in entry for entry in await exported(kept))
    await kept.responses.delete(ANNA, first)
    await kept.conversations.delete(ANNA, conversation)
    entries = await exported(kept)
    assert [(entry["history"], entry["input"]) for entry in entries] == [([a], [b]), ([a], [c])]


@stored()
async def test_an_owner_gets_their_own(kept):
    await kept.respond(ANNA, [said("a")])
    for text in ("b", "c"):
        await kept.respond(BERT, [said(text)])
    await kept.conversations.create(BERT, {}, [])
    assert [entry["owner"] for entry in await exported(kept, ANNA)] == [ANNA.id]
    assert [entry["owner"] for entry in await exported(kept, BERT)] == 3 * [BERT.id]
    assert len(await exported(kept)) == 4


@stored()
async def test_who_has_nothing_is_not_found(kept):
    await kept.respond(ANNA, [said("a")])
    with pytest.raises(NotFound):
        await exported(kept, BERT)


@stored()
async def test_expired_responses_are_not_exported(kept):
    await kept.respond(ANNA, [said("a")])
    kept.now += kept.shared.limits.retention_seconds
    assert await exported(kept) == []


@stored()
async def test_more_than_one_transaction_reads_are_exported_in_order(kept):
    ids = [await kept.respond(ANNA, [said(str(number))]) for number in range(45)]
    assert [entry["response"]["id"] for entry in await exported(kept)] == ids


@stored()
async def test_what_is_damaged_is_named_and_the_rest_exported(kept):
    ids = [await kept.respond(ANNA, [said(text)]) for text in "abc"]
    responses = schema.responses

    def damage(connection):
        query = select(responses.c.body).where(responses.c.id == ids[1])
        body = bytearray(connection.execute(query).scalar_one())
        body[15] ^= 1
        connection.execute(update(responses).where(responses.c.id == ids[1]), {"body": bytes(body)})

    await kept.db.write(damage)
    entries = await exported(kept)
    assert [entry["object"] for entry in entries] == ["response", "unreadable", "response"]
    assert entries[1]["id"] == ids[1]
    assert ids[1] in entries[1]["reason"]


@stored(blobs=DictBlobs)
async def test_everything_is_counted(kept):
    assert await stats(kept.shared) == StoreStats()
    await kept.respond(ANNA, [said("a")], [answered("x" * (LARGE_BYTES + 1))])
    await kept.begin(ANNA, [said("b")])
    await kept.begin(BERT, status="queued", worker=None)
    await kept.conversations.create(BERT, {}, [])
    counted = await stats(kept.shared)
    assert counted.item_bytes > LARGE_BYTES
    assert counted.blob_bytes > LARGE_BYTES
    assert counted == StoreStats(
        responses=3,
        queued=1,
        running=1,
        conversations=1,
        items=3,
        item_bytes=counted.item_bytes,
        events=4,
        event_bytes=3 * len(CREATED) + len(ENDED),
        blobs=1,
        blob_bytes=counted.blob_bytes,
    )
