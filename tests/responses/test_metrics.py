"""What the server counts, as Prometheus reads it."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from antiphon.metrics import Metrics
from antiphon.spec import packaged_contract
from antiphon.turn import TokenUsage


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every value by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, metric: str, /, **labels: str) -> float:
    return samples(metrics)[metric, tuple(sorted(labels.items()))]


def test_before_anything_happens_there_is_nothing_to_count():
    assert samples(Metrics()) == {}


def test_requests_are_counted_by_operation_and_status_and_timed():
    metrics = Metrics()
    metrics.request_answered("create_response", 200, 0.02)
    metrics.request_answered("create_response", 200, 400)
    metrics.request_answered("create_response", 400, 0.001)
    count = "antiphon_requests_total"
    assert value(metrics, count, operation="create_response", status="200") == 2
    assert value(metrics, count, operation="create_response", status="400") == 1
    seconds = "antiphon_request_seconds"
    assert value(metrics, f"{seconds}_count", operation="create_response") == 3
    bucket = f"{seconds}_bucket"
    assert value(metrics, bucket, operation="create_response", le="0.01") == 1
    assert value(metrics, bucket, operation="create_response", le="0.025") == 2
    assert value(metrics, bucket, operation="create_response", le="+Inf") == 3


def test_running_responses_go_up_and_down_and_leave_their_tokens():
    metrics = Metrics()
    metrics.run_started("m")
    metrics.run_started("m")
    assert value(metrics, "antiphon_responses_running", model="m") == 2
    metrics.run_ended("m", "completed", TokenUsage(10, cached_tokens=8, output_tokens=3))
    metrics.run_ended("m", "failed", TokenUsage(5, output_tokens=1))
    assert value(metrics, "antiphon_responses_running", model="m") == 0
    assert value(metrics, "antiphon_responses_total", model="m", outcome="completed") == 1
    assert value(metrics, "antiphon_responses_total", model="m", outcome="failed") == 1
    assert value(metrics, "antiphon_tokens_total", model="m", kind="input") == 15
    assert value(metrics, "antiphon_tokens_total", model="m", kind="output") == 4
    assert value(metrics, "antiphon_tokens_total", model="m", kind="cached") == 8


def test_what_is_left_out_is_counted_by_name():
    metrics = Metrics()
    metrics.count_dropped([SimpleNamespace(name="store"), SimpleNamespace(name="store")])
    metrics.count_dropped([])
    assert value(metrics, "antiphon_dropped_total", name="store") == 2


def test_each_server_counts_by_itself():
    first, second = Metrics(), Metrics()
    first.run_started("m")
    assert samples(second) == {}


@pytest.mark.parametrize("name", ["requests", "request_seconds", "responses", "tokens", "dropped"])
def test_every_metric_says_what_it_is(name: str):
    families: dict[str, Any] = {
        f.name: f for f in text_string_to_metric_families(Metrics().text().decode())
    }
    assert families[f"antiphon_{name}"].documentation


def test_the_documents_example_is_of_metrics_that_there_are():
    example = packaged_contract().document["components"]["examples"]["metrics"]["value"]
    known = {f.name for f in text_string_to_metric_families(Metrics().text().decode())}
    shown = {f.name for f in text_string_to_metric_families(example)}
    assert shown and shown <= known
