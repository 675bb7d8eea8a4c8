"""Lines: how they grow, are copied and are read, and which items are the same."""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select, update
from stored import ANNA, BERT, DictBlobs, Kept, answered, said, stored

from antiphon.store import large_items, schema
from antiphon.store.failures import Corrupt
from antiphon.store.lines import LARGE_BYTES, BlobsWanted, Extended

LARGE = "x" * (LARGE_BYTES + 1)


async def extended(
    kept: Kept, line: int | None, length: int, *bodies, owner=ANNA, ready=None
) -> Extended:
    def work(connection):
        who = kept.shared.owners.locked(connection, owner)
        return kept.lines.extend(connection, who, line, length, bodies, ready=ready)

    return await kept.db.write(work)


async def read(kept: Kept, line: int, begin: int, end: int, owner=ANNA):
    def work(connection):
        who = kept.shared.owners.owner_of(connection, owner)
        return kept.lines.read_line(connection, line, begin, end, who)

    return await kept.db.read(work)


@stored()
async def test_the_end_of_a_line_is_appended_to(kept):
    one, two, three = said("one"), said("two"), said("three")
    first = await extended(kept, None, 0, one)
    second = await extended(kept, first.line, first.end, two, three)
    assert second.line == first.line
    assert second.end == 3
    assert await read(kept, first.line, 0, 3) == [one, two, three]
    assert await read(kept, first.line, 1, 2) == [two]
    assert await read(kept, first.line, 2, 2) == []
    assert await kept.count(schema.lines) == 1


@stored()
async def test_whoever_comes_second_gets_a_copy(kept):
    one, left, right = said("one"), said("left"), said("right")
    first = await extended(kept, None, 0, one)
    second = await extended(kept, first.line, 1, left)
    third = await extended(kept, first.line, 1, right)
    assert third.line != second.line
    assert await read(kept, second.line, 0, 2) == [one, left]
    assert await read(kept, third.line, 0, 2) == [one, right]
    assert await kept.count(schema.items) == 3


@stored()
async def test_nothing_new_copies_nothing(kept):
    first = await extended(kept, None, 0, said("one"), said("two"))
    again = await extended(kept, first.line, 1)
    assert (again.line, again.end, again.bodies) == (first.line, 1, [])
    assert await kept.count(schema.lines) == 1


@stored()
async def test_the_same_item_is_stored_once(kept):
    item = said("one", "msg_same")
    turned = dict(reversed(item.items()))
    first = await extended(kept, None, 0, item)
    second = await extended(kept, None, 0, turned, item)
    assert second.keys == [*first.keys, *first.keys]
    assert second.new_bytes == 0
    assert second.num_bytes == 2 * first.num_bytes
    assert first.new_bytes == first.num_bytes > 0
    assert await kept.count(schema.items) == 1
    assert await read(kept, second.line, 0, 2) == [item, item]


@stored()
async def test_another_content_gets_a_fresh_id_of_its_kind(kept):
    await extended(kept, None, 0, said("one", "msg_taken"))
    result = await extended(kept, None, 0, said("two", "msg_taken"), said("three", "msg_taken"))
    ids = [body["id"] for body in result.bodies]
    assert len({*ids, "msg_taken"}) == 3
    assert all(id.startswith("msg_") for id in ids)
    assert await read(kept, result.line, 0, 2) == result.bodies
    assert [body["content"][0]["text"] for body in result.bodies] == ["two", "three"]


@stored()
async def test_two_contents_under_one_id_in_one_request_are_two_items(kept):
    result = await extended(kept, None, 0, said("one", "msg_x"), said("two", "msg_x"))
    assert result.bodies[0]["id"] == "msg_x"
    assert result.bodies[1]["id"] != "msg_x"
    assert await read(kept, result.line, 0, 2) == result.bodies


@pytest.mark.parametrize("id", ["", "a b", "nul\0", "x" * 129, "ü", None, 7])
@stored()
async def test_an_id_that_is_none_is_replaced(kept, id):
    result = await extended(kept, None, 0, {**said("one"), "id": id})
    assert result.bodies[0]["id"].startswith("msg_")
    assert await read(kept, result.line, 0, 1) == result.bodies


@stored()
async def test_items_without_id_get_one_by_their_type(kept):
    kinds = {"reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_"}
    result = await extended(kept, None, 0, *({"type": kind} for kind in kinds))
    for body, prefix in zip(result.bodies, kinds.values(), strict=True):
        assert body["id"].startswith(prefix)


