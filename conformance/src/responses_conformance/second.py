"""A second opinion: openapi-core judges whole exchanges by antiphon's document.

Its engine is neither the suite's nor antiphon's, so a mistake of one of them shows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from responses_conformance.exchange import Exchange
from responses_conformance.findings import Findings, cut
from responses_conformance.frames import blocks
from responses_conformance.schemas import document
from responses_conformance.texts import parsed


class SecondUnavailable(Exception):
    """openapi-core is not installed."""


@dataclass
class _Request:
    host_url: str
    path: str
    method: str
    parameters: Any
    content_type: str
    body: bytes | None


@dataclass
class _Response:
    status_code: int
    content_type: str
    headers: Mapping[str, str]
    data: bytes | None = field(repr=False)


class SecondOpinion:
    """Judges exchanges as openapi-core sees them. Raises `SecondUnavailable` when it is made."""

    def __init__(self) -> None:
        try:
            from openapi_core import Config, OpenAPI
            from openapi_core.datatypes import RequestParameters
            from openapi_core.templating.paths.exceptions import PathError
        except ImportError as error:
            raise SecondUnavailable(
                "a second opinion needs openapi-core: pip install './conformance[second]'"
            ) from error
        # Which keys are asked for is a matter of each server.
        content = {k: v for k, v in document().items() if k not in ("servers", "security")}
        content = _with_read_data(content)
        config = Config(extra_media_type_deserializers={"text/event-stream": _frame})
        self._document = OpenAPI.from_dict(content, config=config)
        self._parameters = RequestParameters
        self._unknown: type[Exception] = PathError

    def judge(self, exchange: Exchange, findings: Findings) -> None:
        """Judge an answer, and the request as well where it was accepted."""
        if exchange.left and not exchange.streamed:
            return
        request = self._request(exchange)
        if exchange.status < 400 and not exchange.left:
            self._note("the request", self._document.iter_request_errors(request), findings)
        for data in self._bodies(exchange):
            answer = _Response(
                exchange.status, exchange.headers.get("content-type", ""), exchange.headers, data
            )
            errors = self._document.iter_response_errors(request, answer)
            if self._note("the answer", errors, findings):
                return

    def _request(self, exchange: Exchange) -> _Request:
        address = urlsplit(exchange.path)
        headers = {name.lower(): value for name, value in exchange.request_headers.items()}
        parameters = self._parameters(query=_query(address.query), header=headers)
        return _Request(
            "http://server.test",
            _from_v1(address.path),
            exchange.method.lower(),
            parameters,
            headers.get("content-type", "application/json"),
            exchange.request or None,
        )

    @staticmethod
    def _bodies(exchange: Exchange) -> list[bytes]:
        """The body, or of a stream each frame."""
        if not exchange.streamed:
            return [exchange.content]
        frames = [b for b in blocks(exchange.content) if b.whole and b.event is not None]
        return [f"event: {b.event}\ndata: {b.text}\n\n".encode() for b in frames]

    def _note(self, what: str, errors: Any, findings: Findings) -> bool:
        found = False
        for error in errors:
            if isinstance(error, self._unknown):
                continue  # What the document does not know is for cases to ask about.
            found = True
            findings.add("SHAPE-3", what, cut(f"{type(error).__name__}: {_reason(error)}"))
        return found


def _reason(error: BaseException) -> str:
    """What is wrong, and where, as far down as the error knows it."""
    current: BaseException | None = error
    while current is not None:
        details = list(getattr(current, "schema_errors", ()))
        if details:
            return f"{details[0].json_path}: {details[0].message}"
        current = current.__cause__
    return str(error)


def _with_read_data(node: Any) -> Any:
    """The document with texts that hold JSON as what they hold, as openapi-core does not look into
    texts; `_frame` reads them."""
    if isinstance(node, list):
        return [_with_read_data(child) for child in node]
    if not isinstance(node, dict):
        return node
    read = node["contentSchema"] if "contentSchema" in node else node
    return {key: _with_read_data(child) for key, child in read.items()}


def _frame(content: bytes, **_: Any) -> dict[str, Any]:
    for block in blocks(content):
        try:
            return {"event": block.event or "", "data": parsed(block.text)}
        except ValueError:
            return {"event": block.event or "", "data": block.text}
    return {}


def _query(query: str) -> Any:
    from werkzeug.datastructures import ImmutableMultiDict

    return ImmutableMultiDict(parse_qsl(query, keep_blank_values=True))


def _from_v1(path: str) -> str:
    """The path as the document has it, whatever the server's base."""
    found = re.search(r"/v1(/.*)?$", path)
    return found[0] if found else f"/v1{path}"
