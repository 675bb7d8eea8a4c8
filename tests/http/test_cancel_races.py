"""Cancelling against completing, against an engine that hangs, and readers that read nothing.
(STA-09)"""

import asyncio
import json
import random
import socket
import time

import pytest
from gated import GatedModel

from antiphon.errors import TooManyRequests
from antiphon.models.base import ModelDefaults
from antiphon.models.scripted import ScriptedGeneration
from antiphon.turn import Effort, Finish, TextDelta

BACKGROUND = {"input": "x", "background": True}
TERMINAL = {"response.completed", "response.failed", "response.incomplete"}


class BriefGeneration(ScriptedGeneration):
    """Ends, or lets go once it was cancelled, after a moment."""

    def __init__(self, moments: list[float]) -> None:
        self._moments = moments
        super().__init__([TextDelta("Hello"), moments[0], TextDelta("there"), Finish("stop")], 1, 9)

    async def released(self) -> None:
        await asyncio.sleep(self._moments[1])


class BriefModel:
    """Takes a few milliseconds for an answer, and a few to let go of one."""

    name = "brief"
    created = 0
    context_window = None
    family = "test"
    defaults = ModelDefaults()

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked

    async def prepare(self, turn: object) -> BriefGeneration:
        return BriefGeneration([self._chance.uniform(0, 0.03), self._chance.uniform(0, 0.01)])

    async def close(self) -> None:
        pass


def test_sta_09_a_cancel_call_and_a_completion_settle_on_one_end(every_state, server):
    times = 200 if every_state["state"] == "sqlite" else 60
    gated = GatedModel()
    served = server(
        BriefModel(1),
        gated,
        **every_state,
    )
    other = served.create({**BACKGROUND, "model": "gated"})
    assert gated.started.wait(10)
    gated.say(TextDelta("still here"))
    chance = random.Random(2)
    ends = {"completed": 0, "cancelled": 0}
    for _ in range(times):
        made = served.create(BACKGROUND)
        time.sleep(chance.uniform(0, 0.03))
        answer = served.http.post(f"/v1/responses/{made['id']}/cancel")
        assert answer.status_code == 200
        ended = answer.json()
        ends[ended["status"]] += 1
        assert served.stored(made["id"]) == ended
        stream = served.replay(made["id"])
        if ended["status"] == "completed":
            assert [kind for kind in stream.types if kind in {*TERMINAL, "error"}] == [
                "response.completed"
            ]
            assert stream.response == ended
        else:
            assert not TERMINAL & set(stream.types)
            assert stream.types.count("error") == 1
            assert stream.events[-1].data["code"] == "response_cancelled"
    assert min(ends.values()) >= times // 20, ends
    assert served.stored(other["id"])["status"] == "in_progress"
    gated.say(Finish("stop"))
    stream = served.replay(other["id"])
    assert (stream.text(), stream.types[-1]) == ("still here", "response.completed")


class HungModel(GatedModel):
    """Lets go of what was cancelled only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._let_go = asyncio.Event()

    async def released(self) -> None:
        await self._let_go.wait()

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self._let_go.set)


def test_a_cancel_call_waits_only_so_long_for_an_engine(every_state, server):
    model = HungModel()
    served = server(model, cancel_wait_seconds=0.2, **every_state)
    made = served.create(BACKGROUND)
    model.say(TextDelta("Hel"))
    path = f"/v1/responses/{made['id']}"
    assert served.http.post(f"{path}/cancel").json()["status"] == "in_progress"
    assert model.stopped.wait(10)
    assert served.stored(made["id"])["status"] == "in_progress"
    assert served.http.delete(path).status_code == 409
    model.let_go()
    stream = served.replay(made["id"])
    assert stream.events[-1].data["code"] == "response_cancelled"
    assert served.http.post(f"{path}/cancel").json() == served.stored(made["id"])
    assert served.stored(made["id"])["status"] == "cancelled"


class FullModel(GatedModel):
    """Has no room for an answer."""

    turned_away = 0

    def start(self) -> None:
        self.turned_away += 1
        raise TooManyRequests("full", headers={"retry-after": "0.02"})


def test_what_waits_for_room_in_a_model_can_be_cancelled(every_state, server):
    model = FullModel()
    served = server(model, **every_state)
    made = served.create(BACKGROUND)
    while not model.turned_away:
        time.sleep(0.01)
    cancelled = served.http.post(f"/v1/responses/{made['id']}/cancel").json()
    assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
    assert not model.started.is_set()


def test_what_waits_for_room_in_a_model_has_a_deadline(state, server):
    model = FullModel()
    served = server(model, background_deadline_seconds=0.2, **state)
    made = served.create(BACKGROUND)
    stream = served.replay(made["id"])
    assert [event["code"] for event in stream.of("error")] == ["deadline_exceeded"]
    assert served.stored(made["id"])["status"] == "failed"
    assert not model.started.is_set()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_reader_that_reads_nothing_holds_neither_its_run_nor_its_place(state, server, method):
    model = GatedModel()
    served = server(model, max_readers=1, write_timeout_seconds=0.3, max_event_bytes=2**26, **state)
    body = {**BACKGROUND, "stream": True}
    if method == "GET":
        made = served.create(BACKGROUND)
        request = f"GET /v1/responses/{made['id']}?stream=true HTTP/1.1\r\nhost: x\r\n\r\n"
    else:
        content = json.dumps(body)
        request = (
            "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n{content}"
        )
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(request.encode())
        head = sock.recv(65536)
        while b"resp_" not in head:
            head += sock.recv(65536)
        id = head[head.index(b"resp_") :].split(b'"')[0].decode()
        path = f"/v1/responses/{id}?stream=true"
        assert served.http.get(path).status_code == 429
        model.say(*(TextDelta("x" * 100_000) for _ in range(100)), Finish("stop"))
        while served.stored(id)["status"] != "completed":
            time.sleep(0.01)
        for _ in range(1000):
            answer = served.http.get(path)
            if answer.status_code == 200:
                break
            time.sleep(0.01)
        assert answer.status_code == 200
        assert answer.content.endswith(b"data: [DONE]\n\n")
