"""Compares what models say with clients' schemas, so that neither holds up anybody else.

Schemas may take any time, as they can be written to, and they are looked at and compared with under
the interpreter's lock. What may take long is therefore done by processes: `schema_process`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import NamedTuple, Protocol

from antiphon.schema_places import Schema
from antiphon.schemas import (
    InvalidSchema,
    SchemaLimits,
    check_size,
    json_text,
    validate_answer,
    why_not_taken,
)

#: Within this product of characters, without what can multiply the work, a millisecond or two.
_SMALL = 1 << 20
#: Schemas of so many characters, without patterns, are looked at in two or three milliseconds.
_SMALL_SCHEMAS = 8 << 10
_PATTERN = '"pattern'
_MULTIPLYING = ('"$ref"', '"$dynamicRef"', _PATTERN, '"regex"')
#: How much nicer the processes are, so that they keep this one from no processor.
_NICER = 5

#: A schema, and whether it is strict.
Asked = tuple[Schema, bool]


class Invalid(NamedTuple):
    """Which of several schemas is not taken, by its number, and why."""

    number: int
    error: InvalidSchema


class Comparing(Protocol):
    """Looks at schemas, and compares with those that are taken."""

    async def find_invalid(self, schemas: Sequence[Asked], limits: SchemaLimits) -> Invalid | None:
        """A schema that `check_schema` refuses, or that has a pattern that cannot be used."""
        ...

    async def compare(self, text: str, schema: Schema) -> str | None:
        """What is wrong with a JSON text by a schema; None if nothing is."""
        ...


class ComparedHere:
    """Does everything on a thread of this process, however long it takes."""

    async def find_invalid(self, schemas: Sequence[Asked], limits: SchemaLimits) -> Invalid | None:
        return await asyncio.to_thread(_find_invalid, schemas, limits)

    async def compare(self, text: str, schema: Schema) -> str | None:
        return await asyncio.to_thread(validate_answer, text, schema)


class Comparer:
    """Does in this process what is quickly done, and all else in one of `processes` others, which
    are begun when they are needed. What takes more than `seconds` of a processor is given up: a
    text then counts as one that does not fit, and a schema as one that is not taken. For one event
    loop; close it."""

    def __init__(self, *, processes: int = 2, seconds: float = 5) -> None:
        self._seconds = seconds
        # Each of them waits for a process.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="comparing")
        self._asked: set[asyncio.Future[Invalid | None]] = set()
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._closed = False

    async def find_invalid(self, schemas: Sequence[Asked], limits: SchemaLimits) -> Invalid | None:
        found = await asyncio.to_thread(self._found_here, schemas, limits)
        return await self._found(found, len(schemas)) if isinstance(found, str) else found

    async def compare(self, text: str, schema: Schema) -> str | None:
        written = json_text(schema)
        if len(text) * len(written) <= _SMALL and not any(word in written for word in _MULTIPLYING):
            return await asyncio.to_thread(validate_answer, text, schema)
        invalid = await self._found(f'"text":{json_text(text)},"schema":{written}', 1)
        return None if invalid is None else invalid.error.reason

    async def close(self) -> None:
        """Stop the processes, whatever they are at."""
        for asked in self._asked:
            asked.cancel()
        with self._lock:
            self._closed = True
            for process in list(self._processes):
                process.kill()
        await asyncio.to_thread(self._threads.shutdown)
        for process in list(self._processes):
            self._forget(process)

    def _found_here(self, schemas: Sequence[Asked], limits: SchemaLimits) -> Invalid | str | None:
        """What is wrong, if that is quickly told; else what a process is asked."""
        texts: list[str] = []
        for schema, _ in schemas:
            try:
                texts.append(check_size(schema, limits))
            except InvalidSchema as error:
                return Invalid(len(texts), error)
        if sum(map(len, texts)) <= _SMALL_SCHEMAS and not any(_PATTERN in text for text in texts):
            return _find_invalid(schemas, limits)
        asked = [
            f"[{text},{json_text(strict)}]"
            for text, (_, strict) in zip(texts, schemas, strict=True)
        ]
        return f'"limits":{json_text(asdict(limits))},"schemas":[{",".join(asked)}]'

    async def _found(self, asked: str, answers: int) -> Invalid | None:
        found = asyncio.get_running_loop().run_in_executor(
            self._threads, self._elsewhere, asked, answers
        )
        self._asked.add(found)
        found.add_done_callback(self._asked.discard)
        return await found

    def _elsewhere(self, asked: str, answers: int) -> Invalid | None:
        """What a process finds wrong, in as many answers as that takes. It goes on if nobody waits
        for it any more, so that no process is left with half of it."""
        request = f'{{"seconds":{self._seconds},{asked}}}\n'.encode("utf-8", "surrogatepass")
        while True:
            with self._lock:
                idle = self._idle.pop() if self._idle else None
            process = idle or self._begun()
            found = _answered(process, request, answers)
            if len(found) == answers or any(found):
                self._idle.append(process)
                return Invalid(len(found) - 1, found[-1]) if found[-1] else None
            self._forget(process)
            if process.returncode == -signal.SIGPROF:
                return _given_up(len(found), f"its schema takes more than {self._seconds:g} s")
            if idle is None:  # Else it may have died while it had nothing to do.
                return _given_up(len(found), "its schema takes too much memory")

    def _begun(self) -> subprocess.Popen[bytes]:
        # `Popen` shares this process's memory with what it begins, where an event loop may copy
        # the tables of it, which takes a tenth of a second for a few GB. In a session of its own,
        # so that what interrupts this process lets comparisons end.
        with self._lock:
            if self._closed:
                raise RuntimeError("nothing is compared any more")
            process = subprocess.Popen(
                (sys.executable, "-m", "antiphon.schema_process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._processes.add(process)
        nice = os.getpriority(os.PRIO_PROCESS, process.pid) + _NICER
        os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        return process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        """See to a process that has closed its output because it ends, or was killed."""
        process.wait()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):  # What it did not read any more.
            process.stdin.close()
        process.stdout.close()
        self._processes.discard(process)


def _answered(
    process: subprocess.Popen[bytes], request: bytes, answers: int
) -> list[InvalidSchema | None]:
    """The answers of a process, up to the first that something is wrong; fewer if it died."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.write(request)
        process.stdin.flush()
    found: list[InvalidSchema | None] = []
    while len(found) < answers and not any(found):
        answer = process.stdout.readline()
        if not answer:
            break
        wrong = json.loads(answer)
        found.append(None if wrong is None else InvalidSchema(*wrong))
    return found


def _given_up(number: int, reason: str) -> Invalid:
    return Invalid(number, InvalidSchema("", "", reason))


def _find_invalid(schemas: Sequence[Asked], limits: SchemaLimits) -> Invalid | None:
    for number, (schema, strict) in enumerate(schemas):
        error = why_not_taken(schema, strict=strict, limits=limits)
        if error is not None:
            return Invalid(number, error)
    return None
