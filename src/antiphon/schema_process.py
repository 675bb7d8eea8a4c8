"""Looks at schemas and compares with them in a process that does nothing else and can be killed.

`python -m antiphon.schema_process` reads lines of JSON and answers each with lines of JSON: what is
wrong, behind its place in the schema and the keyword, or null. To `{seconds, text, schema}` there
is one line; to `{seconds, limits, schemas}`, of which each is `[schema, strict]`, there is one for
each schema up to the first that is not taken. What takes longer than so many seconds of a processor
ends the process by SIGPROF.
"""

import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

from antiphon.schemas import SchemaLimits, validate_answer, why_not_taken


def _serve() -> None:
    """Answer what is asked until nobody asks any more."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        # Ends this process, wherever it is, also if nobody is there any more who would.
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        for wrong in _answers(asked):
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.write(json.dumps(wrong) + "\n")
            sys.stdout.flush()
            if wrong is not None:
                break
            signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answers(asked: dict[str, Any]) -> Iterator[list[str] | None]:
    if "text" in asked:
        reason = validate_answer(asked["text"], asked["schema"])
        yield None if reason is None else ["", "", reason]
        return
    limits = SchemaLimits(**asked["limits"])
    for schema, strict in asked["schemas"]:
        error = why_not_taken(schema, strict=strict, limits=limits)
        yield None if error is None else [error.pointer, error.keyword, error.reason]


if __name__ == "__main__":
    _serve()
