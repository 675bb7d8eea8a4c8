"""Servers that are killed among their clients, at every marked point and at random ones."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from crashing import Outcome, Plan, Site, run_round
from launcher import Launcher
from marks import MARKS

_READERS = 8
#: Rounds that run at once, each with servers of its own.
_ABREAST = 3
_ATTEMPTS = 4

#: How often a mark is passed before the server dies there: so that others are in other states.
_AFTER = {
    "accept uncommitted": 4,
    "accept unanswered": 4,
    "claim uncommitted": 3,
    "claim committed": 3,
    "append uncommitted": 12,
    "append untold": 12,
    "append unread": 40,
    "event unsent": 60,
    "event sent": 90,
    "end uncommitted": 2,
    "end unsent": 2,
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


async def _run_all(plans: Sequence[Plan], sites: Sequence[Site], done: list[Outcome]) -> None:
    """Run a round for each plan, one after the other on each site."""
    waiting = iter(enumerate(plans))

    async def run(site: Site) -> None:
        for number, plan in waiting:
            # Who gets to a mark is left to chance where two servers share the work.
            for attempt in range(_ATTEMPTS):
                seed = number * _ATTEMPTS + attempt
                outcome = await run_round(
                    site, plan, num_readers=_READERS, seed=seed, background_in_four=2
                )
                if outcome.reached or outcome.complaints:
                    break
            done.append(outcome)

    try:
        await asyncio.gather(*(run(site) for site in sites))
    finally:
        for site in sites:
            site.close()


def _check(outcomes: Sequence[Outcome], plans: Sequence[Plan]) -> None:
    assert len(outcomes) == len(plans)
    for outcome in outcomes:
        assert not outcome.complaints, (outcome.plan, outcome.complaints)
        assert outcome.reached, outcome.plan
    # What a crash can do to a response was done to some.
    assert sum(outcome.num_failed for outcome in outcomes)
    assert sum(outcome.num_made_again for outcome in outcomes)
    assert sum(outcome.num_resumed for outcome in outcomes)


def _plans(chance: random.Random, share: float) -> list[Plan]:
    marked = [Plan(mark, max(1, int(_AFTER[mark] * share))) for mark in MARKS]
    return [*marked, *(Plan(None, chance.uniform(0.1, 0.8)) for _ in range(2))]


def test_a_restarted_server_goes_on_with_everything(launcher: Launcher, tmp_path: Path) -> None:
    plans = _plans(random.Random(1), 1.0)
    plans += [Plan(None, 0.4, again="claim committed"), Plan(None, 0.4, again="end uncommitted")]
    sites = [Site(launcher, tmp_path / str(n), "", survives=False) for n in range(_ABREAST)]
    outcomes: list[Outcome] = []
    asyncio.run(_run_all(plans, sites, outcomes))
    _check(outcomes, plans)


def test_another_server_goes_on_with_everything(
    launcher: Launcher, tmp_path: Path, postgres_urls: Callable[[], str]
) -> None:
    plans = _plans(random.Random(2), 0.25)
    sites = [
        Site(launcher, tmp_path / str(n), postgres_urls(), survives=True) for n in range(_ABREAST)
    ]
    outcomes: list[Outcome] = []
    asyncio.run(_run_all(plans, sites, outcomes))
    _check(outcomes, plans)
