"""Counts and logs what is asked and made."""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from antiphon.metrics import Metrics
from antiphon.responses.gate import Dropped
from antiphon.responses.run import Run

_logger = structlog.get_logger("antiphon.responses")


class Observer:
    """Tells `metrics` and the log. With `log_content` prompts and answers are written to the log,
    but never those of requests with `store: false`."""

    def __init__(self, metrics: Metrics, *, log_content: bool) -> None:
        self._metrics = metrics
        self._log_content = log_content

    def accepted(self, body: Mapping[str, Any], dropped: Sequence[Dropped]) -> None:
        """A request passed."""
        self._metrics.count_dropped(dropped)
        if self._log_content and body.get("store") is not False:
            _logger.info("asked", body=body)

    def started(self, run: Run, model: str, *, private: bool = False) -> None:
        """A run began; it is followed to its end."""
        self._metrics.run_started(model)
        run.task.add_done_callback(lambda _: self._ended(run, model, private=private))

    def _ended(self, run: Run, model: str, *, private: bool) -> None:
        self._metrics.run_ended(model, run.outcome, run.usage)
        _logger.info(
            "response",
            model=model,
            outcome=run.outcome,
            input_tokens=run.usage.input_tokens,
            output_tokens=run.usage.output_tokens,
        )
        if self._log_content and not private:
            _logger.info("answered", output=run.result()["output"])
