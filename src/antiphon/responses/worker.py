"""Makes stored responses under leases: those begun here, and those that wait or were left behind.

A response that no process works on is taken by any worker that has its model. If nothing of its
output was published it is made anew; if something was, it can only be ended, as a second answer
would not go on where the first broke off.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from antiphon import errors
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.fold import FoldError, fold
from antiphon.responses.journal import Journal, StoredLog
from antiphon.responses.maker import prepared
from antiphon.responses.request import RequestReader
from antiphon.responses.stored_run import StoredRun
from antiphon.store.base import Store
from antiphon.store.failures import LeaseLost, StoreError
from antiphon.store.records import Lease
from antiphon.store.records import Run as Claimed

_logger = structlog.get_logger("antiphon.responses")

_CANCELLED = "The response was cancelled."
_RESTARTED = "The server that made the response stopped before it was whole."


def worker_id() -> str:
    """A name for this process that no other has or will have."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


class WorkerOptions(Protocol):
    """How many waiting responses are made at once, and how long one may take from being accepted;
    how long a stream may be silent; and how long a lease lasts without being prolonged."""

    @property
    def background_workers(self) -> int: ...
    @property
    def background_deadline_seconds(self) -> float: ...
    @property
    def keep_alive_seconds(self) -> float: ...
    @property
    def lease_seconds(self) -> float: ...


