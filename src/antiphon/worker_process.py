"""A process that makes stored responses and has no socket."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from antiphon.comparing import Comparer
from antiphon.errors import StartError
from antiphon.kept import Kept, running
from antiphon.metrics import Metrics
from antiphon.models.base import Model
from antiphon.models.router import Router
from antiphon.reasoning_keys import reasoning_policy
from antiphon.responses.observer import Observer
from antiphon.responses.request import RequestReader
from antiphon.settings import Settings
from antiphon.spec import packaged_contract
from antiphon.store.build import SqlStore

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def check_worker_settings(settings: Settings) -> None:
    """Raise `StartError` if a worker would have nothing to do."""
    if not settings.engine:
        raise StartError("a worker has an engine: leave --no-engine to `antiphon serve`")
    if settings.state in ("memory", "off"):
        raise StartError(
            f"a worker makes what others have stored, and with state {settings.state} nothing is "
            "shared: choose state sqlite or postgres, the same as theirs"
        )


class WorkerProcess:
    """Makes what waits in `store` with `models` until it is told to stop, then lets it end.

    `on_start` is called once it is at work. The store is closed in the end. Raises `StartError`.
    """

    def __init__(
        self,
        settings: Settings,
        models: Sequence[Model],
        store: SqlStore,
        *,
        on_start: Callable[[], None],
    ) -> None:
        observer = Observer(Metrics(), log_content=settings.log_content)
        self._comparer = Comparer()
        router = Router(models, settings.aliases)
        reader = RequestReader(router, reasoning_policy(settings), self._comparer)
        self._kept = Kept(settings, store, packaged_contract(), reader, observer)
        self._models = models
        self._grace_seconds = settings.shutdown_grace_seconds
        self._on_start = on_start
        #: Whether every model let go when the process was told to stop.
        self.let_go = True

    def run(self) -> signal.Signals:
        """Work until a signal to stop, which is returned. Another one ends the grace."""
        return asyncio.run(self._run())

    async def serve(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Work until `stop` is set. `hurry` ends the grace."""
        async with running(self._models, self._kept, self._comparer):
            self._on_start()
            await stop.wait()
            draining = asyncio.create_task(self._kept.drain(self._grace_seconds))
            hurrying = asyncio.create_task(hurry.wait())
            await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
            hurrying.cancel()
            if not draining.done():
                draining.cancel()
                draining = asyncio.create_task(self._kept.drain(0))
            self.let_go = await draining

    async def _run(self) -> signal.Signals:
        stop, hurry = asyncio.Event(), asyncio.Event()
        received: list[signal.Signals] = []

        def told(number: signal.Signals) -> None:
            received.append(number)
            (hurry if stop.is_set() else stop).set()

        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, told, number)
        await self.serve(stop, hurry)
        return received[0]
