"""Turns over a WebSocket: one message is sent, and events come back until the turn ends."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from responses_conformance.exchange import Exchange, OutOfTime, Unreachable
from responses_conformance.texts import parsed

#: How exchanges over a socket are told apart from those over HTTP.
METHOD = "SOCKET"

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_MEGABYTES = 64 * 2**20


class UpgradeRefused(Exception):
    """The server did not open a socket. `exchange` holds its answer."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(f"the upgrade is answered with {exchange.status}")
        self.exchange = exchange


class Socket:
    """A connection on which responses are made one after the other.

    A turn ends where nothing comes for `timeout` seconds, and is out of time where it goes on for
    longer. Raises `UpgradeRefused` and `Unreachable`.
    """

    def __init__(self, base_url: str, path: str, *, key: str | None, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._stack = ExitStack()
        url = httpx.URL(base_url.rstrip("/") + path)
        url = url.copy_with(scheme={"http": "ws", "https": "wss"}[url.scheme])
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        try:
            self._connection: ClientConnection = self._stack.enter_context(
                connect(
                    str(url),
                    additional_headers=headers,
                    open_timeout=timeout,
                    max_size=_MEGABYTES,
                    proxy=None,  # The user's proxies are not for the server under test.
                )
            )
        except InvalidStatus as error:
            answer = error.response
            told = {name.lower(): value for name, value in answer.headers.raw_items()}
            raise UpgradeRefused(
                Exchange("GET", path, {}, b"", answer.status_code, told, bytes(answer.body or b""))
            ) from error
        except TimeoutError as error:
            raise OutOfTime(f"{url}", timeout, "the socket was not opened") from error
        except (InvalidHandshake, OSError) as error:
            raise Unreachable(f"{url}: {type(error).__name__} {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def turn(self, message: str) -> Exchange:
        """Send a message and take the events of its turn, which a terminal event ends, or an error
        where nothing was begun. An error alone is told as an HTTP error would be."""
        began = last = time.monotonic()
        first = longest = 0.0
        events: list[str] = []
        closed = out_of_time = False
        try:
            self._connection.send(message)
            while not _ended(events):
                text = self._connection.recv(self._timeout)
                now = time.monotonic()
                first, longest = (first, max(longest, now - last)) if events else (now - began, 0.0)
                last = now
                events.append(text if isinstance(text, str) else text.decode("utf-8", "replace"))
                if now - began > self._timeout and not _ended(events):
                    out_of_time = True
                    break
        except TimeoutError:
            # A turn that falls silent has no end; one that never began may still begin.
            out_of_time, closed = not events, bool(events)
        except ConnectionClosed:
            closed = True  # What is missing is for the rules to judge.
        refused = _refused(events)
        headers: dict[str, str] = {}
        if refused is not None:
            status, content, media = refused, events[-1].encode(), "application/json"
            headers = _headers(events[-1])
        elif (closed or out_of_time) and not events:
            status, content, media = 0, b"", ""
        else:
            status, content, media = 200, _as_stream(events), "text/event-stream"
        return Exchange(
            METHOD,
            self._path,
            {},
            message.encode("utf-8", "surrogatepass"),
            status,
            {**headers, "content-type": media},
            content,
            first,
            longest,
            time.monotonic() - began,
            left=out_of_time,
            out_of_time=out_of_time,
        )


def _read(text: str) -> Mapping[str, Any]:
    try:
        event = parsed(text)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _ended(events: list[str]) -> bool:
    return bool(events) and (_read(events[-1]).get("type") in _ENDS or _refused(events) is not None)


def _refused(events: list[str]) -> int | None:
    """The status of an error that came before anything else; 400 where it tells none."""
    if len(events) != 1 or _read(events[0]).get("type") != "error":
        return None
    status = _read(events[0]).get("status")
    return status if isinstance(status, int) and status >= 400 else 400


def _headers(text: str) -> dict[str, str]:
    """What an error event tells of headers that its answer over HTTP would have."""
    event = _read(text)
    error = event.get("error")
    for holder in (event, error):
        told = holder.get("headers") if isinstance(holder, dict) else None
        if isinstance(told, dict):
            return {str(name).lower(): str(value) for name, value in told.items()}
    return {}


def _as_stream(events: list[str]) -> bytes:
    """The events as a stream would tell them, for the rules of streams."""
    frames = []
    for text in events:
        data = " ".join(text.splitlines())
        frames.append(f"event: {_read(text).get('type')}\ndata: {data}\n\n")
    return ("".join(frames) + "data: [DONE]\n\n").encode("utf-8", "surrogatepass")