class Worker:
    """Holds the leases of this process, which it is called `worker_id` by.

    `on_start` is told of every run that begins. Call `start` on the event loop, then `drain`.
    """

    def __init__(
        self,
        worker_id: str,
        store: Store,
        journal: Journal,
        reader: RequestReader,
        *,
        options: WorkerOptions,
        on_start: Callable[[StoredRun, str], None],
    ) -> None:
        self.id = worker_id
        self._store = store
        self._journal = journal
        self._reader = reader
        self._options = options
        self._on_start = on_start
        self._leases: dict[str, Lease] = {}
        self._live: dict[str, StoredRun] = {}
        #: Of the leases, those whose run is to be cancelled once it is there.
        self._cancelled: set[str] = set()
        self._claimed: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._draining = False
        self._slot_freed = asyncio.Event()

    @property
    def num_claimed(self) -> int:
        """How many responses are being made that were waiting."""
        return len(self._claimed)

    def start(self) -> None:
        """Begin to look for work, and to keep leases."""
        self._tasks = [
            asyncio.create_task(self._keep_leases()),
            asyncio.create_task(self._take_runs()),
        ]

    def adopt(self, run: StoredRun, model: str) -> None:
        """Begin a run that was announced, whose lease this process has."""
        response_id = run.response_id
        self._leases[response_id] = run.stored_log.lease
        self._live[response_id] = run
        run.go().add_done_callback(lambda _: self._forget(response_id))
        self._on_start(run, model)
        if response_id in self._cancelled:
            run.stop(errors.ResponseCancelled(_CANCELLED))

    def _forget(self, response_id: str) -> None:
        self._live.pop(response_id, None)
        self._leases.pop(response_id, None)
        self._cancelled.discard(response_id)

    def log_of(self, response_id: str) -> StoredLog | None:
        """The log of a response that is being made here."""
        run = self._live.get(response_id)
        return None if run is None else run.stored_log

    async def cancel_queued(self, response_id: str) -> None:
        """End a response as cancelled, if nobody works on it."""
        claimed = await self._store.runs.claim_queued(self.id, response_id)
        if claimed is not None:
            log, builder = self._resumed(claimed)
            await _end(log, builder, lambda: builder.cancel(None))

    async def drain(self, grace_seconds: float, *, keeps: bool) -> bool:
        """Take nothing new, let runs end, and after the grace leave them to others; or, unless the
        store `keeps` anything, cancel them. False if a model did not let go."""
        self._draining = True
        await self._stop_tasks(self._tasks[1:])
        if self._live:
            await asyncio.wait([run.task for run in self._live.values()], timeout=grace_seconds)
        left = await asyncio.gather(
            *(self._let_go(run, keeps=keeps) for run in list(self._live.values()))
        )
        await self._stop_tasks([*self._tasks[:1], *self._claimed])
        for lease in list(self._leases.values()):  # Of runs that were not begun yet.
            await self._release(lease)
        return all(left)

    async def _let_go(self, run: StoredRun, *, keeps: bool) -> bool:
        if keeps and not run.stored_log.has_output:
            ending: Awaitable[object] = asyncio.ensure_future(run.give_up())
        else:
            run.stop(
                errors.ServerRestarted(_RESTARTED)
                if keeps
                else errors.ResponseCancelled(_CANCELLED)
            )
            ending = run.task
        try:
            await asyncio.wait_for(asyncio.shield(ending), self._options.lease_seconds)
        except TimeoutError:
            _logger.error("model did not let go", response=run.response_id)
            return False
        except asyncio.CancelledError:
            pass  # It was the run that was cancelled.
        if run.given_up:
            await self._release(run.stored_log.lease)
        return True

    async def _release(self, lease: Lease) -> None:
        try:
            await self._store.runs.release(lease)
        except StoreError:
            _logger.exception("lease not released")  # It ends by itself.

    async def _stop_tasks(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- leases ---

    async def _keep_leases(self) -> None:
        """Prolong leases in time, and find out which runs are to be cancelled."""
        while True:
            cancelled = self._store.signals.waiter("cancel")
            try:
                await self._beat()
            except StoreError as error:
                _logger.error("leases not prolonged", reason=str(error))
            await _first(cancelled, timeout=self._options.lease_seconds / 3)

    async def _beat(self) -> None:
        beat = await self._store.runs.heartbeat(self.id, list(self._leases.values()))
        for response_id in beat.cancelled:
            if run := self._live.get(response_id):
                run.stop(errors.ResponseCancelled(_CANCELLED))
            elif response_id in self._leases:
                self._cancelled.add(response_id)
        for response_id in beat.lost:
            if run := self._live.get(response_id):
                run.stored_log.failed(LeaseLost(response_id))

    # --- work that waits ---

    async def _take_runs(self) -> None:
        models = [model.name for model in self._reader.router.models]
        while True:
            queued = self._store.signals.waiter("queue")
            self._slot_freed.clear()
            if len(self._claimed) < self._options.background_workers:
                try:
                    held = list(self._leases.values())
                    claimed = await self._store.runs.claim(self.id, models, held)
                except StoreError as error:
                    _logger.error("no work taken", reason=str(error))
                    claimed = None
                if claimed is not None:
                    self._leases[claimed.lease.response_id] = claimed.lease
                    task = asyncio.create_task(self._make(claimed))
                    self._claimed.add(task)
                    task.add_done_callback(self._made)
                    continue
            # Leases that end are told by nobody.
            await _first(queued, self._slot_freed.wait(), timeout=self._options.lease_seconds)

    def _made(self, task: asyncio.Task[None]) -> None:
        self._claimed.discard(task)
        self._slot_freed.set()

    async def _make(self, claimed: Claimed) -> None:
        """Make a response that was waiting, or end one that was left behind."""
        try:
            await self._make_or_end(claimed)
        except asyncio.CancelledError:
            raise  # Its lease is still to be released.
        except Exception:
            _logger.exception("run not made", response=claimed.lease.response_id)
        if claimed.lease.response_id not in self._live:
            self._forget(claimed.lease.response_id)

    async def _make_or_end(self, claimed: Claimed) -> None:
        log, builder = self._resumed(claimed)
        left = claimed.created_at + self._options.background_deadline_seconds - time.time()
        late = errors.DeadlineExceeded("The response took longer than the server allows.")
        if claimed.cancel_requested:
            await _end(log, builder, lambda: builder.cancel(None))
        elif claimed.published:
            await _end(log, builder, lambda: builder.fail(errors.ServerRestarted(_RESTARTED), None))
        elif claimed.response["background"] and left <= 0:
            await _end(log, builder, lambda: builder.fail(late, None))
        else:
            try:
                async with asyncio.timeout(left if claimed.response["background"] else None):
                    run = await self._begun(claimed, log, builder)
            except errors.ResponseCancelled:
                await _end(log, builder, lambda: builder.cancel(None))
                return
            except TimeoutError:
                await _end(log, builder, lambda: builder.fail(late, None))
                return
            except errors.APIError as error:
                refusal = error
                await _end(log, builder, lambda: builder.fail(refusal, None))
                return
            if claimed.response["background"]:
                run.stop_at(left, late)
            await asyncio.wait({run.task})

    async def _begun(self, claimed: Claimed, log: StoredLog, builder: ResponseBuilder) -> StoredRun:
        request, owner = self._reader.read(claimed.request), claimed.lease.owner
        items = [*claimed.history.items, *claimed.items]
        builder = ResponseBuilder(builder.response, log, request.presentation(owner, items))
        generation = await prepared(request, owner, items)
        while True:
            if claimed.lease.response_id in self._cancelled:
                raise errors.ResponseCancelled(_CANCELLED)
            try:
                generation.start()
                break
            except errors.TooManyRequests as error:
                await asyncio.sleep(float(error.headers.get("retry-after", 1)))
        run = StoredRun(
            generation, builder, log, keep_alive_seconds=self._options.keep_alive_seconds
        )
        builder.start()
        self.adopt(run, request.model.name)
        return run

    def _resumed(self, claimed: Claimed) -> tuple[StoredLog, ResponseBuilder]:
        log = self._journal.resumed_log(claimed.lease, claimed.first_event, claimed.frames)
        try:
            response = fold(log.events)
        except FoldError:
            response = claimed.response  # Its first events are not kept any more.
        return log, ResponseBuilder(response, log)


async def _end(log: StoredLog, builder: ResponseBuilder, write: Callable[[], None]) -> None:
    """End a response that is not being made."""
    write()
    try:
        await log.end(builder.stored)
    except (StoreError, LeaseLost) as error:
        _logger.error("run not ended", response=log.lease.response_id, reason=str(error))
    log.close()


async def _first(*awaitables: Awaitable[object], timeout: float) -> None:
    """Wait for whatever comes first."""
    waiting = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in waiting:
            future.cancel()
