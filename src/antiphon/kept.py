"""What belongs to a store in a running process: who works on what is stored, and looks after it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from antiphon.comparing import Comparer
from antiphon.models.base import Model
from antiphon.models.build import model_name
from antiphon.models.on_demand import OnDemandModel
from antiphon.models.router import Router
from antiphon.responses.fleet import Announcer, Fleet
from antiphon.responses.journal import Journal
from antiphon.responses.observer import Observer
from antiphon.responses.request import RequestReader
from antiphon.responses.upkeep import sweep_hourly
from antiphon.responses.worker import Worker, worker_id
from antiphon.settings import Settings
from antiphon.spec import Contract
from antiphon.store.build import SqlStore
from antiphon.webhooks.options import WebhookOptions, webhook_options
from antiphon.webhooks.sender import WebhookSender


class Kept:
    """The store of a process, and whoever works on it here.

    Requests are read by `reader`. Other processes are told of the models in its router; without an
    engine, these are those that the others tell of. Raises `StartError`.
    """

    def __init__(
        self,
        settings: Settings,
        store: SqlStore,
        contract: Contract,
        reader: RequestReader,
        observer: Observer,
    ) -> None:
        self._store = store
        self._keeps = settings.state != "memory"
        self.journal = Journal(
            store.runs,
            contract,
            events_per_run=settings.max_events,
            event_bytes_per_run=settings.max_event_bytes,
        )
        self.worker = Worker(
            worker_id(),
            store,
            self.journal,
            reader if settings.engine else RequestReader(Router([], {})),
            options=settings,
            on_start=observer.started,
        )
        self._fleet = None if settings.engine else _fleet(settings, store, reader.router)
        self._announcer = _announcer(settings, store, reader.router, self.worker.id)
        self._webhooks = _webhooks(settings)
        self._announcing: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._drained = False

    async def start(self) -> None:
        """Begin, on the event loop."""
        duties: list[Callable[[], Coroutine[None, None, None]]] = [
            lambda: sweep_hourly(self._store.sweeper)
        ]
        if self._fleet is not None:
            await self._fleet.refresh()
            duties.append(self._fleet.run)
        if self._webhooks is not None:
            duties.append(self._send_webhooks)
        if self._announcer is not None:
            self._announcing = asyncio.create_task(self._announcer.run())
        self.worker.start()
        self._tasks = [asyncio.create_task(duty()) for duty in duties]

    async def drain(self, grace_seconds: float) -> bool:
        """Let go of runs. False if a model did not."""
        if self._announcing is not None:
            await _end([self._announcing])
        let_go = await self.worker.drain(grace_seconds, keeps=self._keeps)
        self._drained = True
        return let_go

    async def close(self) -> None:
        """Stop, and close the store."""
        if not self._drained:
            await self.drain(0)
        await _end(self._tasks)
        await asyncio.to_thread(self._store.close)

    async def _send_webhooks(self) -> None:
        assert self._webhooks is not None
        sender = WebhookSender(self._store.deliveries, self._store.signals, self._webhooks)
        try:
            await sender.run()
        finally:
            await sender.aclose()


@asynccontextmanager
async def running(
    models: Sequence[Model], kept: Kept | None, comparer: Comparer
) -> AsyncIterator[None]:
    """Has models and a store at work, and closes them and `comparer` in the end."""
    for model in models:
        if isinstance(model, OnDemandModel):
            model.watch()
    if kept is not None:
        await kept.start()
    try:
        yield
    finally:
        if kept is not None:
            await kept.close()
        for model in models:
            await model.close()
        await comparer.close()


def _fleet(settings: Settings, store: SqlStore, router: Router) -> Fleet:
    default = None if settings.model is None else model_name(settings.model)
    return Fleet(
        store.workers,
        store.signals,
        router,
        default=default,
        lease_seconds=settings.lease_seconds,
    )


def _announcer(
    settings: Settings, store: SqlStore, router: Router, worker: str
) -> Announcer | None:
    if not settings.engine:
        return None
    return Announcer(worker, store.workers, router, lease_seconds=settings.lease_seconds)


def _webhooks(settings: Settings) -> WebhookOptions | None:
    if settings.webhook_url is None:
        return None
    return webhook_options(
        settings.webhook_url,
        settings.webhook_secret or "",
        allow_private=settings.webhook_allow_private,
    )


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
