"""A server on a real socket, in a thread, for tests."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn
from openai import OpenAI

from antiphon.app import Application, build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models.base import Model
from antiphon.models.scripted import ScriptedModel
from antiphon.server import bind
from antiphon.settings import SceneSettings, Settings, StepSettings
from antiphon.storage import open_storage

T = TypeVar("T")
NO_KEYS = Path("/nonexistent/keys.toml")


def scripted(*steps: dict[str, Any], name: str = "test-model", **options: Any) -> ScriptedModel:
    """A model that always plays these steps, such as `{"text": "Hello", "pieces": 2}`."""
    scene = SceneSettings(steps=tuple(StepSettings(**step) for step in steps))
    return ScriptedModel(name, [scene], **options)


@dataclass(frozen=True)
class Event:
    """One frame of a stream: the `event` line, the `data` line, and the frame's own bytes."""

    name: str
    data: dict[str, Any]
    raw: bytes


@dataclass(frozen=True)
class Stream:
    """A whole stream. `done` is whether `[DONE]` ended it."""

    headers: httpx.Headers
    events: Sequence[Event]
    done: bool

    @property
    def types(self) -> list[str]:
        return [event.data["type"] for event in self.events]

    @property
    def response(self) -> dict[str, Any]:
        """The response of the last event."""
        response: dict[str, Any] = self.events[-1].data["response"]
        return response

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All events of one type."""
        return [event.data for event in self.events if event.data["type"] == kind]

    def text(self) -> str:
        """All text deltas joined."""
        return "".join(event["delta"] for event in self.of("response.output_text.delta"))


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    application: Application
    http: httpx.Client
    closing: ExitStack
    loop: asyncio.AbstractEventLoop

    def on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def sdk(self, api_key: str = "none", **options: Any) -> OpenAI:
        """The official client, refusing whatever its own types do not know."""
        options = {"max_retries": 0, **options}
        client = OpenAI(
            base_url=f"{self.url}/v1",
            api_key=api_key,
            _strict_response_validation=True,
            **options,
        )
        return self.closing.enter_context(client)

    def post(self, body: Any, path: str = "/v1/responses", **options: Any) -> httpx.Response:
        """Post a body: an object as JSON, bytes as they are."""
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        content = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.http.post(path, content=content, headers=headers, **options)

    def create(self, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        """A response, as one object."""
        answer = self.post(body, **options)
        assert answer.status_code == 200, answer.text
        response: dict[str, Any] = answer.json()
        return response

    def error(self, body: Any, status: int = 400, **options: Any) -> dict[str, Any]:
        """The error that a body is answered with."""
        answer = self.post(body, **options)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    def stream(self, body: dict[str, Any], **options: Any) -> Stream:
        """A response, as a whole stream."""
        answer = self.post({**body, "stream": True}, **options)
        assert answer.status_code == 200, answer.text
        return parse_stream(answer)

    def replay(self, response_id: str, starting_after: int | None = None, **options: Any) -> Stream:
        """The events of a stored response, to their end."""
        query = "" if starting_after is None else f"&starting_after={starting_after}"
        answer = self.http.get(f"/v1/responses/{response_id}?stream=true{query}", **options)
        assert answer.status_code == 200, answer.text
        return parse_stream(answer)

    def stored(self, response_id: str, **options: Any) -> dict[str, Any]:
        """A stored response as it stands."""
        answer = self.http.get(f"/v1/responses/{response_id}", **options)
        assert answer.status_code == 200, answer.text
        response: dict[str, Any] = answer.json()
        return response


def parse_stream(answer: httpx.Response) -> Stream:
    """The events of an answer. Asserts that its frames are what the document says."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert b"\r" not in answer.content
    *frames, rest = answer.content.split(b"\n\n")
    assert rest == b""
    done = bool(frames) and frames[-1] == b"data: [DONE]"
    events = []
    for frame in frames[:-1] if done else frames:
        name, data = frame.decode().split("\n")
        assert name.startswith("event: ") and data.startswith("data: ")
        events.append(Event(name[7:], json.loads(data[6:]), frame))
        assert events[-1].name == events[-1].data["type"]
    return Stream(answer.headers, events, done)


@contextmanager
def serve(
    *models: Model,
    keys: KeyRing | None = None,
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> Iterator[Served]:
    """Serve models until the block ends. Settings are those of the product, but what is stored
    stays in memory. `clock` is what time limits of stored things go by."""
    effective = Settings(**{"state": "memory", **settings})
    application = build(
        effective,
        models or ([scripted()] if effective.engine else []),
        keys or KeyRing(KeyFile(NO_KEYS)),
        open_storage(effective, clock=clock),
    )
    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    started: Future[asyncio.AbstractEventLoop] = Future()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set_result(asyncio.get_running_loop())

    config = uvicorn.Config(
        application.asgi, lifespan="on", ws="none", log_config=None, access_log=False
    )
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        loop = started.result(30)
        with httpx.Client(base_url=url, timeout=60) as http, ExitStack() as closing:
            yield Served(url, application, http, closing, loop)
    finally:
        server.should_exit = True
        thread.join()
