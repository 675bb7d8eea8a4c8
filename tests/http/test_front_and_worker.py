"""Servers without an engine, and the workers that make their responses, on one storage."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from serving import Served, parse_stream, scripted
from working import work

from antiphon.models.base import Model, ModelDefaults

SPEAKS = {"text": "Hello from a worker.", "pieces": 5}
HANGS = {"delay": 60}


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request, tmp_path) -> dict[str, Any]:
    """Settings of a storage that several processes may use."""
    settings: dict[str, Any] = {"state": request.param, "data_dir": tmp_path, "lease_seconds": 3}
    if request.param == "postgres":
        settings["database_url"] = request.getfixturevalue("postgres_url")
    return settings


@pytest.fixture
def workers(storage):
    """Starts workers that end with the test; `workers(model)` ends one before that."""
    with ExitStack() as running:

        def start(*models: Model, **settings: Any) -> Callable[[], None]:
            one = running.enter_context(ExitStack())
            one.enter_context(work(*models, **{**storage, **settings}))
            return one.close

        yield start


@pytest.fixture
def front(server, storage) -> Callable[..., Served]:
    return lambda **settings: server(engine=False, **{**storage, **settings})


def until(found: Callable[[], Any]) -> Any:
    """What is found in the end."""
    deadline = time.monotonic() + 20
    while not (result := found()):
        assert time.monotonic() < deadline, "it never comes"
        time.sleep(0.02)
    return result


def names(served: Served) -> list[str]:
    return [model["id"] for model in served.http.get("/v1/models").json()["data"]]


def test_a_worker_makes_what_is_asked_of_a_front(front, workers):
    workers(scripted(SPEAKS))
    served = front()
    response = served.create({"input": "Hi"})
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == "Hello from a worker."
    assert served.http.get(f"/v1/responses/{response['id']}").json() == response


def test_a_stream_of_a_front_is_the_log_that_the_worker_writes(front, workers):
    workers(scripted(SPEAKS))
    served = front()
    stream = served.stream({"input": "Hi"})
    assert stream.text() == "Hello from a worker."
    assert stream.done
    assert [e.data["sequence_number"] for e in stream.events] == list(range(len(stream.events)))
    url = f"/v1/responses/{stream.response['id']}"
    again = parse_stream(served.http.get(url, params={"stream": "true"}))
    assert [e.raw for e in again.events] == [e.raw for e in stream.events]


def test_a_background_response_of_a_front_is_queued_until_a_worker_takes_it(front, workers):
    workers(scripted(SPEAKS))
    served = front()
    stream = served.stream({"input": "Hi", "background": True})
    assert stream.types[:2] == ["response.created", "response.queued"]
    assert stream.response["status"] == "completed"


def test_a_worker_is_shown_what_came_before(front, workers):
    workers(scripted({"echo": True}))
    served = front()
    first = served.create({"input": "one two three"})
    second = served.create({"input": "four", "previous_response_id": first["id"]})
    assert second["output"][0]["content"][0]["text"] == "four"
    assert second["usage"]["input_tokens"] == 7


def test_a_front_offers_what_its_workers_have(front, workers):
    own = scripted(
        SPEAKS, name="one", context_window=4096, defaults=ModelDefaults(temperature=0.25, top_p=0.5)
    )
    workers(own, aliases={"gpt-5.5": "one"})
    served = front()
    models = {model["id"]: model for model in served.http.get("/v1/models").json()["data"]}
    assert models["one"]["context_window"] == 4096
    assert models["one"]["created"] == own.created
    assert models["gpt-5.5"]["alias_of"] == "one"
    response = served.create({"input": "Hi", "model": "gpt-5.5"})
    assert response["model"] == "gpt-5.5"
    assert (response["temperature"], response["top_p"]) == (0.25, 0.5)
    assert served.error({"input": "Hi", "model": "two"}, 404)["code"] == "model_not_found"
    assert served.http.get("/v1/status").json()["models"] == [
        {"id": "one", "state": "remote", "engine": None}
    ]


def test_each_worker_makes_what_is_for_its_models_also_beside_one_that_takes_every_name(
    front, workers
):
    workers(scripted({"text": "from one"}, name="one"), aliases={"*": "one"})
    workers(scripted({"text": "from two"}, name="two"))
    served = front(model="two")
    asked = {"one": "one", "two": "two", "anything": "one", None: "two"}
    for name, by in asked.items():
        body = {"input": "Hi"} if name is None else {"input": "Hi", "model": name}
        response = served.create(body)
        assert response["output"][0]["content"][0]["text"] == f"from {by}"
        assert response["model"] == (name or "two")


def test_a_front_without_workers_says_so(front):
    served = front()
    error = served.error({"input": "Hi"}, 503)
    assert error["code"] == "model_unavailable"
    assert "No worker" in error["message"]
    assert served.post({"input": "Hi"}).headers["retry-after"]
    assert names(served) == []


def test_workers_that_come_and_go_are_noticed(front, workers):
    served = front()
    stop = workers(scripted(SPEAKS, name="late"))
    until(lambda: names(served) == ["late"])
    assert served.create({"input": "Hi"})["model"] == "late"
    stop()
    until(lambda: names(served) == [])
    served.error({"input": "Hi"}, 503)


def test_what_only_an_engine_can_do_is_refused(front, workers):
    workers(scripted(SPEAKS))
    served = front()
    error = served.error({"input": "Hi", "store": False})
    assert (error["code"], error["param"]) == ("unsupported_value", "store")
    error = served.error({"input": "Hi"}, path="/v1/responses/input_tokens")
    assert (error["code"], error["param"]) == ("unsupported_value", "model")


def test_what_only_a_worker_can_find_wrong_ends_the_response_as_failed(front, workers):
    workers(scripted(SPEAKS, context_window=3))
    served = front()
    response = served.create({"input": "one two three four"})
    assert response["status"] == "failed"
    assert "length is 3 tokens" in response["error"]["message"]
    stream = served.stream({"input": "one two three four"})
    assert stream.types[-1] == "response.failed"
    assert stream.done


def test_a_front_cancels_what_a_worker_makes(front, workers):
    workers(scripted({"text": "Once "}, HANGS))
    served = front()
    made = served.create({"input": "Hi", "background": True})
    url = f"/v1/responses/{made['id']}"
    until(lambda: served.http.get(url).json()["status"] == "in_progress")
    cancelled = served.http.post(f"{url}/cancel")
    assert cancelled.json()["status"] == "cancelled"


@pytest.mark.parametrize("background", [False, True])
def test_what_a_stopped_worker_had_not_begun_to_say_another_makes(front, workers, background):
    stop = workers(scripted(HANGS), shutdown_grace_seconds=0)
    served = front()
    body = {"input": "Hi", "stream": True, "background": background}
    with served.http.stream("POST", "/v1/responses", json=body) as answer:
        lines = answer.iter_lines()
        # The front says so itself of what is not queued, and then the worker that takes it.
        for _ in range(1 if background else 2):
            while next(lines) != "event: response.in_progress":
                pass
        workers(scripted({"text": "The other one."}))
        stop()
        rest = "\n".join(lines)
    assert '"delta":"The other one."' in rest
    assert rest.count("event: response.completed") == 1
    assert "response.failed" not in rest
