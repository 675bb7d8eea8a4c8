"""A run as one page of HTML that needs nothing else."""

import json
from importlib.resources import files

import jinja2
from markupsafe import Markup, escape

from responses_conformance import __version__
from responses_conformance.exchange import Exchange
from responses_conformance.reports.console import rows, verdicts
from responses_conformance.results import BAD, Report
from responses_conformance.texts import parsed
from responses_conformance.words import NOBODY, breaks

_MOST_BYTES = 20_000


def page(report: Report) -> str:
    """The page: a summary by profile, then each failure with what was sent and came back."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["ticks"] = _ticks
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        report=report,
        version=__version__,
        verdicts=verdicts(report),
        rows=rows(report),
        bad=BAD,
        breaks=breaks,
        nobody=NOBODY,
        asked=_asked,
        answered=_answered,
    )


def _ticks(text: str) -> Markup:
    """What stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def _asked(exchange: Exchange) -> str:
    head = [f"{exchange.method} {exchange.path}"]
    head += [f"{name}: {value}" for name, value in exchange.request_headers.items()]
    return "\n".join(head) + "\n\n" + _body(exchange.request)


def _answered(exchange: Exchange) -> str:
    head = [str(exchange.status)]
    head += [f"{name}: {value}" for name, value in exchange.headers.items()]
    return "\n".join(head) + "\n\n" + _body(exchange.content)


def _body(content: bytes) -> str:
    text = content[:_MOST_BYTES].decode("utf-8", "replace")
    try:
        text = json.dumps(parsed(content), ensure_ascii=False, indent=1)[:_MOST_BYTES]
    except ValueError:
        pass  # A stream, or no JSON at all, is shown as it is.
    return text if len(content) <= _MOST_BYTES else f"{text}\n… ({len(content)} bytes)"
