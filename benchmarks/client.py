"""A client that notes when the pieces of a streamed answer arrive, and reads them afterwards.

The client shares its machine with the server it measures, so while an answer is running it only
keeps the bytes and their time of arrival. What they say is worked out when nothing is being
measured any more.
"""

import asyncio
import contextlib
import math
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import urlsplit

import httptools
import orjson

#: Read from the network at once, and when.
Chunk = tuple[float, bytes]

_TIMEOUT_SECONDS = 900
_ENDS = frozenset({"response.completed", "response.incomplete"})


class RequestFailed(Exception):
    """The server refused a request or its answer broke off. Says how."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A streamed answer. Times are seconds of one monotonic clock.

    `arrivals` has the time of each piece of text, in order; pieces that came in one read have the
    same time, and a piece may be several tokens. The token counts are the server's own.
    """

    sent: float
    arrivals: tuple[float, ...]
    ended: float
    text: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def first_token_seconds(self) -> float:
        """From sending the request to the first text, or to the end where there was none."""
        return (self.arrivals[0] if self.arrivals else self.ended) - self.sent

    def tokens_between(self, start: float, end: float) -> float:
        """Tokens that arrived after `start` and until `end`, each piece taken to be as many."""
        if not self.arrivals:
            return 0.0
        inside = sum(start < arrival <= end for arrival in self.arrivals)
        return inside * self.output_tokens / len(self.arrivals)

    def gaps(self, start: float = 0.0, end: float = float("inf")) -> list[float]:
        """Seconds between arrivals that follow each other and touch the time from start to end."""
        moments = sorted(set(self.arrivals))
        return [b - a for a, b in pairwise(moments) if b > start and a < end]


def read_answer(sent: float, chunks: Sequence[Chunk]) -> Answer:
    """What a stream said. Raises `RequestFailed` for one that failed or has no end."""
    arrivals: list[float] = []
    text: list[str] = []
    for clock, event in read_events(chunks):
        kind = event.get("type")
        if kind == "response.output_text.delta" and event["delta"]:
            arrivals.append(clock)
            text.append(event["delta"])
        elif kind in _ENDS:
            usage = event["response"]["usage"]
            cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
            return Answer(
                sent,
                tuple(arrivals),
                clock,
                "".join(text),
                usage["input_tokens"],
                cached,
                usage["output_tokens"],
            )
        elif kind in ("error", "response.failed"):
            raise RequestFailed(f"the answer failed: {orjson.dumps(event).decode()[:300]}")
    raise RequestFailed(f"the answer broke off after {len(arrivals)} pieces of text")


def read_part(sent: float, chunks: Sequence[Chunk]) -> Answer:
    """What has come of a stream that was left. Its tokens are not known: one for each piece."""
    pieces = [
        (clock, event["delta"])
        for clock, event in read_events(chunks)
        if event.get("type") == "response.output_text.delta" and event["delta"]
    ]
    arrivals = tuple(clock for clock, _ in pieces)
    text = "".join(piece for _, piece in pieces)
    return Answer(sent, arrivals, chunks[-1][0] if chunks else sent, text, 0, 0, len(pieces))


def read_events(chunks: Iterable[Chunk]) -> Iterable[tuple[float, dict[str, Any]]]:
    """The events of a stream, each with the time at which its last byte arrived."""
    rest = b""
    for clock, data in chunks:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and not line.startswith(b"data: [DONE]"):
                yield clock, orjson.loads(line[5:])


def message(role: str, text: str) -> dict[str, Any]:
    """A message in full: not every server takes the short forms."""
    kind = "output_text" if role == "assistant" else "input_text"
    part: dict[str, Any] = {"type": kind, "text": text}
    if role == "assistant":
        part["annotations"] = []
    return {"type": "message", "role": role, "content": [part]}


class Asker(Protocol):
    """Whatever answers: a server through its `Client`, or a model in this process."""

    async def ask(self, text: str, max_tokens: int) -> Answer:
        """The answer to one message of a user."""
        ...

    async def converse(self, messages: Sequence[dict[str, Any]], max_tokens: int) -> Answer:
        """The answer to a conversation."""
        ...

    async def ask_all(self, texts: Sequence[str], max_tokens: int) -> list[Answer]:
        """The answers to messages that are sent at once."""
        ...


