"""Models that are loaded when they are first asked, and let go when they are idle."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from said import in_a_loop
from structlog.testing import capture_logs

from antiphon.errors import ServerError, StartError, TooManyRequests
from antiphon.models.base import ModelDefaults
from antiphon.models.on_demand import OnDemandModel
from antiphon.turn import Delta, Effort, Finish, Message, TextDelta, TokenUsage, Turn

TURN = Turn((Message("user", "hi"),))
#: Long enough for nothing to happen meanwhile, and too short to wait for.
SOON = 0.01


class Generation:
    """Waits for `gate` between its words."""

    def __init__(self, gate: asyncio.Event | None, fails: BaseException | None) -> None:
        self.usage = TokenUsage(3)
        self.cancelled = 0
        self.closed = False
        self._gate = gate
        self._fails = fails

    def start(self) -> None:
        if self._fails is not None:
            raise self._fails

    def cancel(self) -> None:
        self.cancelled += 1

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("one")
            if self._gate is not None:
                await self._gate.wait()
            yield Finish("stop")
        finally:
            self.closed = True


class Loaded:
    """What was loaded."""

    name = "inner"
    created = 0
    context_window = 77
    defaults = ModelDefaults(0.5)
    family = "inners"

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.gate: asyncio.Event | None = None
        self.fails: BaseException | None = None
        self.generations: list[Generation] = []

    def status(self) -> Any:
        return {"id": "inner", "state": "loaded", "engine": None}

    def effort(self, asked: Effort | None) -> Effort | None:
        return "high" if asked == "max" else None

    async def prepare(self, turn: Turn) -> Generation:
        self.generations.append(Generation(self.gate, self.fails))
        return self.generations[-1]

    async def close(self) -> None:
        await self.may_close.wait()
        self.closed.set()


class Loader:
    """Loads on a thread, when it may. An error in `errors` is raised in a model's place."""

    def __init__(self, *errors: Exception) -> None:
        self.may_load = threading.Event()
        self.may_load.set()
        self.begun = threading.Event()
        self.made: list[Loaded] = []
        self.threads: list[threading.Thread] = []
        self._errors = list(errors)

    def __call__(self) -> Loaded:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.may_load.wait(10)
        if self._errors:
            raise self._errors.pop(0)
        self.made.append(Loaded())
        return self.made[-1]


def on_demand(loader: Callable[[], Any], **options: Any) -> OnDemandModel:
    options = {"defaults": ModelDefaults(0.25), "context_window": 9, **options}
    return OnDemandModel("tiny", loader, **options)


async def hear(generation: Any) -> list[Delta]:
    return [delta async for delta in generation.deltas()]


async def begun(loader: Loader) -> None:
    await asyncio.to_thread(loader.begun.wait, 10)


# --- loading ---


@in_a_loop
async def test_nothing_is_loaded_until_it_is_asked():
    loader = Loader()
    model = on_demand(loader)
    assert model.status() == {"id": "tiny", "state": "unloaded", "engine": None}
    assert (model.name, model.context_window, model.defaults.temperature) == ("tiny", 9, 0.25)
    generation = await model.prepare(TURN)
    assert await hear(generation) == [TextDelta("one"), Finish("stop")]
    assert generation.usage == TokenUsage(3)
    assert len(loader.made) == 1
    assert loader.threads[0] is not threading.current_thread()
    assert model.status() == {"id": "inner", "state": "loaded", "engine": None}
    assert (model.context_window, model.defaults.temperature) == (77, 0.5)
    await model.close()


@in_a_loop
async def test_whose_reasoning_it_goes_on_from_is_known_before_it_is_loaded_and_efforts_after():
    model = on_demand(Loader(), family="llama")
    assert (model.family, model.effort("max"), model.effort(None)) == ("llama", "max", None)
    assert on_demand(Loader()).family == "tiny"
    await model.prepare(TURN)
    assert (model.family, model.effort("max"), model.effort("low")) == ("inners", "high", None)
    await model.close()


@in_a_loop
async def test_all_who_ask_meanwhile_wait_for_the_same_model():
    loader = Loader()
    loader.may_load.clear()
    model = on_demand(loader)
    asking = [asyncio.create_task(model.prepare(TURN)) for _ in range(3)]
    await begun(loader)
    assert model.status() == {"id": "tiny", "state": "loading", "engine": None}
    loader.may_load.set()
    await asyncio.gather(*asking)
    assert len(loader.made) == len(loader.threads) == 1
    assert len(loader.made[0].generations) == 3
    await model.close()


@in_a_loop
async def test_a_model_whose_asker_went_away_is_there_for_the_next():
    loader = Loader()
    loader.may_load.clear()
    model = on_demand(loader)
    asking = asyncio.create_task(model.prepare(TURN))
    await begun(loader)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert model.status()["state"] == "loading"
    loader.may_load.set()
    await model.prepare(TURN)
    assert len(loader.threads) == 1
    await model.close()
    assert loader.made[0].closed.is_set()


@pytest.mark.parametrize("error", [StartError("no room in /secret"), MemoryError(), OSError("x")])
def test_what_cannot_be_loaded_is_a_server_error_and_may_be_tried_again(error):
    @in_a_loop
    async def scenario() -> None:
        loader = Loader(error)
        model = on_demand(loader)
        with capture_logs() as logs, pytest.raises(ServerError) as caught:
            await model.prepare(TURN)
        assert caught.value.message == "The model 'tiny' cannot be loaded."
        assert caught.value.status == 500
        (log,) = [log for log in logs if log["event"] == "model cannot be loaded"]
        assert log["model"] == "tiny"
        assert log.get("reason") == (str(error) if isinstance(error, StartError) else None)
        assert model.status()["state"] == "unloaded"
        await hear(await model.prepare(TURN))
        assert len(loader.made) == 1
        await model.close()

    scenario()


