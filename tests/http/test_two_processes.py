"""Several servers on one database share what is stored, what waits, and what is being made."""

import queue
import threading
from collections.abc import Callable

import pytest
from gated import GatedModel
from serving import Served, scripted

from antiphon.turn import Finish, TextDelta

BACKGROUND = {"input": "x", "background": True}
_PATIENCE_SECONDS = 15


class Follower:
    """Reads a stream while the test does other things. `frames` are all that it got so far."""

    def __init__(self, served: Served, method: str, path: str, **options: object) -> None:
        self.frames: list[bytes] = []
        self._queue: queue.Queue[bytes] = queue.Queue()

        def read() -> None:
            rest = b""
            with served.http.stream(method, path, **options) as answer:
                for data in answer.iter_raw():
                    *frames, rest = (rest + data).split(b"\n\n")
                    for frame in frames:
                        self._queue.put(frame)

        self._thread = threading.Thread(target=read, daemon=True)
        self._thread.start()

    def until(self, text: bytes) -> bytes:
        """The next frame that has this in it."""
        while True:
            frame = self._queue.get(timeout=_PATIENCE_SECONDS)
            self.frames.append(frame)
            if text in frame:
                return frame

    def id(self) -> str:
        """The id of the response, from the first event."""
        return "resp_" + self.until(b"resp_").split(b"resp_")[1].split(b'"')[0].decode()


@pytest.fixture
def servers(lasting_state, server) -> Callable[..., Served]:
    """Starts servers on one database: `servers(model, ...)`."""
    return lambda *models, **options: server(*models, **lasting_state, **options)


def test_what_one_makes_another_streams_live_and_a_third_cancels(servers):
    model = GatedModel()
    made, read, ends = servers(model), servers(scripted()), servers(scripted())
    writer = Follower(made, "POST", "/v1/responses", json={"input": "x", "stream": True})
    id = writer.id()
    reader = Follower(read, "GET", f"/v1/responses/{id}?stream=true")
    for text in ("one", "two", "three"):
        # Each is read before the next is said.
        model.say(TextDelta(text))
        assert writer.until(text.encode()) == reader.until(text.encode())
    assert ends.stored(id)["status"] == "in_progress"
    cancelled = ends.http.post(f"/v1/responses/{id}/cancel").json()
    assert cancelled["status"] == "cancelled"
    assert model.stopped.is_set()
    for follower in (writer, reader):
        follower.until(b"[DONE]")
    assert reader.frames == writer.frames
    assert b'"response_cancelled"' in writer.frames[-2]
    whole = read.http.get(f"/v1/responses/{id}?stream=true").content.split(b"\n\n")[:-1]
    assert whole == writer.frames
    for served in (made, read, ends):
        assert served.stored(id) == cancelled


def test_a_stream_taken_up_at_another_server_goes_on_behind_its_last_event(servers):
    model = GatedModel()
    made, read = servers(model), servers(scripted())
    writer = Follower(made, "POST", "/v1/responses", json={"input": "x", "stream": True})
    id = writer.id()
    model.say(TextDelta("one"))
    writer.until(b'"one"')
    number = len(writer.frames) - 1
    path = f"/v1/responses/{id}?stream=true&starting_after={number}"
    reader = Follower(read, "GET", path)
    model.say(TextDelta("two"), Finish("stop"))
    writer.until(b"[DONE]")
    reader.until(b"[DONE]")
    assert reader.frames == writer.frames[number + 1 :]


def test_each_waiting_response_is_made_once_whoever_accepted_it(servers):
    started: list[str] = []
    names = ("one", "two")

    def model(name: str) -> object:
        made = scripted({"echo": True, "pieces": 3}, {"delay": 0.1}, {"text": "."})
        prepare = made.prepare

        async def counted(turn):
            generation = await prepare(turn)
            start = generation.start
            generation.start = lambda: (started.append(name), start())
            return generation

        made.prepare = counted
        return made

    options = {"max_background": 50, "max_background_per_key": 50}
    both = [servers(model(name), **options) for name in names]
    ids = [both[n % 2].create({**BACKGROUND, "input": f"number {n}"})["id"] for n in range(20)]
    for number, id in enumerate(ids):
        streams = [served.replay(id) for served in both]
        assert streams[0].events == streams[1].events
        assert streams[0].text() == f"number {number}."
        assert streams[0].types.count("response.output_item.added") == 1
    assert len(started) == 20
    # Each has two workers, and none waits while another is overwhelmed.
    assert {name: started.count(name) > 1 for name in names} == {"one": True, "two": True}


def test_a_queued_response_is_cancelled_at_a_server_that_did_not_accept_it(servers):
    busy = GatedModel()
    made, other = servers(busy, background_workers=1), servers(scripted(name="other"))
    running = made.create(BACKGROUND)
    assert busy.started.wait(10)
    queued = made.create(BACKGROUND)
    cancelled = other.http.post(f"/v1/responses/{queued['id']}/cancel").json()
    assert cancelled["status"] == "cancelled"
    busy.say(Finish("stop"))
    made.replay(running["id"])
    assert made.stored(queued["id"]) == cancelled
    assert made.replay(queued["id"]).types == ["response.created", "response.queued", "error"]


def test_one_server_s_conversation_waits_for_the_turn_that_another_makes(servers):
    model = GatedModel()
    made, other = servers(model), servers(scripted({"text": "ok"}))
    id = made.http.post("/v1/conversations", json={}).json()["id"]
    writer = Follower(
        made, "POST", "/v1/responses", json={"input": "a", "conversation": id, "stream": True}
    )
    writer.id()
    assert other.post({"input": "b", "conversation": id}).status_code == 409
    model.say(TextDelta("one"), Finish("stop"))
    writer.until(b"[DONE]")
    other.create({"input": "b", "conversation": id})
    items = made.http.get(f"/v1/conversations/{id}/items?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["a", "one", "b", "ok"]