class Client:
    """Asks one server. Greedy, streamed, and unstored where the server knows of that."""

    def __init__(self, host: str, port: int, model: str) -> None:
        self._host = host
        self._port = port
        self._model = model

    async def ask(self, text: str, max_tokens: int) -> Answer:
        """The answer to one message of a user. Raises `RequestFailed`."""
        return await self.converse([message("user", text)], max_tokens)

    async def converse(self, messages: Sequence[dict[str, Any]], max_tokens: int) -> Answer:
        """The answer to a conversation. Raises `RequestFailed`."""
        chunks: list[Chunk] = []
        sent = await self.collect(messages, max_tokens, chunks)
        return read_answer(sent, chunks)

    async def ask_all(self, texts: Sequence[str], max_tokens: int) -> list[Answer]:
        """The answers to messages that are sent at once. Raises `RequestFailed`."""
        # Read once all are there: a long answer's events would be parsed while others still run.
        collected: list[list[Chunk]] = [[] for _ in texts]
        sent = await asyncio.gather(
            *(
                self.collect([message("user", text)], max_tokens, chunks)
                for text, chunks in zip(texts, collected, strict=True)
            )
        )
        return [read_answer(*one) for one in zip(sent, collected, strict=True)]

    async def collect(
        self, messages: Sequence[dict[str, Any]], max_tokens: int, chunks: list[Chunk]
    ) -> float:
        """Put what arrives into `chunks`; returns when the request was sent.

        Raises `RequestFailed`. Cancelling leaves in `chunks` what had come.
        """
        body = {
            "model": self._model,
            "input": list(messages),
            "stream": True,
            "store": False,
            "temperature": 0,
            "max_output_tokens": max_tokens,
        }
        data = orjson.dumps(body)
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n"
        )
        receiver = _Receiver()
        loop = asyncio.get_running_loop()
        sent = time.perf_counter()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                transport, _ = await loop.create_connection(
                    lambda: receiver, self._host, self._port
                )
                transport.write(head.encode() + data)
                try:
                    await receiver.closed
                finally:
                    transport.abort()
        except (OSError, TimeoutError) as error:
            raise RequestFailed(f"no answer: {error!r}") from error
        finally:
            chunks += receiver.body()
        return sent


class _Receiver(asyncio.Protocol):
    """Keeps what a connection brings. A client library would take as much of the processor as the
    server that is measured."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received: list[Chunk] = []

    def data_received(self, data: bytes) -> None:
        self._received.append((time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def body(self) -> list[Chunk]:
        """The answer's body as it came. Raises `RequestFailed` for one that is no success."""
        parts: list[bytes] = []
        parser = httptools.HttpResponseParser(_Body(parts))
        chunks: list[Chunk] = []
        for clock, data in self._received:
            try:
                parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise RequestFailed(f"no answer: {error!r}") from error
            chunks += [(clock, part) for part in parts]
            parts.clear()
        if self._received and parser.get_status_code() != 200:
            shown = b"".join(part for _, part in chunks)[:300].decode("utf-8", "replace")
            raise RequestFailed(f"answered {parser.get_status_code()}: {shown}")
        return chunks


class _Body:
    """Takes the pieces of a body from a parser."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)


@contextlib.asynccontextmanager
async def connected(base_url: str, model: str) -> AsyncIterator[Client]:
    """A client of the server at `base_url`, with a connection for every request."""
    url = urlsplit(base_url)
    assert url.hostname is not None
    yield Client(url.hostname, url.port or 80, model)


def throughput(answers: Sequence[Answer]) -> float:
    """Tokens a second from the first request to the last end, prefill included."""
    wall = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
    return sum(answer.output_tokens for answer in answers) / wall


def decode_rate(answers: Sequence[Answer]) -> float:
    """Tokens a second of all streams together, while every one of them is decoding.

    Raises `RequestFailed` where they never all did so at once.
    """
    if not all(answer.arrivals for answer in answers):
        raise RequestFailed("an answer had no text")
    start = max(answer.arrivals[0] for answer in answers)
    end = min(answer.arrivals[-1] for answer in answers)
    if end <= start:
        raise RequestFailed("the streams were never decoding at the same time")
    return sum(answer.tokens_between(start, end) for answer in answers) / (end - start)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of all values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def median_first_token(answers: Sequence[Answer]) -> float:
    """Median seconds to the first token."""
    return statistics.median(answer.first_token_seconds for answer in answers)
