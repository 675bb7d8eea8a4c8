"""Every failure, over a real socket, in the one envelope."""

import socket

import httpx
import openai
import pytest
from serving import scripted

from antiphon.keys import KeyFile, KeyRing

ITEMS = [
    # (method, path, headers, body, status, code, param)
    ("POST", "/v1/responses", {}, b"not json", 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b"", 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b"{}", 400, "missing_required_parameter", "input"),
    ("POST", "/v1/responses", {}, b"[]", 400, "invalid_type", None),
    ("POST", "/v1/responses", {}, b'{"input":"\xff"}', 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b'{"input":"\\ud800"}', 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b'{"input":NaN}', 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b'{"input":"x","seed":1e999}', 400, None, None),
    ("POST", "/v1/responses", {}, b"[" * 100_000, 400, "invalid_json", None),
    ("POST", "/v1/responses", {}, b'{"a":' * 100_000, 400, "invalid_json", None),
    (
        "POST",
        "/v1/responses",
        {},
        b'{"input":' + b"[" * 900 + b"]" * 900 + b"}",
        400,
        "invalid_type",
        "input[0]",
    ),
    (
        "POST",
        "/v1/responses",
        {},
        b'{"input":"x","model":"nope"}',
        404,
        "model_not_found",
        "model",
    ),
    (
        "POST",
        "/v1/responses",
        {},
        b'{"input":"x","temperature":"hot"}',
        400,
        "invalid_type",
        "temperature",
    ),
    (
        "POST",
        "/v1/responses",
        {"content-type": "text/plain"},
        b'{"input":"x"}',
        415,
        "unsupported_media_type",
        None,
    ),
    (
        "POST",
        "/v1/responses",
        {"content-encoding": "gzip"},
        b'{"input":"x"}',
        415,
        "unsupported_media_type",
        None,
    ),
    ("PUT", "/v1/responses", {}, b"{}", 405, "method_not_allowed", None),
    ("GET", "/v1/responses", {}, None, 405, "method_not_allowed", None),
    (
        "GET",
        "/v1/responses/resp_none",
        {},
        None,
        404,
        "response_not_found",
        "response_id",
    ),
    ("GET", "/v1/responses/resp_none/nothing", {}, None, 404, "unknown_url", None),
    ("GET", "/v1/unknown", {}, None, 404, "unknown_url", None),
    ("GET", "/v1/models/nope/nope", {}, None, 404, "model_not_found", "model"),
    ("DELETE", "/v1/models", {}, None, 405, "method_not_allowed", None),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status", "code", "param"), ITEMS)
def test_err_01_every_failure_has_the_envelope(
    plain, method, path, headers, body, status, code, param
):
    headers = {"content-type": "application/json", **headers}
    answer = plain.http.request(method, path, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["code"], str)
    assert error["message"]
    assert error["param"] == param or code is None
    assert error["code"] == code or code is None


def test_a_405_names_every_method_the_path_knows(server):
    served = server()
    answer = served.http.put("/v1/responses")
    assert answer.headers["allow"] == "POST"
    answer = served.http.post("/v1/models/some/model")
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_crash_is_a_500_that_tells_nothing(server, caplog):
    model = scripted({"text": "ok"})

    async def crash(turn):
        raise RuntimeError("a secret cause")

    model.prepare = crash
    served = server(model)
    answer = served.post({"input": "x"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    assert served.create is not None and served.http.get("/health").status_code == 200


def test_a_declared_body_over_the_limit_is_refused_before_it_is_sent(server):
    served = server(max_body_bytes=2048)
    error = served.error({"input": "x" * 3000}, 413)
    assert error["code"] == "payload_too_large"
    assert "2048" in error["message"]


def test_a_chunked_body_over_the_limit_is_refused_while_it_arrives(server):
    served = server(max_body_bytes=2048)

    def chunks():
        for _ in range(10):
            yield b"x" * 1000

    answer = served.http.post(
        "/v1/responses", content=chunks(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "payload_too_large"


def test_a_chunked_body_within_the_limit_is_read(server):
    served = server(scripted({"text": "ok"}))
    body = iter([b'{"inp', b'ut":', b'"x"}'])
    answer = served.http.post(
        "/v1/responses", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200


def test_a_body_that_never_comes_times_out(server):
    served = server(body_timeout_seconds=0.05)
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\nconnection: close\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"request_timeout" in answer


@pytest.mark.parametrize("content_type", ["Application/JSON", "application/json; charset=UTF-8"])
def test_content_types_are_read_whatever_their_case(server, content_type):
    served = server(scripted({"text": "ok"}))
    assert served.post({"input": "x"}, headers={"content-type": content_type}).status_code == 200
    error = served.error({"input": 5}, headers={"content-type": content_type})
    assert error["param"] == "input"


def test_a_body_without_a_content_type_is_taken_for_json(server):
    served = server(scripted({"text": "ok"}))
    answer = served.http.send(
        served.http.build_request("POST", "/v1/responses", content=b'{"input":"x"}')
    )
    assert answer.status_code == 200


def test_an_answer_that_takes_too_long_is_a_504_and_stops_the_model(server):
    served = server(scripted({"text": "a"}, {"delay": 60}), request_timeout_seconds=0.05)
    error = served.error({"input": "x", "store": False}, 504)
    assert error["code"] == "gateway_timeout"
    assert metric(served, 'antiphon_responses_total{model="test-model",outcome="cancelled"}') == 1


def test_a_stream_may_take_longer_than_that(server):
    served = server(
        scripted({"text": "a"}, {"delay": 0.2}, {"text": "b"}), request_timeout_seconds=0.05
    )
    assert served.stream({"input": "x"}).text() == "ab"


def metric(served, name):
    for line in served.http.get("/metrics").text.splitlines():
        if line.startswith(name):
            return float(line.rpartition(" ")[2])
    return None


def test_websocket_upgrades_are_told_to_fall_back(server):
    served = server()
    answer = served.http.get(
        "/v1/responses", headers={"connection": "upgrade", "upgrade": "websocket"}
    )
    assert answer.status_code == 426
    assert answer.json()["error"]["code"] == "upgrade_required"


def test_err_01_the_sdk_raises_its_typed_exceptions(server, tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    key = file.add("test")
    served = server(scripted({"text": "ok"}, context_window=20), keys=KeyRing(file))
    client = served.sdk(key)
    with pytest.raises(openai.BadRequestError) as bad:
        client.responses.create(model="test-model", input="x", temperature=3)
    assert (bad.value.code, bad.value.param) == ("decimal_above_max_value", "temperature")
    assert bad.value.request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model="test-model", input="word " * 30)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input")
    assert "30" in long.value.message and "20" in long.value.message
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="nope", input="x")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.AuthenticationError) as wrong:
        served.sdk("sk-wrong").responses.create(model="test-model", input="x")
    assert wrong.value.code == "invalid_api_key"


def test_err_04_a_limit_beyond_the_context_ends_the_answer_with_it(server):
    served = server(scripted({"text": "word " * 50, "pieces": 5}, context_window=100))
    response = served.create({"input": "word " * 90, "max_output_tokens": 50})
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] == 10
    assert response["max_output_tokens"] == 50


def test_err_04_truncation_auto_leaves_out_the_oldest_and_keeps_the_rest(server):
    served = server(scripted({"echo": True}, context_window=40))
    history = [{"role": "user", "content": "old " * 10} for _ in range(5)]
    body = {
        "instructions": "be brief",
        "input": [
            {"role": "developer", "content": "always"},
            *history,
            {"role": "user", "content": "new"},
        ],
    }
    assert served.error(body)["code"] == "context_length_exceeded"
    response = served.create({**body, "truncation": "auto"})
    assert response["truncation"] == "auto"
    assert response["output"][0]["content"][0]["text"] == "new"
    # Instructions, the developer's message, three old ones and the new one.
    assert response["usage"]["input_tokens"] == 2 + 1 + 30 + 1
    alone = {"input": "word " * 50, "truncation": "auto"}
    assert served.error(alone)["code"] == "context_length_exceeded"


def test_the_client_may_retry_what_is_passing(server):
    served = server(scripted({"text": "ok"}))
    served.application.service._draining = True
    with pytest.raises(openai.InternalServerError) as stopped:
        served.sdk(max_retries=1).responses.create(model="test-model", input="x")
    assert stopped.value.code == "server_shutting_down"
    assert stopped.value.response.headers["retry-after"] == "1"
    name = 'antiphon_requests_total{operation="create_response",status="503"}'
    assert metric(served, name) == 2
    served.application.service._draining = False
    assert served.create({"input": "x"})["status"] == "completed"


def test_a_path_too_strange_for_the_router_is_a_404(server):
    served = server()
    for path in ("/v1/%00", "/v1/..%2f..%2fetc", "//v1/responses", "/v1/%ff/models"):
        answer = httpx.get(served.url + path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "unknown_url"