@in_a_loop
async def test_a_failure_that_nobody_waits_for_is_nobody_s():
    loader = Loader(StartError("no room"))
    loader.may_load.clear()
    model = on_demand(loader)
    asking = asyncio.create_task(model.prepare(TURN))
    await begun(loader)
    asking.cancel()
    loader.may_load.set()
    await asyncio.wait([asking])
    await model.close()
    assert model.status()["state"] == "unloaded"


# --- letting go ---


@in_a_loop
async def test_an_idle_model_is_closed_and_loaded_again_when_it_is_asked():
    loader = Loader()
    model = on_demand(loader, unload_after_seconds=SOON)
    await hear(await model.prepare(TURN))
    await loader.made[0].closed.wait()
    assert model.status() == {"id": "tiny", "state": "unloaded", "engine": None}
    await hear(await model.prepare(TURN))
    await loader.made[1].closed.wait()
    assert len(loader.made) == 2
    await model.close()


@in_a_loop
async def test_without_a_time_a_model_stays():
    loader = Loader()
    model = on_demand(loader)
    await hear(await model.prepare(TURN))
    assert model._timer is None
    await model.close()
    assert loader.made[0].closed.is_set()


@in_a_loop
async def test_a_model_that_answers_is_not_idle():
    loader = Loader()
    model = on_demand(loader, unload_after_seconds=SOON)
    generation = await model.prepare(TURN)
    inner = loader.made[0]
    inner.gate = asyncio.Event()
    generation = await model.prepare(TURN)
    generation.start()
    heard = asyncio.create_task(hear(generation))
    # Many times as long as an idle one stays.
    for _ in range(20):
        model._look()
        await asyncio.sleep(0)
    assert not inner.closed.is_set()
    inner.gate.set()
    assert len(await heard) == 2
    await inner.closed.wait()
    await model.close()


@in_a_loop
async def test_an_answer_that_is_cancelled_ends_its_use_once():
    loader = Loader()
    model = on_demand(loader, unload_after_seconds=SOON)
    generation = await model.prepare(TURN)
    generation.start()
    generation.cancel()
    generation.cancel()
    assert loader.made[0].generations[0].cancelled == 2
    assert model._users == 0
    await loader.made[0].closed.wait()
    await model.close()


@in_a_loop
async def test_an_answer_that_nobody_reads_on_ends_its_use_and_the_model_s_own():
    loader = Loader()
    model = on_demand(loader)
    deltas = (await model.prepare(TURN)).deltas()
    assert await anext(deltas) == TextDelta("one")
    assert model._users == 1
    await deltas.aclose()
    assert loader.made[0].generations[0].closed
    assert model._users == 0
    await model.close()


@in_a_loop
async def test_who_asks_while_a_model_is_let_go_waits_for_another():
    loader = Loader()
    model = on_demand(loader, unload_after_seconds=SOON)
    await model.prepare(TURN)
    old = loader.made[0]
    old.may_close.clear()
    while model.status()["state"] == "loaded":
        await asyncio.sleep(0)
    asking = asyncio.create_task(model.prepare(TURN))
    await asyncio.sleep(0)
    assert len(loader.made) == 1
    old.may_close.set()
    await asking
    assert len(loader.made) == 2
    await model.close()


@in_a_loop
async def test_a_turn_that_is_started_after_its_model_was_let_go_is_a_server_error():
    loader = Loader()
    model = on_demand(loader)
    await model.prepare(TURN)
    loader.made[0].fails = RuntimeError("the engine was stopped")
    generation = await model.prepare(TURN)
    with pytest.raises(ServerError, match="was unloaded"):
        generation.start()
    assert model._users == 0
    await model.close()


@in_a_loop
async def test_a_model_that_is_full_says_so_itself():
    loader = Loader()
    model = on_demand(loader)
    await model.prepare(TURN)
    loader.made[0].fails = TooManyRequests("Full.", headers={"retry-after": "1"})
    with pytest.raises(TooManyRequests):
        (await model.prepare(TURN)).start()
    assert model._users == 0
    await model.close()


# --- loaded at start ---


@in_a_loop
async def test_a_model_may_be_there_from_the_start():
    loader, inner = Loader(), Loaded()
    model = on_demand(loader)
    model.preload(inner)
    model.watch()
    assert model.status()["state"] == "loaded"
    await model.prepare(TURN)
    assert loader.made == []
    await model.close()
    assert inner.closed.is_set()


@in_a_loop
async def test_a_model_that_was_never_asked_is_let_go_as_well():
    loader, inner = Loader(), Loaded()
    model = on_demand(loader, unload_after_seconds=SOON)
    model.preload(inner)
    model.watch()
    await inner.closed.wait()
    assert model.status()["state"] == "unloaded"
    await model.close()


# --- the end ---


@in_a_loop
async def test_closing_waits_for_a_model_that_is_being_loaded_and_closes_it():
    loader = Loader()
    loader.may_load.clear()
    model = on_demand(loader, unload_after_seconds=60)
    asking = asyncio.create_task(model.prepare(TURN))
    await begun(loader)
    closing = asyncio.create_task(model.close())
    await asyncio.sleep(0)
    assert not closing.done()
    loader.may_load.set()
    await asyncio.wait([asking, closing])
    assert loader.made[0].closed.is_set()


@in_a_loop
async def test_closing_what_was_never_loaded_does_nothing():
    loader = Loader()
    await on_demand(loader).close()
    assert loader.threads == []
