"""A model that is loaded when it is first asked, and let go when it was idle for long enough."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import structlog

from antiphon import ids
from antiphon.errors import APIError, ServerError, StartError
from antiphon.models.base import Generation, Model, ModelDefaults
from antiphon.spec.types import ModelState, ModelStatus
from antiphon.turn import Delta, Effort, TokenUsage, Turn

_logger = structlog.get_logger("antiphon.models")


class OnDemandModel:
    """Stands for a model that `load` makes, on a thread.

    It is loaded by the first turn that is prepared, and closed again once nothing was prepared or
    answered for `unload_after_seconds`, None for never. `defaults` are its sampling until it is
    known. What an effort amounts to with it is known only while it is loaded.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Model],
        *,
        defaults: ModelDefaults,
        context_window: int | None = None,
        unload_after_seconds: float | None = None,
        family: str = "",
    ) -> None:
        self.name = name
        self.family = family or name
        self.created = ids.now()
        self.context_window = context_window
        self.defaults = defaults
        self._load = load
        self._unload_after_seconds = unload_after_seconds
        self._model: Model | None = None
        self._loading: asyncio.Task[Model] | None = None
        self._lock = asyncio.Lock()
        self._users = 0
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None

    def preload(self, model: Model) -> None:
        """Begin with the model loaded."""
        self._model = model

    def watch(self) -> None:
        """Count it as idle from now on, though nobody has asked yet. On the event loop."""
        self._used_at = time.monotonic()
        if self._unload_after_seconds is not None and self._timer is None:
            self._look_after(self._unload_after_seconds)

    def status(self) -> ModelStatus:
        if self._model is not None:
            return self._model.status()
        state: ModelState = "loading" if self._is_loading else "unloaded"
        return {"id": self.name, "state": state, "engine": None}

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked if self._model is None else self._model.effort(asked)

    async def prepare(self, turn: Turn) -> Generation:
        self.enter()
        try:
            model = await self._loaded()
            generation = await model.prepare(turn)
        finally:
            self.leave()
        return _Used(generation, self)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        async with self._lock:
            await self._drop()

    async def _loaded(self) -> Model:
        if self._model is not None:
            return self._model
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load_once())
            # Nobody may be left to be told of an error.
            self._loading.add_done_callback(
                lambda loading: loading.cancelled() or loading.exception()
            )
        # Whoever asked may go away: the model is loaded nevertheless, for the next.
        return await asyncio.shield(self._loading)

    @property
    def _is_loading(self) -> bool:
        return self._loading is not None and not self._loading.done()

    async def _load_once(self) -> Model:
        async with self._lock:
            if self._model is None:
                _logger.info("loading", model=self.name)
                try:
                    self._model = await asyncio.to_thread(self._load)
                except Exception as error:
                    about = {"reason": str(error)} if isinstance(error, StartError) else {}
                    _logger.error(
                        "model cannot be loaded", model=self.name, exc_info=not about, **about
                    )
                    raise ServerError(f"The model '{self.name}' cannot be loaded.") from error
                self.context_window = self._model.context_window
                self.defaults = self._model.defaults
                self.family = self._model.family
            return self._model

    def enter(self) -> None:
        """Somebody begins to use it."""
        self._users += 1

    def leave(self) -> None:
        """Somebody who began is done."""
        self._users -= 1
        self.watch()

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        assert self._unload_after_seconds is not None
        left = self._unload_after_seconds - (time.monotonic() - self._used_at)
        if self._users or left > 0:
            self._look_after(self._unload_after_seconds if self._users else left)
        else:
            self._unloading = asyncio.create_task(self._unload())

    async def _unload(self) -> None:
        async with self._lock:
            if not self._users:
                await self._drop()
                _logger.info("unloaded", model=self.name)

    async def _drop(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            await model.close()


class _Used:
    """A generation that keeps its model from being unloaded while it is answered."""

    def __init__(self, generation: Generation, model: OnDemandModel) -> None:
        self._generation = generation
        self._model = model
        self._started = False
        self._uses = False

    @property
    def usage(self) -> TokenUsage:
        return self._generation.usage

    def start(self) -> None:
        try:
            self._generation.start()
        except APIError:
            raise
        except Exception as error:
            # It was unloaded between being prepared and being started.
            raise ServerError("The model was unloaded. Try again.") from error
        self._started = self._uses = True
        self._model.enter()

    def cancel(self) -> None:
        self._generation.cancel()
        self._leave()

    async def released(self) -> None:
        await self._generation.released()

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        if not self._started:
            self.start()
        try:
            async with aclosing(self._generation.deltas()) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._uses:
            self._uses = False
            self._model.leave()
