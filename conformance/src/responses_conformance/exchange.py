"""One request and what came back, over HTTP."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from responses_conformance.frames import ends
from responses_conformance.texts import parsed

_SECRET = "(removed)"
_SECRET_HEADERS = ("authorization", "x-api-key", "cookie", "set-cookie")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer. Times are seconds since the request was sent: `first` when the
    first byte of the body came, `longest` the longest silence after it. `left` is whether the suite
    went away before the end, `out_of_time` whether it did so because the answer went on for longer
    than it waits. Headers with secrets are kept without them."""

    method: str
    path: str
    request_headers: Mapping[str, str]
    request: bytes
    status: int
    headers: Mapping[str, str]
    content: bytes
    first: float = 0.0
    longest: float = 0.0
    total: float = 0.0
    left: bool = False
    out_of_time: bool = False
    case: str = ""
    step: str = ""

    @property
    def media(self) -> str:
        """The media type of the answer, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.status < 400 and self.media == "text/event-stream"

    @property
    def json(self) -> Any:
        """The answer as JSON; None if it is none."""
        try:
            return parsed(self.content)
        except ValueError:
            return None

    @property
    def asked(self) -> Any:
        """The request's body as JSON; None if it has none."""
        try:
            return parsed(self.request)
        except ValueError:
            return None

    @property
    def asked_stream(self) -> bool:
        """Whether a stream of events was asked for."""
        asked = self.asked
        query = parse_qs(urlsplit(self.path).query)
        return (isinstance(asked, dict) and asked.get("stream") is True) or (
            query.get("stream") == ["true"]
        )


class Unreachable(Exception):
    """The server did not answer. Says why."""


class OutOfTime(Unreachable):
    """The suite waited no longer, so whether the server would have answered is not known."""

    def __init__(self, asked: str, seconds: float, came: str = "no answer") -> None:
        super().__init__(
            f"{asked}: {came} within {seconds:g} s, the suite's own limit; for a slow server raise "
            "--timeout, or lower --max-output-tokens"
        )


@dataclass(frozen=True, slots=True)
class Leave:
    """When the suite goes away: after so many events, or after so many seconds."""

    events: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. `key` is the API key, None for none at all."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    leave: Leave | None = None


class Client:
    """Sends requests to one server. `base_url` ends before `/responses`, `timeout` is how many
    seconds an answer may take. May be used from several threads."""

    def __init__(self, base_url: str, *, timeout: float) -> None:
        self._base_url = base_url.rstrip("/")
        self.timeout = timeout
        # The user's proxies are not for the server under test.
        # A connection of its own for each: some servers close idle ones without a word.
        limits = httpx.Limits(max_keepalive_connections=0)
        # Certificates take a while to be read.
        verify = not self._base_url.startswith("http://")
        self._http = httpx.Client(timeout=timeout, trust_env=False, limits=limits, verify=verify)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def send(self, request: Request) -> Exchange:
        """The exchange that a request makes. Raises `Unreachable`, and `OutOfTime` where not even
        the answer's headers came in time."""
        headers = dict(request.headers)
        if request.key is not None:
            headers["authorization"] = f"Bearer {request.key}"
        if request.content and "content-type" not in {name.lower() for name in headers}:
            headers["content-type"] = "application/json"
        url = httpx.URL(self._base_url + request.path)
        if request.query:
            url = url.copy_merge_params(request.query)
        kept = {
            name: _SECRET if name.lower() in _SECRET_HEADERS else value
            for name, value in headers.items()
        }
        exchange = Exchange(
            request.method, url.raw_path.decode(), kept, request.content, 0, {}, b""
        )
        began = time.monotonic()
        try:
            with self._http.stream(
                request.method, url, content=request.content or None, headers=headers
            ) as answer:
                answered = {
                    name: _SECRET if name in _SECRET_HEADERS else value
                    for name, value in answer.headers.items()
                }
                exchange = replace(exchange, status=answer.status_code, headers=answered)
                return self._read(answer, exchange, request.leave, began)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise OutOfTime(f"{request.method} {url}", self.timeout) from error
        except httpx.HTTPError as error:
            if exchange.status:  # The body broke off, which is for the rules to judge.
                return replace(exchange, total=time.monotonic() - began)
            raise Unreachable(f"{request.method} {url}: {type(error).__name__} {error}") from error

    def _read(
        self, answer: httpx.Response, exchange: Exchange, leave: Leave | None, began: float
    ) -> Exchange:
        content = bytearray()
        first = longest = 0.0
        last = began
        left = threading.Event()
        timer = None
        out_of_time = False
        if leave is not None and leave.seconds is not None:
            timer = threading.Timer(leave.seconds, _go_away, (answer, left))
            timer.start()
        try:
            for chunk in answer.iter_bytes():  # Whatever it was compressed with on its way.
                now = time.monotonic()
                if not content:
                    first = now - began
                else:
                    longest = max(longest, now - last)
                last = now
                content += chunk
                if leave is not None and leave.events is not None:
                    told = ends(content)
                    if len(told) >= leave.events:
                        # What came in the same piece behind them counts as not read.
                        del content[told[leave.events - 1] :]
                        left.set()
                        break
                if now - began > self.timeout:
                    out_of_time = True
                    break
        except (httpx.HTTPError, httpx.StreamError, OSError):
            # The body broke off or fell silent, or the suite went away; rules judge what is there.
            pass
        finally:
            if timer is not None:
                timer.cancel()
        return replace(
            exchange,
            content=bytes(content),
            first=first,
            longest=longest,
            total=time.monotonic() - began,
            left=left.is_set() or out_of_time,
            out_of_time=out_of_time,
        )


def _go_away(answer: httpx.Response, left: threading.Event) -> None:
    left.set()
    answer.close()
