"""A worker without a socket, in a thread, for tests."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from antiphon.models.base import Model
from antiphon.settings import Settings
from antiphon.storage import open_storage
from antiphon.worker_process import WorkerProcess


@contextmanager
def work(*models: Model, **settings: Any) -> Iterator[WorkerProcess]:
    """A worker at work until the block ends. Settings are those of the product."""
    effective = Settings(**settings)
    store = open_storage(effective)
    assert store is not None
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        stop = asyncio.Event()
        at_work.append(lambda: started.set_result((asyncio.get_running_loop(), stop)))
        await process.serve(stop, asyncio.Event())

    at_work: list[Any] = []
    process = WorkerProcess(effective, models, store, on_start=lambda: at_work[0]())
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    loop, stop = started.result(30)
    try:
        yield process
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
