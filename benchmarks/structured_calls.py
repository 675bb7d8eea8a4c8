"""Calls that models of random weights are forced to make, in every dialect."""

import asyncio
import importlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figure import Figure

from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.dialects.families import DIALECTS

_WANTED = 200
_AT_ONCE = 16


def calls() -> Iterator[Figure]:
    """For each codec: how many of the calls of a turn are as they have to be."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    forced_calls = importlib.import_module("forced_calls")
    groups: dict[str, list[Dialect]] = defaultdict(list)
    for row in DIALECTS.values():
        groups["channels" if row.channels else row.codec].append(row)
    for codec, rows in groups.items():
        outcomes: list[Any] = []
        for row in rows:
            with forced_calls.speaking(row) as model:
                share = -(-_WANTED // len(rows))
                outcomes += asyncio.run(_turns(forced_calls, model, row, share))
        done = [one for one in outcomes if one.finish == "stop"]
        for one in done:
            if one.wrong:
                print(f"    {one.wrong}")
        right = sum(one.wrong is None for one in done)
        number = sum(len(one.calls) for one in done)
        title = f"{codec}: {number} calls in {len(done)} turns of {len(rows)} dialects, right"
        yield Figure(title, 100 * right / max(1, len(done)), "%", 100, at_least=True)
        yield Figure(
            f"{codec}: turns with a call that came to an end", len(done), "", _WANTED, True
        )


async def _turns(forced_calls: Any, model: Any, row: Dialect, wanted: int) -> list[Any]:
    """As many turns in a dialect as are wanted, and those that come to no end besides."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> Any:
        async with places:
            return await forced_calls.force(model, forced_calls.forced_turn(row, number))

    outcomes: list[Any] = []
    while sum(outcome.finish == "stop" for outcome in outcomes) < wanted:
        begin = len(outcomes)
        outcomes += await asyncio.gather(*map(one, range(begin, begin + wanted)))
    return outcomes
