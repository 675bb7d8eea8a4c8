"""What every answer to a made-up request is held to. schemathesis loads this module by its name."""

from collections.abc import Collection
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import schemathesis

from responses_conformance.exchange import Exchange
from responses_conformance.findings import Finding
from responses_conformance.fuzzing.params import known_names, names_of, place_exists
from responses_conformance.judging import judge_exchange
from responses_conformance.schemas import Schemas
from responses_conformance.texts import parsed

_SCHEMAS = Schemas(exact=True)


@schemathesis.check
def no_server_error(ctx: Any, response: Any, case: Any) -> None:
    """No request is answered with a 5xx, but for 503 and 504, which say that it may come again."""
    assert response.status_code < 500 or response.status_code in (503, 504), (
        f"answered with {response.status_code}: {response.text[:300]}"
    )


@schemathesis.check
def rules_hold(ctx: Any, response: Any, case: Any) -> None:
    """All rules of the suite hold: shapes, the error envelope, and the life of streams."""
    exchange = exchanged(response)
    found = judge_exchange(exchange, _SCHEMAS).findings.found
    assert not found, "; ".join(f"{f.rule} at {f.where}: {f.seen}" for f in found[:5])


@schemathesis.check
def param_exists(ctx: Any, response: Any, case: Any) -> None:
    """What an error names as `param` is a place in the request, or what is missing there."""
    if response.status_code < 400:
        return
    error = _error(response)
    param = error.get("param") if error else None
    if not isinstance(param, str) or not param:
        return
    exists = place_exists(param, exchanged(response), _names(case))
    assert exists, f"there is no {param} in the request"


@schemathesis.check
def frames_fit_content_schema(ctx: Any, response: Any, case: Any) -> None:
    """Every frame's data fit the `contentSchema` that the document gives them."""
    exchange = exchanged(response)
    if not exchange.streamed:
        return
    findings: list[Finding] = judge_exchange(exchange, _SCHEMAS).findings.found
    broken = [finding for finding in findings if finding.rule in ("SHAPE-1", "SHAPE-2")]
    assert not broken, f"{broken[0].where}: {broken[0].seen}"


def exchanged(response: Any) -> Exchange:
    """The exchange that an answer of schemathesis is part of."""
    request = response.request
    address = urlsplit(request.url)
    path = f"{address.path}?{address.query}" if address.query else address.path
    body = request.body or b""
    return Exchange(
        request.method,
        path,
        {name.lower(): value for name, value in request.headers.items()},
        body if isinstance(body, bytes) else str(body).encode(),
        response.status_code,
        # schemathesis keeps every header as a list of its values.
        {
            name.lower(): ", ".join(value) if isinstance(value, list) else value
            for name, value in response.headers.items()
        },
        response.content or b"",
    )


def _names(case: Any) -> Collection[str]:
    """The names of fields and parameters in the document that a made-up request is made from."""
    return known_names() if case is None else _names_of(_Same(case.operation.schema.raw_schema))


class _Same:
    """A value that cannot be hashed, by its identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value


@cache
def _names_of(same: _Same) -> Collection[str]:
    return names_of(same.value)


def _error(response: Any) -> dict[str, Any] | None:
    try:
        error = parsed(response.content)["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return error if isinstance(error, dict) else None
