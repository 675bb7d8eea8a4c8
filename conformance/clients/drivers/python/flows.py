"""What the Python drivers share: where the server is, and how flows are told of.

`BASE_URL` (ends in `/v1`), `API_KEY` and `MODEL` come from the environment. Each flow is told of by
a line of JSON on stdout, and as it begins to the `RECORDER`, if there is one. With `REAL=1` only
those flows run that ask nothing of what is said.
"""

import asyncio
import inspect
import json
import os
import signal
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from typing import Any

BASE_URL = os.environ["BASE_URL"]
API_KEY = os.environ["API_KEY"]
MODEL = os.environ["MODEL"]
#: A model whose context holds 40 words.
TINY = "tiny"

#: A client that hangs fails its flow after so many seconds.
_PATIENCE = 90

CITY = {"name": "Paris", "population": 2102650}
WEATHER = {"Paris": "21 degrees in Paris", "Oslo": "3 degrees in Oslo"}
#: What the script says once it heard of the weather.
ONE_CITY = "It is 21 degrees in Paris."
TWO_CITIES = "It is 21 degrees in Paris and 3 in Oslo."
TOO_LONG = "This is far too long. " * 40


def same(got: object, wanted: object) -> None:
    if got != wanted:
        raise AssertionError(f"{wanted!r} was expected, but it is {got!r}"[:600])


def holds(truth: object, about: str) -> None:
    if not truth:
        raise AssertionError(about)


class Flows:
    """The flows of a driver, in their order."""

    def __init__(self) -> None:
        self._flows: list[tuple[str, Callable[[], Any]]] = []

    def of(self, group: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """Marks a function as a flow of `group`, one of answer, stream, tools, structured, turns,
        resume, errors and real."""

        def add(flow: Callable[[], Any]) -> Callable[[], Any]:
            self._flows.append((group, flow))
            return flow

        return add

    def main(self) -> None:
        real = os.environ.get("REAL") == "1"
        only = os.environ.get("FLOWS", "").split()
        chosen = [
            (group, flow)
            for group, flow in self._flows
            if (group == "real") == real and (not only or flow.__name__ in only)
        ]
        # One loop for all, as clients keep their connections on the loop they were made on.
        with asyncio.Runner() as runner:
            failed = sum(not _told(group, flow, runner) for group, flow in chosen)
        sys.stdout.flush()
        os._exit(1 if failed else 0)  # Some clients leave threads behind that never end.


def _told(group: str, flow: Callable[[], Any], runner: asyncio.Runner) -> bool:
    """Run a flow and tell of it."""
    started = time.monotonic()
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_PATIENCE)
    why = ""
    _begin(flow.__name__)
    try:
        result = flow()
        if inspect.iscoroutine(result):
            runner.run(asyncio.wait_for(result, _PATIENCE))
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"[:800]
        traceback.print_exc()
    finally:
        signal.alarm(0)
    told = {
        "group": group,
        "flow": flow.__name__,
        "passed": not why,
        "why": why,
        "seconds": round(time.monotonic() - started, 2),
    }
    print(json.dumps(told), flush=True)
    return not why


def _begin(flow: str) -> None:
    """Tell what records requests which flow they are of."""
    if recorder := os.environ.get("RECORDER"):
        begun = urllib.request.Request(f"{recorder}/flow/{flow}", method="POST")
        urllib.request.urlopen(begun, timeout=_PATIENCE).close()


def _give_up(*_: object) -> None:
    raise TimeoutError(f"nothing came of it in {_PATIENCE} s")
