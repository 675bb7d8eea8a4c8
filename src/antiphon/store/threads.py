"""Threads that work through a queue, each with a thing of its own, such as a connection."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from antiphon.store.failures import StoreUnavailable

T = TypeVar("T")


class Closable(Protocol):
    """What a thread has."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


class Threads(Generic[S]):
    """One thread for each of `things`, which it closes in the end.

    Work is begun in the order in which it came. What was begun is done to its end, also if nobody
    waits for it any more.
    """

    def __init__(self, *things: S) -> None:
        self._queue: SimpleQueue[Callable[[S], None] | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._loop, args=(thing,), name="store", daemon=True)
            for thing in things
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[S], T]) -> T:
        """The result of `work`, done on one of the threads. Raises what it raises, and
        `StoreUnavailable` once they are closed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.post(partial(_do, work, loop, future))
        try:
            return await future
        finally:
            del future  # An error leads to this frame, and would be kept by it.

    def post(self, job: Callable[[S], None]) -> None:
        """Have something done that nobody waits for. It must not raise."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._queue.put(job)

    def close(self) -> None:
        """Do what waits and end."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _loop(self, thing: S) -> None:
        while job := self._queue.get():
            job(thing)
            del job  # What it holds must not wait for the next.
        thing.close()


def _do(
    work: Callable[[S], T], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", thing: S
) -> None:
    if future.cancelled():
        return
    try:
        result = work(thing)
    except BaseException as error:
        _tell(loop, _fail, future, error)
    else:
        _tell(loop, _finish, future, result)
    finally:
        del future


def _tell(loop: asyncio.AbstractEventLoop, how: Callable[..., None], *what: object) -> None:
    with suppress(RuntimeError):  # The loop has ended, and whoever waited with it.
        loop.call_soon_threadsafe(how, *what)


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
