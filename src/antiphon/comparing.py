"""Compares what models say with clients' schemas, so that neither holds up anybody else.

Schemas may take any time, as they can be written to, and they are compared under the interpreter's
lock. What may take long is therefore done by processes that do nothing else and can be killed:
`python -m antiphon.comparing` reads lines of JSON, `[seconds, schema, text]`, and answers each with
a line of JSON: what is wrong, or null. Without a text, that is with the patterns of the schema.
"""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Protocol

from antiphon.schema_places import Schema
from antiphon.schemas import InvalidSchema, check_patterns, json_text, validate_answer

#: Within this product of characters, without what can multiply the work, a millisecond or two.
_SMALL = 1 << 20
_PATTERN = '"pattern'
_MULTIPLYING = ('"$ref"', '"$dynamicRef"', _PATTERN, '"regex"')


class Comparing(Protocol):
    """Compares with schemas that have been through `check_schema`."""

    async def compare(self, text: str, schema: Schema) -> str | None:
        """What is wrong with a JSON text by a schema; None if nothing is."""
        ...

    async def check_patterns(self, schema: Schema) -> None:
        """Raise `InvalidSchema` for a pattern that cannot be used."""
        ...


class ComparedHere:
    """Compares on a thread of this process, however long it takes."""

    async def compare(self, text: str, schema: Schema) -> str | None:
        return await asyncio.to_thread(validate_answer, text, schema)

    async def check_patterns(self, schema: Schema) -> None:
        await asyncio.to_thread(check_patterns, schema)


class Comparer:
    """Compares in this process what is quickly done, and all else in one of `processes` others,
    which are begun when they are needed. What takes more than `seconds` of a processor is given up:
    a text then counts as one that does not fit, and a pattern as one that cannot be used. For one
    event loop; close it."""

    def __init__(self, *, processes: int = 2, seconds: float = 5) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(processes)
        self._processes: set[Process] = set()
        self._idle: list[Process] = []
        self._comparing: set[asyncio.Task[list[str] | None]] = set()

    async def compare(self, text: str, schema: Schema) -> str | None:
        written = json_text(schema)
        if len(text) * len(written) <= _SMALL and not any(word in written for word in _MULTIPLYING):
            return await asyncio.to_thread(validate_answer, text, schema)
        wrong = await self._found(f"[{self._seconds},{written},{json.dumps(text)}]\n")
        return None if wrong is None else wrong[-1]

    async def check_patterns(self, schema: Schema) -> None:
        written = json_text(schema)
        if _PATTERN not in written:
            return
        wrong = await self._found(f"[{self._seconds},{written},null]\n")
        if wrong is not None:
            raise InvalidSchema(*wrong)

    async def _found(self, request: str) -> list[str] | None:
        # Goes on if nobody waits for it any more, so that no process is left with half of it.
        task = asyncio.create_task(self._elsewhere(request.encode("utf-8", "surrogatepass")))
        self._comparing.add(task)
        task.add_done_callback(self._comparing.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop the processes, whatever they are at."""
        for task in self._comparing:
            task.cancel()
        await asyncio.gather(*self._comparing, return_exceptions=True)
        for process in list(self._processes):
            await self._stop(process)

    async def _elsewhere(self, request: bytes) -> list[str] | None:
        async with self._free:
            while True:
                is_fresh = not self._idle
                process = await self._begun() if is_fresh else self._idle.pop()
                answer = await _answered(process, request)
                if answer:
                    self._idle.append(process)
                    wrong: list[str] | None = json.loads(answer)
                    return wrong
                await self._stop(process)
                if process.returncode == -signal.SIGPROF:
                    return ["", "", f"its schema takes more than {self._seconds:g} s"]
                if is_fresh:  # Else it may have died while it had nothing to do.
                    return ["", "", "its schema takes too much memory"]

    async def _begun(self) -> Process:
        # In a session of its own, so that what interrupts this process lets comparisons end.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "antiphon.comparing"),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        self._processes.add(process)
        return process

    async def _stop(self, process: Process) -> None:
        """See to it that a process ends, if it has not closed its output because it does."""
        if process.stdout is None or not process.stdout.at_eof():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        self._processes.discard(process)


async def _answered(process: Process, request: bytes) -> bytes:
    """The answer of a process; nothing if it died."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(request)
        await process.stdin.drain()
        return await process.stdout.readline()
    except ConnectionError:
        return b""


def _serve() -> None:
    """Compare what is asked for until nobody asks any more."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        seconds, schema, text = json.loads(line)
        # Ends this process, wherever it is, also if nobody is there any more who would.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        wrong = _wrong(schema, text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(wrong) + "\n")
        sys.stdout.flush()


def _wrong(schema: Schema, text: str | None) -> list[str] | None:
    """What is wrong, behind its place in the schema and the keyword, if that is at fault."""
    if text is not None:
        reason = validate_answer(text, schema)
        return None if reason is None else ["", "", reason]
    try:
        check_patterns(schema)
    except InvalidSchema as error:
        return [error.pointer, error.keyword, error.reason]
    return None


if __name__ == "__main__":
    _serve()
