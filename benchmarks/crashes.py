"""Kills servers among their clients and reports what the clients find afterwards.

    python benchmarks/crashes.py --rounds 50 --state sqlite
    python benchmarks/crashes.py --rounds 50 --state postgres

In every round twenty clients create background streams, their server is killed with SIGKILL at a
marked or at a random point, and they read on: on SQLite from the same server, started again; on
PostgreSQL from another one that was there all the time. In every fourth random round on SQLite the
restarted server is killed, too, while it takes over. Then all that any client was ever told is
compared with the log. Exits 1 if anything is wrong: an accepted response that is not there or has
no end, a log with a gap or without exactly one end, an event that was sent and is not in the log, a
response that says what two executions said, one that failed or was made again and should not have
been, a client without an end after 30 seconds.

With `--background 2` two of four streams are foreground ones, whose events come straight from the
process that makes them. With `--state postgres` a PostgreSQL server is started, which must be
installed.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "crash")]

from crashing import Outcome, Plan, Site, run_round  # type: ignore[import-not-found]  # noqa: E402
from launcher import Launcher  # type: ignore[import-not-found]  # noqa: E402
from marks import MARKS  # type: ignore[import-not-found]  # noqa: E402
from postgres import running_postgres  # type: ignore[import-not-found]  # noqa: E402

#: How often a server may come to a mark with twenty clients before it dies there.
_MOST = {
    "accept uncommitted": 18,
    "accept unanswered": 18,
    "claim uncommitted": 15,
    "claim committed": 15,
    "append uncommitted": 60,
    "append untold": 60,
    "append unread": 150,
    "event unsent": 400,
    "event sent": 400,
    "end uncommitted": 6,
    "end unsent": 10,
}
_COLUMNS: dict[str, Callable[[list[Outcome]], float]] = {
    "rounds": len,
    "at mark": lambda outcomes: sum(o.reached for o in outcomes),
    "accepted": lambda outcomes: sum(o.num_accepted for o in outcomes),
    "events": lambda outcomes: sum(o.num_events for o in outcomes),
    "had ended": lambda outcomes: sum(o.num_ended_before for o in outcomes),
    "made again": lambda outcomes: sum(o.num_made_again for o in outcomes),
    "failed": lambda outcomes: sum(o.num_failed for o in outcomes),
    "from living": lambda outcomes: sum(o.num_taken_from_living for o in outcomes),
    "slowest s": lambda outcomes: max(round(o.slowest_seconds, 1) for o in outcomes),
    "wrong": lambda outcomes: sum(len(o.complaints) for o in outcomes),
}


def plans(rounds: int, seed: int, *, shared: bool) -> Iterator[Plan]:
    """Every second round dies at a random point, the others at each mark in turn."""
    chance = random.Random(seed)
    names = list(MARKS)
    for number in range(rounds):
        if number % 2:
            again = chance.choice(names[2:]) if not shared and number % 8 == 1 else None
            yield Plan(None, chance.uniform(0.03, 1.3), again)
        else:
            mark = names[number // 2 % len(names)]
            most = _MOST[mark] // 3 if shared else _MOST[mark]
            yield Plan(mark, chance.randint(1, most))


def show(outcomes: list[Outcome]) -> None:
    """Print a table by mark."""
    by_mark: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_mark.setdefault(outcome.plan.mark or "at random", []).append(outcome)
    print(f"{'killed':<20}" + "".join(f"{name:>12}" for name in _COLUMNS))
    for name in (*MARKS, "at random"):
        if name in by_mark:
            figures = [count(by_mark[name]) for count in _COLUMNS.values()]
            print(f"{name:<20}" + "".join(f"{figure:>12}" for figure in figures))
    figures = [count(outcomes) for count in _COLUMNS.values()]
    print(f"{'all':<20}" + "".join(f"{figure:>12}" for figure in figures))
    for outcome in outcomes:
        for complaint in outcome.complaints[:5]:
            print(f"{outcome.plan}: {complaint}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--state", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--background", type=int, default=4, help="so many streams of four")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shared = arguments.state == "postgres"
    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = ""
        if shared:
            server = stack.enter_context(running_postgres())
            url = server.url(server.create())
        launcher = stack.enter_context(contextlib.closing(Launcher()))
        site = stack.enter_context(contextlib.closing(Site(launcher, folder, url, survives=shared)))
        for number, plan in enumerate(plans(arguments.rounds, arguments.seed, shared=shared)):
            seed = 1000 * arguments.seed + number
            outcome = asyncio.run(
                run_round(
                    site,
                    plan,
                    num_readers=arguments.readers,
                    seed=seed,
                    background_in_four=arguments.background,
                )
            )
            outcomes.append(outcome)
            state = "; ".join(outcome.complaints[:3]) or "ok"
            print(f"round {number + 1}: {plan.mark or 'at random'}: {state}", file=sys.stderr)
    show(outcomes)
    return 1 if any(outcome.complaints for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
