"""What a client sends is passed on and recorded without what is somebody's own."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from answering import answering, response
from listening import listening
from replays import replayed

from responses_conformance.recorded.bodies import load
from responses_conformance.recorded.capture import Capture
from responses_conformance.recorded.redaction import Redactor, as_file

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
RESPONSE = "resp_6820f382ee1c8191"


@pytest.fixture
def capture(tmp_path):
    """Begins to record what goes to a base URL; gives a client of the recorder."""
    opened = []

    def begin(base_url):
        server = Capture(base_url, tmp_path / "c", client="c", version="1.2", flow="first")
        listener = listening(server)
        opened.append((listener, httpx.Client(base_url=listener.__enter__(), trust_env=False)))
        return opened[-1][1]

    yield begin
    for listener, http in opened:
        http.close()
        listener.__exit__(None, None, None)


def written(tmp_path):
    return [request for flow in load([tmp_path]) for request in flow]


def test_answers_come_back_as_the_server_gave_them(capture, tmp_path):
    with replayed("valid/text") as url:
        direct = httpx.post(f"{url}/responses", json={"stream": True}, trust_env=False)
        passed = capture(url).post("responses", json={"stream": True})
    assert passed.content == direct.content
    assert passed.headers["content-type"] == direct.headers["content-type"]


def test_streams_are_passed_on_as_they_come(capture):
    goes_on = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"a")
            self.wfile.flush()
            goes_on.wait(10)
            self.wfile.write(b"b")

        def log_message(self, format, *args):
            pass

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Slow)) as url:
        with capture(url).stream("GET", "models") as answer:
            pieces = answer.iter_raw()
            assert next(pieces) == b"a"
            goes_on.set()
            assert b"".join(pieces) == b"b"


def test_requests_are_files_that_can_be_sent_again(capture, tmp_path):
    with answering(response(RESPONSE), response(RESPONSE), response()) as (config, server):
        http = capture(config.base_url)
        http.headers["authorization"] = "Bearer sk-real"
        http.post("responses", json={"model": "m", "input": "Hi"})
        http.get(f"responses/{RESPONSE}?include[]=a")
        assert http.post("http://x/flow/second".replace("http://x", str(http.base_url)[:-4]))
        body = {"model": "m", "input": "Hi", "previous_response_id": RESPONSE}
        http.post("responses", content=iter([json.dumps(body).encode()]))
    first, second, third = written(tmp_path)
    assert [one.name for one in (first, second, third)] == [
        "c/01-first",
        "c/02-first",
        "c/03-second",
    ]
    assert (first.client, first.version, first.transport) == ("c", "1.2", "http")
    assert first.body == {"model": "m", "input": "Hi"}
    assert first.headers["authorization"] == "Bearer <redacted>"
    assert (second.method, second.body) == ("GET", None)
    assert second.path.startswith("/responses/resp_00000001?include")
    # Nothing in this flow told of the id.
    assert third.body["previous_response_id"] == RESPONSE
    assert server.received[0][2]["authorization"] == "Bearer sk-real"
    assert server.received[2][3] == body


def test_an_upgrade_is_recorded_and_refused_so_that_the_client_falls_back(capture, tmp_path):
    with answering() as (config, server):
        answer = capture(config.base_url).get(
            "responses", headers={"connection": "upgrade", "upgrade": "websocket"}
        )
    assert (answer.status_code, server.received) == (426, [])
    assert [one.transport for one in written(tmp_path)] == ["websocket-handshake"]


def test_a_server_that_is_not_there_is_a_bad_gateway(capture):
    assert capture("http://127.0.0.1:9/v1").get("models").status_code == 502


# --- redaction ---


def test_secrets_and_the_host_are_taken_out_of_headers():
    kept = Redactor().headers(
        {"Authorization": "Bearer sk", "X-API-Key": "k", "Cookie": "c", "Host": "h", "X-A": "b"}
    )
    assert kept == {
        "authorization": "Bearer <redacted>",
        "x-api-key": "<redacted>",
        "cookie": "<redacted>",
        "host": "server.test",
        "x-a": "b",
    }


def test_ids_that_the_server_told_are_numbered_in_the_order_of_their_use():
    redactor = Redactor()
    redactor.learn(b'{"id":"msg_6820f382ee1c8191","call_id": "call_ab12cd34"}')
    redactor.learn(b'{"item_id":"msg_77777777"}')
    assert redactor.body(["msg_77777777", "msg_6820f382ee1c8191", "call_ab12cd34"]) == [
        "msg_00000001",
        "msg_00000002",
        "call_00000001",
    ]
    assert redactor.text("msg_77777777, get_weather_of_city") == "msg_00000001, get_weather_of_city"


def test_what_tells_of_a_machine_or_a_time_is_replaced():
    now = time.time()
    today = time.strftime("%Y-%m-%d", time.gmtime(now))
    given = {
        "a": f"{UUID} and msg_{UUID}",
        "b": "a" * 7 + "0" * 33,
        "c": "look at /home/ada/secret.txt and https://example.com/home/page",
        "d": f"{today}, not 2024-08-06",
        "e": int(now),
        "f": f'{{"ms":{int(now * 1000)}}}',
        "g": 1234567890,
    }
    number = "00000000-0000-7000-8000-000000000001"
    assert Redactor().body(given) == {
        "a": f"{number} and msg_{number}",
        "b": "0" * 39 + "1",
        "c": "look at /workspace and https://example.com/home/page",
        "d": "2026-01-01, not 2024-08-06",
        "e": 1700000000,
        "f": '{"ms":1700000000000}',
        "g": 1234567890,
    }


def test_long_texts_are_told_by_their_length_and_what_tools_say_stays():
    long = "a word " * 20
    given = {"text": long, "description": long[:70], "output": long, "encrypted_content": long}
    assert Redactor().body(given) == {
        "text": "Placeholder. [filler for 140 characters of client text]",
        "description": "Placeholder. [filler for 70 characters of client text]",
        "output": long,
        "encrypted_content": "sealed",
    }


def test_a_file_has_a_line_for_each_field():
    assert as_file({"a": 1, "b": {"c": "é"}}) == '{"a": 1,\n "b": {"c":"é"}}\n'
