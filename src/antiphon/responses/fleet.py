"""The processes that make responses: what this one tells of its models, and what others tell."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

import structlog

from antiphon.models.base import Model, ModelDefaults
from antiphon.models.remote import RemoteModel
from antiphon.models.router import Router
from antiphon.store.base import Signals
from antiphon.store.failures import StoreError
from antiphon.store.records import WorkerInfo
from antiphon.turn import Effort

_logger = structlog.get_logger("antiphon.responses")

#: What tells that a worker came, went or has other models.
_TOPIC = "workers"
#: However short a lease is, nobody looks more often than that.
_MIN_PAUSE_SECONDS = 1.0


class Workers(Protocol):
    """The workers that share a store."""

    async def announce(self, info: WorkerInfo) -> None:
        """Say that a worker is there, and which models it has."""
        ...

    async def seen(self, worker: str) -> bool:
        """Say that a worker is still there. False if it is not known any more."""
        ...

    async def live(self, within_seconds: float) -> Sequence[WorkerInfo]:
        """Those that were seen in the last so many seconds."""
        ...

    async def remove(self, worker: str) -> None:
        """Say that a worker has gone."""
        ...


class Announcer:
    """Tells the other processes of the models of this one, which is the worker `worker_id`."""

    def __init__(
        self, worker_id: str, workers: Workers, router: Router, *, lease_seconds: float
    ) -> None:
        self._id = worker_id
        self._workers = workers
        self._router = router
        self._pause_seconds = lease_seconds / 3
        self._told: WorkerInfo | None = None

    async def run(self) -> None:
        """Tell them again and again until it is cancelled, and then that they are gone."""
        try:
            while True:
                try:
                    await self._tell()
                except StoreError as error:
                    _logger.error("models not announced", reason=str(error))
                await asyncio.sleep(self._pause_seconds)
        finally:
            try:
                await self._workers.remove(self._id)
            except StoreError as error:  # Others will find that it was not seen for long.
                _logger.warning("models not withdrawn", reason=str(error))

    async def _tell(self) -> None:
        info = WorkerInfo(self._id, announced(self._router))
        if info != self._told or not await self._workers.seen(self._id):
            await self._workers.announce(info)
            self._told = info


class Fleet:
    """Keeps `router` at the models that live workers have.

    The default is `default` if one of them has it. A worker that was not seen for `lease_seconds`
    is taken for dead.
    """

    def __init__(
        self,
        workers: Workers,
        signals: Signals,
        router: Router,
        *,
        default: str | None,
        lease_seconds: float,
    ) -> None:
        self._workers = workers
        self._signals = signals
        self._router = router
        self._default = default
        self._lease_seconds = lease_seconds

    async def refresh(self) -> None:
        """Look now. If the store cannot be asked, what is known stays."""
        try:
            live = await self._workers.live(self._lease_seconds)
        except StoreError as error:
            _logger.error("workers not looked up", reason=str(error))
        else:
            self._router.replace(*offered(live, self._default))

    async def run(self) -> None:
        """Look whenever something changed, and from time to time, as of a death nobody tells."""
        pause = max(self._lease_seconds / 3, _MIN_PAUSE_SECONDS)
        while True:
            changed = asyncio.ensure_future(self._signals.waiter(_TOPIC))
            try:
                await self.refresh()
                await asyncio.wait({changed}, timeout=pause)
            finally:
                changed.cancel()


def announced(router: Router) -> list[Mapping[str, Any]]:
    """What is told of models, for `WorkerInfo`."""
    return [
        {
            "name": model.name,
            "created": model.created,
            "context_window": model.context_window,
            "temperature": model.defaults.temperature,
            "top_p": model.defaults.top_p,
            "efforts": _efforts(model),
            "aliases": [a for a, target in router.aliases.items() if target == model.name],
        }
        for model in router.models
    ]


def offered(
    workers: Sequence[WorkerInfo], default: str | None
) -> tuple[list[RemoteModel], dict[str, str]]:
    """The models of some workers, and their aliases, for a router.

    `default` comes first, then what is a worker's own default. Where two tell different things of
    a name, one is believed, always the same.
    """
    told = [(place, model) for worker in workers for place, model in enumerate(worker.models)]
    told.sort(key=lambda pair: (pair[1]["name"] != default, pair[0], pair[1]["name"]))
    models: dict[str, RemoteModel] = {}
    aliases: dict[str, str] = {}
    for _, model in told:
        models.setdefault(model["name"], _remote(model))
        for alias in model.get("aliases", ()):
            aliases.setdefault(alias, model["name"])
    return list(models.values()), aliases


def _remote(model: Mapping[str, Any]) -> RemoteModel:
    return RemoteModel(
        model["name"],
        model["created"],
        context_window=model["context_window"],
        defaults=ModelDefaults(model["temperature"], model["top_p"]),
        efforts=dict(model.get("efforts", ())),
    )


def _efforts(model: Model) -> list[tuple[Effort | None, Effort]]:
    """What each effort that may be asked for amounts to with a model, if it has an effect."""
    asked: tuple[Effort | None, ...] = (None, *get_args(Effort))
    return [(one, effective) for one in asked if (effective := model.effort(one)) is not None]
