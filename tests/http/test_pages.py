"""The server's own pages."""

import re

import yaml
from serving import scripted


def test_health_and_readiness_tell_a_running_from_a_stopping_server(server):
    served = server(scripted({"text": "ok"}))
    assert served.http.get("/health").json() == {"status": "ok"}
    assert served.http.get("/ready").json() == {"status": "ok"}
    served.application.service._draining = True
    assert served.http.get("/health").status_code == 200
    ready = served.http.get("/ready")
    assert (ready.status_code, ready.json()) == (503, {"status": "shutting_down"})


def test_the_document_is_served_in_both_forms(plain, contract):
    assert plain.http.get("/openapi.json").json() == contract.document
    answer = plain.http.get("/openapi.yaml")
    assert answer.headers["content-type"].startswith("application/yaml")
    assert yaml.safe_load(answer.text) == contract.document


def test_the_reference_needs_nothing_from_elsewhere(plain):
    answer = plain.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    page = answer.text
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page)
    assert "cdn.redoc.ly" not in page
    assert "create_response" in page


def test_metrics_count_requests_responses_and_tokens(server):
    served = server(scripted({"text": "one two", "pieces": 4}))
    served.create({"input": "a b c"})
    served.stream({"input": "a b c"})
    served.post({"input": 5})
    lines = served.http.get("/metrics").text.splitlines()
    for line in (
        'antiphon_requests_total{operation="create_response",status="200"} 2.0',
        'antiphon_requests_total{operation="create_response",status="400"} 1.0',
        'antiphon_responses_total{model="test-model",outcome="completed"} 2.0',
        'antiphon_responses_running{model="test-model"} 0.0',
        'antiphon_tokens_total{kind="input",model="test-model"} 6.0',
        'antiphon_tokens_total{kind="output",model="test-model"} 4.0',
    ):
        assert line in lines


def test_every_answer_is_what_the_document_says(plain, contract):
    for path, schema in (
        ("/v1/models", "ModelList"),
        ("/v1/models/test-model", "ModelInfo"),
        ("/health", "Health"),
        ("/ready", "Health"),
    ):
        answer = plain.http.get(path)
        assert contract.accepts(f"#/components/schemas/{schema}", answer.json()), path
    for body in ({}, {"input": "x", "model": "nope"}, {"input": "x", "store": 5}):
        error = plain.post(body).json()
        assert contract.accepts("#/components/schemas/Error", error), body
