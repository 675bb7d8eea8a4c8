"""A client that goes away stops its model unless the response is stored; others are not touched.
(NET-02)
"""

import asyncio
import json
import socket
import threading
import time

import pytest
from gated import GatedModel
from serving import scripted

from antiphon.turn import Finish, TextDelta


def post_and_leave(served, body, until=b""):
    """Send a request and read until something arrives; closing the generator hangs up."""
    host, port = served.url.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(content), content)
        )
        seen = b""
        while until not in seen:
            seen += sock.recv(65536)
        yield


@pytest.mark.parametrize("stream", [True, False])
def test_net_02_leaving_stops_the_model(server, stream):
    model = GatedModel()
    served = server(model)
    until = b"response.in_progress" if stream else b""
    client = post_and_leave(served, {"input": "x", "stream": stream, "store": False}, until)
    next(client)
    model.say(TextDelta("Hello"))
    assert not model.stopped.is_set()
    client.close()
    assert model.stopped.wait(10)
    steps = model.steps
    # What it would have said next is not asked for any more.
    model.say(TextDelta("more"), Finish("stop"))
    assert served.http.get("/health").status_code == 200
    assert model.steps == steps


def test_net_02_a_second_request_starts_at_once(server):
    first, second = GatedModel(), scripted({"text": "ok"}, name="other")
    served = server(first, second)
    body = {"input": "x", "stream": True, "store": False}
    client = post_and_leave(served, body, b"response.in_progress")
    next(client)
    client.close()
    assert first.stopped.wait(10)
    assert served.create({"input": "x", "model": "other"})["status"] == "completed"


def test_net_02_a_reader_that_never_reads_holds_nobody_up(server):
    served = server(scripted({"text": "word " * 20_000, "pieces": 5}))
    client = post_and_leave(served, {"input": "x", "stream": True})
    next(client)
    assert served.create({"input": "x", "max_output_tokens": 16})["status"] == "incomplete"
    client.close()


def test_ops_01_nothing_is_left_of_requests_that_are_done(server):
    served = server(scripted({"text": "Hel", "pieces": 1}, {"fail": "x"}), GatedModel())

    async def count():
        return len(asyncio.all_tasks())

    served.create({"input": "x"})
    before = served.on_loop(count())
    for _ in range(50):
        served.create({"input": "x"})
        served.stream({"input": "x"})
        served.post({"input": 5})
        body = {"input": "x", "stream": True, "model": "gated", "store": False}
        client = post_and_leave(served, body, b"response.in_progress")
        next(client)
        client.close()
    for _ in range(1000):
        after = served.on_loop(count())
        if after <= before and not served.application.service._runs:
            break
        time.sleep(0.01)  # Connections close when the kernel says so.
    assert after <= before
    assert not served.application.service._runs


def test_ops_02_health_is_answered_while_a_model_blocks_its_thread(server):
    release = threading.Event()
    model = scripted({"text": "ok"})
    prepare = model.prepare

    async def slow(turn):
        await asyncio.get_running_loop().run_in_executor(None, release.wait, 10)
        return await prepare(turn)

    model.prepare = slow
    served = server(model)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(served.create({"input": "x"})))
    thread.start()
    assert served.http.get("/health").status_code == 200
    assert not answers
    release.set()
    thread.join()
    assert answers[0]["status"] == "completed"
