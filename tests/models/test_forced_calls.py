"""Calls of models of random weights: whatever they would say, they make the call."""

import asyncio

import pytest
from forced_calls import Forced, force, forced_turn, speaking
from tiny_models import run

from antiphon.formats.dialects.families import DIALECTS

_TURNS = 6


@pytest.mark.parametrize("name", DIALECTS)
def test_a_forced_call_is_made_and_fits_in_every_dialect(name: str):
    row = DIALECTS[name]

    with speaking(row) as model:

        async def all_at_once() -> list[Forced]:
            turns = [forced_turn(row, number) for number in range(_TURNS)]
            return await asyncio.gather(*(force(model, turn) for turn in turns))

        forced = run(all_at_once())
    assert [one.wrong for one in forced if one.wrong] == []
    assert (
        sum(one.finish == "stop" for one in forced) >= _TURNS - 2
    )  # Others go on calling to the limit.
