"""What the server counts, in the terms of Prometheus.

No label holds a prompt, an answer, a key or anything else of a client's own making, so their number
is bounded by the document and the settings.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from antiphon.turn import TokenUsage

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "antiphon_requests",
            "Requests answered, by operation and status.",
            ("operation", "status"),
            registry=self._registry,
        )
        self._first_byte = Histogram(
            "antiphon_request_seconds",
            "Time from a request to the first byte of its answer.",
            ("operation",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._dropped = Counter(
            "antiphon_dropped",
            "Parts of requests that were left out.",
            ("name",),
            registry=self._registry,
        )
        self._running = Gauge(
            "antiphon_responses_running",
            "Responses being made.",
            ("model",),
            registry=self._registry,
        )
        self._ended = Counter(
            "antiphon_responses",
            "Responses ended, by how: completed, incomplete, failed, cancelled.",
            ("model", "outcome"),
            registry=self._registry,
        )
        self._tokens = Counter(
            "antiphon_tokens",
            "Tokens of prompts (input), those of them found cached, and of answers (output).",
            ("model", "kind"),
            registry=self._registry,
        )

        self._store = _StoreCollector()
        self._registry.register(self._store)

    def request_answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request by its operation's id; `unrouted` for those that have none."""
        self._requests.labels(operation, str(status)).inc()
        self._first_byte.labels(operation).observe(seconds)

    def count_dropped(self, dropped: Iterable[_Named]) -> None:
        """Count what was left out of a request, by its name."""
        for entry in dropped:
            self._dropped.labels(entry.name).inc()

    def run_started(self, model: str) -> None:
        """Count a response that begins."""
        self._running.labels(model).inc()

    def run_ended(self, model: str, outcome: str, usage: TokenUsage) -> None:
        """Count a response that ended, and its tokens."""
        self._running.labels(model).dec()
        self._ended.labels(model, outcome).inc()
        self._tokens.labels(model, "input").inc(usage.input_tokens)
        self._tokens.labels(model, "cached").inc(usage.cached_tokens)
        self._tokens.labels(model, "output").inc(usage.output_tokens)

    def set_store(self, now: Mapping[str, int], happened: Mapping[str, int]) -> None:
        """Take over what a store counts: what there is now, and what happened since the start."""
        self._store.now, self._store.happened = now, happened

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _StoreCollector:
    """Shows what a store counted when it was last asked."""

    def __init__(self) -> None:
        self.now: Mapping[str, int] = {}
        self.happened: Mapping[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        now = GaugeMetricFamily(
            "antiphon_store", "What is stored, and what is going on there.", labels=("what",)
        )
        happened = CounterMetricFamily(
            "antiphon_store_operations",
            "What happened in the store since this process began.",
            labels=("what",),
        )
        for name, number in self.now.items():
            now.add_metric((name,), number)
        for name, number in self.happened.items():
            happened.add_metric((name,), number)
        yield from (now, happened)
