"""What workers tell of their models, and what is made of it elsewhere."""

import asyncio
from collections.abc import Sequence

from said import in_a_loop
from serving import scripted

from antiphon.models.base import ModelDefaults
from antiphon.models.router import Router
from antiphon.responses.fleet import Announcer, Fleet, announced, offered
from antiphon.store.failures import StoreUnavailable
from antiphon.store.records import WorkerInfo


class FakeWorkers:
    """Workers in memory. `fails` is how many calls fail from now on; `told` notes the others."""

    def __init__(self) -> None:
        self.infos: dict[str, WorkerInfo] = {}
        self.told: list[str] = []
        self.fails = 0
        self.called = asyncio.Event()

    async def announce(self, info: WorkerInfo) -> None:
        self._call("announce")
        self.infos[info.id] = info

    async def seen(self, worker: str) -> bool:
        self._call("seen")
        return worker in self.infos

    async def live(self, within_seconds: float) -> Sequence[WorkerInfo]:
        self._call("live")
        return list(self.infos.values())

    async def remove(self, worker: str) -> None:
        self._call("remove")
        del self.infos[worker]

    async def calls(self, number: int) -> None:
        """Wait until so many calls were made."""
        while len(self.told) < number:
            self.called.clear()
            await self.called.wait()

    def _call(self, name: str) -> None:
        self.called.set()
        self.told.append(name)
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("away")


class FakeSignals:
    """Waiters that are woken by hand."""

    def __init__(self) -> None:
        self.waiters: list[asyncio.Future[None]] = []

    def waiter(self, topic: str) -> asyncio.Future[None]:
        assert topic == "workers"
        self.waiters.append(asyncio.get_running_loop().create_future())
        return self.waiters[-1]


def model(name: str, **fields: object) -> dict[str, object]:
    sampling = {"temperature": 1.0, "top_p": 1.0}
    return {
        "name": name,
        "created": 1,
        "context_window": None,
        **sampling,
        **fields,
    }


def names(*workers: list[dict[str, object]], default: str | None = None) -> list[str]:
    infos = [WorkerInfo(str(number), models) for number, models in enumerate(workers)]
    return [remote.name for remote in offered(infos, default)[0]]


def test_all_that_a_front_needs_of_a_model_is_told():
    defaults = ModelDefaults(temperature=0.2, top_p=0.9)
    own = [
        scripted({"text": ""}, name="one", context_window=512, defaults=defaults),
        scripted({"text": ""}, name="two"),
    ]
    told = announced(Router(own, {"*": "two", "gpt-5.5": "one"}))
    remote, aliases = offered([WorkerInfo("w", told)], None)
    assert [m.name for m in remote] == ["one", "two"]
    assert remote[0].created == own[0].created
    assert remote[0].context_window == 512
    assert remote[0].defaults == defaults
    for effort in (None, "none", "max"):
        assert remote[0].effort(effort) == effort
    assert aliases == {"gpt-5.5": "one", "*": "two"}


def test_defaults_come_first_whatever_the_order_of_workers():
    one, two = [model("b"), model("a")], [model("c"), model("b")]
    assert names(one, two) == names(two, one) == ["b", "c", "a"]
    assert names(one, two, default="a") == ["a", "b", "c"]
    assert names(one, two, default="gone") == ["b", "c", "a"]


def test_a_name_is_offered_once():
    infos = [
        WorkerInfo("1", [model("a", context_window=1, aliases=["x"]), model("b")]),
        WorkerInfo("2", [model("a", context_window=2), model("b", aliases=["x", "y"])]),
    ]
    models, aliases = offered(infos, None)
    assert [(m.name, m.context_window) for m in models] == [("a", 1), ("b", None)]
    assert aliases == {"x": "a", "y": "b"}


@in_a_loop
async def test_a_worker_says_that_it_is_there_and_at_the_end_that_it_is_not():
    workers = FakeWorkers()
    router = Router([scripted({"text": ""}, name="one")], {})
    task = asyncio.create_task(Announcer("w", workers, router, lease_seconds=0.01).run())
    await workers.calls(3)
    assert workers.told[:3] == ["announce", "seen", "seen"]
    workers.infos.clear()  # As a sweep may have done while the machine slept.
    number = len(workers.told)
    await workers.calls(number + 2)
    assert workers.told[number : number + 2] == ["seen", "announce"]
    task.cancel()
    await asyncio.wait({task})
    assert workers.told[-1] == "remove"
    assert not workers.infos


@in_a_loop
async def test_a_worker_tells_when_its_models_change():
    workers = FakeWorkers()
    router = Router([scripted({"text": ""}, name="one")], {})
    task = asyncio.create_task(Announcer("w", workers, router, lease_seconds=0.01).run())
    await workers.calls(1)
    router.replace([scripted({"text": ""}, name="two")], {})
    while workers.told.count("announce") < 2:
        await workers.calls(len(workers.told) + 1)
    await asyncio.sleep(0)
    assert [m["name"] for m in workers.infos["w"].models] == ["two"]
    task.cancel()
    await asyncio.wait({task})


@in_a_loop
async def test_a_storage_that_is_away_for_a_while_ends_nobody():
    workers = FakeWorkers()
    workers.fails = 2
    router = Router([scripted({"text": ""}, name="one")], {})
    task = asyncio.create_task(Announcer("w", workers, router, lease_seconds=0.01).run())
    await workers.calls(3)
    assert workers.told[:3] == ["announce"] * 3
    task.cancel()
    await asyncio.wait({task})
    assert workers.told[-1] == "remove"


@in_a_loop
async def test_a_front_looks_when_something_changed():
    workers, signals, router = FakeWorkers(), FakeSignals(), Router([], {})
    fleet = Fleet(workers, signals, router, default=None, lease_seconds=10_000)
    task = asyncio.create_task(fleet.run())
    await workers.calls(1)
    assert router.models == []
    workers.infos["w"] = WorkerInfo("w", [model("late")])
    signals.waiters[-1].set_result(None)
    await workers.calls(2)
    assert [m.name for m in router.models] == ["late"]
    task.cancel()
    await asyncio.wait({task})


@in_a_loop
async def test_what_a_front_knows_stays_while_the_storage_is_away():
    workers, router = FakeWorkers(), Router([], {})
    workers.infos["w"] = WorkerInfo("w", [model("one")])
    fleet = Fleet(workers, FakeSignals(), router, default=None, lease_seconds=10)
    await fleet.refresh()
    workers.infos.clear()
    workers.fails = 1
    await fleet.refresh()
    assert [m.name for m in router.models] == ["one"]
    await fleet.refresh()
    assert router.models == []
