"""Webhook calls are claimed by one process at a time, and by another if that one is gone."""

import asyncio

import orjson
import pytest
from sqlalchemy import insert, select, update

from antiphon.store.deliveries import CLAIM_SECONDS, Delivery, SqlDeliveries
from antiphon.store.failures import Corrupt
from antiphon.store.keyring import MasterKey, MasterKeys
from antiphon.store.schema import deliveries, owners
from antiphon.store.sealing import AesSealer, PlainSealer

START = 1_000_000.0
SEALERS = {
    "plain": PlainSealer(),
    "encrypted": AesSealer(MasterKeys([MasterKey("mk_1", "", b"m" * 32)])),
}


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=list(SEALERS))
def sealer(request):
    return SEALERS[request.param]


@pytest.fixture
def database(store_url, opened):
    return opened(store_url)


@pytest.fixture
def kept(database, sealer, clock) -> SqlDeliveries:
    return SqlDeliveries(database, sealer, clock)


def store(database, sealer, *numbers: int, due_at: float = START) -> None:
    """Store calls as whoever ends a run does, each a second later than the one before."""

    def work(connection) -> None:
        data_key = sealer.new_data_key()
        owner = connection.execute(
            insert(owners).values(id=f"key_{numbers}", data_key=data_key)
        ).inserted_primary_key[0]
        for number in numbers:
            payload = orjson.dumps(
                {
                    "type": "response.completed",
                    "response_id": f"resp_{number}",
                    "created_at": 999_000 + number,
                }
            )
            sealed = sealer.box(data_key).seal(payload, f"delivery:evt_{number}")
            connection.execute(
                insert(deliveries).values(
                    id=f"evt_{number}",
                    owner=owner,
                    payload=sealed,
                    created_at=START - 1,
                    due_at=due_at + number,
                )
            )

    asyncio.run(database.write(work))


def test_what_is_due_is_claimed_once_and_in_order(database, sealer, kept, clock):
    store(database, sealer, 2, 1, 3)
    clock.now += 2
    claimed = asyncio.run(kept.due(10))
    assert [delivery.id for delivery in claimed] == ["evt_1", "evt_2"]
    assert claimed[0] == Delivery(
        id="evt_1",
        type="response.completed",
        response_id="resp_1",
        created_at=999_001,
        queued_at=START - 1,
        attempt=1,
    )
    assert asyncio.run(kept.due(10)) == ()


def test_no_more_are_claimed_than_asked_for(database, sealer, kept, clock):
    store(database, sealer, *range(5))
    clock.now += 5
    assert [len(asyncio.run(kept.due(2))) for _ in range(4)] == [2, 2, 1, 0]


def test_a_claim_runs_out_when_nobody_tells_how_it_went(database, sealer, kept, clock):
    store(database, sealer, 0)
    asyncio.run(kept.due(10))
    clock.now += CLAIM_SECONDS - 1
    assert not asyncio.run(kept.due(10))
    clock.now += 1
    (again,) = asyncio.run(kept.due(10))
    assert again.attempt == 2


def test_what_was_sent_is_gone(database, sealer, kept, clock):
    store(database, sealer, 0, 1)
    clock.now += 1
    first, _ = asyncio.run(kept.due(10))
    asyncio.run(kept.remove(first))
    clock.now += CLAIM_SECONDS
    assert [delivery.id for delivery in asyncio.run(kept.due(10))] == ["evt_1"]


def test_what_failed_is_due_again_when_it_was_said_to_be(database, sealer, kept, clock):
    store(database, sealer, 0)
    (delivery,) = asyncio.run(kept.due(10))
    asyncio.run(kept.retry(delivery, START + 5))
    assert asyncio.run(kept.next_due()) == START + 5
    assert not asyncio.run(kept.due(10))
    clock.now = START + 5
    (again,) = asyncio.run(kept.due(10))
    assert (again.id, again.attempt) == ("evt_0", 2)


def test_who_lost_a_claim_does_not_shorten_the_other_ones(database, sealer, kept, clock):
    store(database, sealer, 0)
    (slow,) = asyncio.run(kept.due(10))
    clock.now += CLAIM_SECONDS
    asyncio.run(kept.due(10))
    asyncio.run(kept.retry(slow, clock.now))
    assert not asyncio.run(kept.due(10))


def test_nothing_is_due_where_nothing_is_stored(kept):
    assert asyncio.run(kept.next_due()) is None
    assert not asyncio.run(kept.due(10))


def test_processes_share_the_calls_and_none_is_claimed_twice(shared_url, opened, clock):
    sealer = SEALERS["plain"]
    one, other = (SqlDeliveries(opened(shared_url), sealer, clock) for _ in range(2))
    store(opened(shared_url), sealer, *range(40))
    clock.now += 40

    async def claim(kept: SqlDeliveries) -> list[str]:
        names = []
        while batch := await kept.due(3):
            names += [delivery.id for delivery in batch]
        return names

    async def both() -> list[list[str]]:
        return await asyncio.gather(claim(one), claim(other))

    first, second = asyncio.run(both())
    # One may find all that is left locked by the other and stop early; what it left is not lost.
    clock.now += 1
    left = asyncio.run(claim(one))
    assert sorted(first + second + left) == sorted(f"evt_{number}" for number in range(40))


def test_a_damaged_call_keeps_no_other_back_and_goes_in_the_end(database, sealer, kept, clock):
    store(database, sealer, 0, 1)

    def damage(connection) -> None:
        row = connection.execute(select(deliveries).where(deliveries.c.id == "evt_0")).one()
        damaged = row.payload[:-1] + bytes([row.payload[-1] ^ 1])
        connection.execute(
            update(deliveries).where(deliveries.c.key == row.key).values(payload=damaged)
        )

    asyncio.run(database.write(damage))
    clock.now += 1
    assert [delivery.id for delivery in asyncio.run(kept.due(10))] == ["evt_1"]
    assert not asyncio.run(kept.due(10))
    clock.now += 8 * 86400
    assert [delivery.id for delivery in asyncio.run(kept.due(10))] == ["evt_1"]
    assert asyncio.run(kept.next_due()) == clock.now + CLAIM_SECONDS


def test_a_call_that_another_key_ring_opens_is_kept_for_it(database, clock):
    store(database, SEALERS["encrypted"], 0)
    without = SqlDeliveries(database, PlainSealer(), clock)
    assert not asyncio.run(without.due(10))
    clock.now += 3600
    (delivery,) = asyncio.run(SqlDeliveries(database, SEALERS["encrypted"], clock).due(10))
    assert delivery.response_id == "resp_0"


def test_the_payload_is_sealed_in_its_place(database, clock):
    sealer = SEALERS["encrypted"]
    store(database, sealer, 0)

    def look(connection):
        return connection.execute(
            select(deliveries.c.payload, owners.c.data_key).join_from(deliveries, owners)
        ).one()

    payload, data_key = asyncio.run(database.read(look))
    assert b"resp_0" not in payload
    with pytest.raises(Corrupt):
        sealer.box(data_key).open(payload, "delivery:evt_1")