@stored()
async def test_the_same_id_is_another_item_for_another_owner(kept):
    anna = await extended(kept, None, 0, said("anna", "msg_1"))
    bert = await extended(kept, None, 0, said("bert", "msg_1"), owner=BERT)
    assert bert.bodies[0]["id"] == "msg_1"
    assert bert.keys != anna.keys
    assert await read(kept, bert.line, 0, 1, BERT) == [said("bert", "msg_1")]


@stored()
async def test_many_items_at_once(kept):
    items = [said(f"text {number}") for number in range(1201)]
    result = await extended(kept, None, 0, *items)
    again = await extended(kept, None, 0, *items)
    assert again.keys == result.keys
    assert await read(kept, result.line, 0, 1201) == items


@stored()
async def test_a_missing_place_is_corrupt(kept):
    result = await extended(kept, None, 0, said("one"), said("two"))
    places = schema.line_items
    await kept.db.write(
        lambda connection: connection.execute(delete(places).where(places.c.position == 0))
    )
    with pytest.raises(Corrupt):
        await read(kept, result.line, 0, 2)


@stored()
async def test_a_damaged_item_is_corrupt(kept):
    result = await extended(kept, None, 0, said("one"))

    def damage(connection):
        body = bytearray(connection.execute(select(schema.items.c.body)).scalar_one())
        body[-3] ^= 1
        connection.execute(update(schema.items).values(body=bytes(body)))

    await kept.db.write(damage)
    with pytest.raises(Corrupt):
        await read(kept, result.line, 0, 1)


@stored(blobs=DictBlobs)
async def test_a_large_item_waits_for_its_blob(kept):
    with pytest.raises(BlobsWanted):
        await extended(kept, None, 0, said(LARGE), ready=frozenset())
    assert not any((await kept.counts()).values())


@stored(blobs=DictBlobs)
async def test_a_large_item_is_kept_as_a_blob(kept):
    large, small = said(LARGE), said("small")

    def work(connection, ready):
        owner = kept.shared.owners.locked(connection, ANNA)
        return kept.lines.extend(connection, owner, None, 0, [large, small], ready=ready)

    result = await large_items.write(kept.shared, ANNA, work)
    again = await large_items.write(kept.shared, ANNA, work)
    assert again.keys == result.keys
    assert await read(kept, result.line, 0, 2) == [large, small]
    (name,) = kept.lines.blobs.held
    assert LARGE.encode() in kept.lines.blobs.held[name]
    assert await kept.count(schema.items, schema.items.c.blob == name) == 1
    assert await kept.count(schema.items, schema.items.c.body.is_(None)) == 1


@stored(blobs=DictBlobs)
async def test_a_damaged_blob_is_corrupt(kept):
    id = await kept.respond(ANNA, [said(LARGE)])
    for name, data in kept.lines.blobs.held.items():
        kept.lines.blobs.held[name] = data[:-1] + b"?"
    with pytest.raises(Corrupt):
        await kept.responses.history(ANNA, id)


@stored()
async def test_without_a_place_for_blobs_large_items_stay_in_the_database(kept):
    large = said(LARGE)
    result = await extended(kept, None, 0, large)
    assert await read(kept, result.line, 0, 1) == [large]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bodies=st.lists(st.dictionaries(texts.filter("id".__ne__), values, max_size=4), max_size=4))
@stored()
async def test_what_is_read_is_what_was_written(kept, bodies):
    result = await extended(kept, None, 0, *bodies)
    assert await read(kept, result.line, 0, len(bodies)) == result.bodies
    for body, kept_body in zip(bodies, result.bodies, strict=True):
        assert {k: v for k, v in kept_body.items() if k != "id"} == body


@pytest.mark.parametrize("text", ["\0", "\\u0000", "👩‍👩‍👧", "\u2028", "é\u0301", "\ufffe"])
@stored()
async def test_texts_come_back_to_the_character(kept, text):
    item = answered(text)
    result = await extended(kept, None, 0, item)
    assert await read(kept, result.line, 0, 1) == [item]


def test_what_json_cannot_hold_is_refused_before_it_comes_here():
    with pytest.raises(TypeError):
        orjson.dumps({"text": "\ud800"})
