"""Compares what models say with clients' schemas, so that neither holds up anybody else.

Schemas may take any time, as they can be written to, and they are compared under the interpreter's
lock. What may take long is therefore done by processes that do nothing else and can be killed:
`python -m antiphon.comparing` reads lines of JSON, `[text, schema, seconds]`, and answers each with
a line of JSON, what is wrong or null.
"""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable

from antiphon.schema_places import Schema
from antiphon.schemas import validate_answer

#: What is wrong with a JSON text by a schema; None if nothing is.
Compare = Callable[[str, Schema], Awaitable[str | None]]

#: Within this product of characters, without what can multiply the work, a millisecond or two.
_SMALL = 1 << 20
_MULTIPLYING = ('"$ref"', '"$dynamicRef"', '"pattern', '"regex"')


async def compare_here(text: str, schema: Schema) -> str | None:
    """Compare in this process, on another thread."""
    return await asyncio.to_thread(validate_answer, text, schema)


class Comparer:
    """Compares in this process what is quickly done, and all else in one of `processes` others,
    which are begun when they are needed. A comparison that takes longer than `seconds` is given up:
    the text then counts as one that does not fit. For one event loop; close it."""

    def __init__(self, *, processes: int = 2, seconds: float = 5) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(processes)
        self._processes: set[Process] = set()
        self._idle: list[Process] = []
        self._comparing: set[asyncio.Task[str | None]] = set()

    async def compare(self, text: str, schema: Schema) -> str | None:
        """What is wrong with `text` by `schema`, None if nothing is."""
        written = json.dumps(schema)
        if len(text) * len(written) <= _SMALL and not any(word in written for word in _MULTIPLYING):
            return await compare_here(text, schema)
        request = f"[{json.dumps(text)},{written},{self._seconds}]\n"
        # Goes on if nobody waits for it any more, so that no process is left with half of it.
        task = asyncio.create_task(self._elsewhere(request.encode()))
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

    async def _elsewhere(self, request: bytes) -> str | None:
        async with self._free:
            process = await self._process()
            answer = b""
            try:
                assert process.stdin is not None and process.stdout is not None
                async with asyncio.timeout(self._seconds):
                    process.stdin.write(request)
                    await process.stdin.drain()
                    answer = await process.stdout.readline()
            except TimeoutError:
                await self._stop(process)
                return f"it takes more than {self._seconds:g} s to compare it with its schema"
            except ConnectionError:
                pass
            if not answer:  # It died.
                await self._stop(process)
                return "it cannot be compared with its schema"
            self._idle.append(process)
            wrong: str | None = json.loads(answer)
            return wrong

    async def _process(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            self._processes.discard(process)
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
        if process.returncode is None:
            process.kill()
        await process.wait()
        self._processes.discard(process)


def _serve() -> None:
    """Compare what is asked for until nobody asks any more."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        text, schema, seconds = json.loads(line)
        # Ends this process also if nobody is there any more who would.
        signal.alarm(int(seconds) + 2)
        wrong = validate_answer(text, schema)
        signal.alarm(0)
        sys.stdout.write(json.dumps(wrong) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
