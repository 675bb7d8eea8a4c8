"""The points where a server can be told to die, as `kill -9` would have it, and another fault.

Each wraps something of the product, which knows nothing of it.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

Die = Callable[[], None]


def set_up(mark: str, after: int) -> None:
    """Have this process die when it comes to a mark for the `after`th time."""
    left = after

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    (MARKS | FAULTS)[mark](die)


def _after(owner: Any, name: str, die: Die, *, only_if: Callable[[Any], bool] = bool) -> None:
    """Come to it whenever a function has returned something that counts."""
    inner = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = inner(*arguments, **named)
        if only_if(result):
            die()
        return result

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, die: Die, *, only_if: Callable[..., bool]) -> None:
    """Come to it whenever a function is called with arguments that count."""
    inner = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if only_if(*arguments):
            die()
        return inner(*arguments, **named)

    setattr(owner, name, wrapped)


def _any(*_: Any) -> bool:
    return True


def _accept_uncommitted(die: Die) -> None:
    from antiphon.store.acceptance import Acceptance

    _after(Acceptance, "store", die)


def _accept_unanswered(die: Die) -> None:
    from antiphon.responses.stored import StoredResponses

    inner = StoredResponses.begin

    async def begin(*arguments: Any, **named: Any) -> Any:
        answer = await inner(*arguments, **named)
        die()
        return answer

    StoredResponses.begin = begin  # type: ignore[method-assign]


def _claim_uncommitted(die: Die) -> None:
    from antiphon.store import runs

    _after(runs, "claim", die)


def _claim_committed(die: Die) -> None:
    from antiphon.store import runs

    _before(runs, "load", die, only_if=_any)


def _append_uncommitted(die: Die) -> None:
    from antiphon.store.runs import SqlRuns

    _after(SqlRuns, "_append", die, only_if=_any)


def _append_untold(die: Die) -> None:
    from antiphon.store.database import Database

    # An append tells of responses, and what else is committed does not.
    _before(
        Database,
        "_told",
        die,
        only_if=lambda _, topics: any(topic.startswith("resp_") for topic in topics),
    )


def _append_unread(die: Die) -> None:
    from antiphon.responses.journal import StoredLog

    _before(StoredLog, "committed", die, only_if=_any)


def _event_unsent(die: Die) -> None:
    from antiphon.http import answers

    inner = answers.body_send

    def body_send(*arguments: Any) -> Any:
        send = inner(*arguments)

        async def dying(message: Any) -> None:
            die()
            await send(message)

        return dying

    answers.body_send = body_send


def _event_sent(die: Die) -> None:
    from antiphon.http import answers

    inner = answers.body_send

    def body_send(*arguments: Any) -> Any:
        send = inner(*arguments)

        async def dying(message: Any) -> None:
            await send(message)
            die()

        return dying

    answers.body_send = body_send


def _end_uncommitted(die: Die) -> None:
    from antiphon.store import endings

    _after(endings, "write_end", die, only_if=_any)


def _end_unsent(die: Die) -> None:
    from antiphon.responses.journal import StoredLog

    _before(StoredLog, "committed", die, only_if=lambda _, append: append.end is not None)


#: Each by its name, and in what order a response comes to them.
MARKS: dict[str, Callable[[Die], None]] = {
    "accept uncommitted": _accept_uncommitted,
    "accept unanswered": _accept_unanswered,
    "claim uncommitted": _claim_uncommitted,
    "claim committed": _claim_committed,
    "append uncommitted": _append_uncommitted,
    "append untold": _append_untold,
    "append unread": _append_unread,
    "event unsent": _event_unsent,
    "event sent": _event_sent,
    "end uncommitted": _end_uncommitted,
    "end unsent": _end_unsent,
}


def _hang(_: Die) -> None:
    from antiphon.models.scripted import ScriptedGeneration

    async def released(_: Any) -> None:
        await asyncio.Event().wait()

    ScriptedGeneration.released = released  # type: ignore[method-assign]


#: What a server may suffer from without dying.
FAULTS: dict[str, Callable[[Die], None]] = {"hang": _hang}
