"""What holds of every answer."""

import pytest
from serving import scripted


def test_every_answer_is_named_timed_and_not_cached(plain):
    for answer in (plain.http.get("/health"), plain.post({}), plain.post({"input": "x"})):
        assert answer.headers["x-request-id"].startswith("req_")
        assert int(answer.headers["openai-processing-ms"]) >= 0
        assert answer.headers["openai-version"] == "2020-10-01"
        assert "no-store" in answer.headers["cache-control"]


def test_a_sane_request_id_of_the_client_is_kept(plain):
    for sane in ("0194-abc", "trace:1.2_3"):
        answer = plain.http.get("/health", headers={"x-request-id": sane})
        assert answer.headers["x-request-id"] == sane


@pytest.mark.parametrize("odd", ["", "a b", "x" * 129, "<script>", "é".encode().decode("latin-1")])
def test_an_odd_request_id_is_replaced(plain, odd):
    answer = plain.http.get("/health", headers={"x-request-id": odd.encode("latin-1")})
    assert answer.headers["x-request-id"].startswith("req_")


def test_head_is_answered_like_get_without_a_body(plain):
    answer = plain.http.head("/v1/models")
    assert answer.status_code == 200
    assert answer.content == b""


def test_a_slash_at_the_end_is_forgiven(plain):
    assert plain.post({"input": "x"}, "/v1/responses/").status_code == 200


def test_query_parameters_of_clients_are_let_through(plain):
    assert plain.http.get("/v1/models?client_version=0.169.0").status_code == 200
    assert plain.post({"input": "x"}, "/v1/responses?beta=true").status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    "media_type",
    ["multipart/form-data", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"],
)
def test_a_media_type_without_a_body_is_not_looked_at(plain, method, media_type):
    answer = plain.http.request(
        method, "/v1/responses/resp_none", headers={"content-type": media_type}, content=b"--x"
    )
    assert answer.status_code == 404


def test_accept_does_not_decide_whether_an_answer_is_streamed(plain):
    answer = plain.post({"input": "x", "stream": True}, headers={"accept": "application/json"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    answer = plain.post({"input": "x"}, headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"] == "application/json"


def test_pages_of_other_origins_may_call_if_a_setting_says_so(server):
    served = server(scripted({"text": "ok"}), cors_origins=("https://app.example",))
    preflight = served.http.options(
        "/v1/responses",
        headers={
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    for answer in (
        served.post({"input": "x"}, headers={"origin": "https://app.example"}),
        served.post({"input": 1}, headers={"origin": "https://app.example"}),
    ):
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
    other = served.post({"input": "x"}, headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_without_the_setting_no_page_may_call(plain):
    answer = plain.post({"input": "x"}, headers={"origin": "https://app.example"})
    assert "access-control-allow-origin" not in answer.headers
