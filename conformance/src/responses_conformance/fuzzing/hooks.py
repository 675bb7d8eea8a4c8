"""What schemathesis loads by its name: the checks, and what keeps the findings as cases."""

import json
import os
from pathlib import Path
from typing import Any

from schemathesis import cli
from schemathesis.engine import events

from responses_conformance.fuzzing import checks
from responses_conformance.fuzzing.command import KEPT_IN
from responses_conformance.fuzzing.found import Found, Made, Smallest, write


@cli.handler()
class Keeper(cli.EventHandler):
    """Writes what was found at the end of a run; nothing if there is nothing."""

    def __init__(self, *args: Any, **params: Any) -> None:
        self._found = Smallest()
        self._made = Made()

    def handle_event(self, ctx: Any, event: Any) -> None:
        """Take in what a scenario found."""
        if not isinstance(event, events.ScenarioFinished):
            return
        for interaction in event.recorder.interactions.values():
            if interaction.response is not None:
                self._made.add(checks.exchanged(interaction.response))
        for identity in event.recorder.failing_case_ids():
            exchanges = self._made.before(_chain(event.recorder, identity))
            for check in event.recorder.checks[identity]:
                if check.failure_info is not None and exchanges:
                    failure = check.failure_info.failure
                    self._found.add(Found(check.name, str(failure.message), exchanges))

    def shutdown(self, ctx: Any) -> None:
        """Write the cases."""
        told = os.environ.get(KEPT_IN)
        if told and len(self._found):
            kept = json.loads(told)
            write(self._found, Path(kept.pop("file")), **kept)


def _chain(recorder: Any, identity: str) -> tuple[Any, ...]:
    """The exchanges that lead to a request, itself last; none if one of them had no answer."""
    exchanges = []
    current: str | None = identity
    while current is not None:
        interaction = recorder.interactions.get(current)
        if interaction is None or interaction.response is None:
            return ()
        exchanges.append(checks.exchanged(interaction.response))
        node = recorder.cases.get(current)
        current = node.parent_id if node is not None else None
    return tuple(reversed(exchanges))
