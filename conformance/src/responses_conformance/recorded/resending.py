"""Sends recorded requests to a server, and tells what became of each."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from responses_conformance.config import Config
from responses_conformance.exchange import Client, Exchange, Request, Unreachable
from responses_conformance.findings import cut
from responses_conformance.judging import Judge
from responses_conformance.recorded.bodies import FRAME, HANDSHAKE, HTTP, Flow, Recorded
from responses_conformance.recorded.names import Names, Unmet
from responses_conformance.recorded.refusals import Refusal
from responses_conformance.schemas import Schemas
from responses_conformance.sockets import Socket, UpgradeRefused

#: Stands for a request's name in the name of the model that is asked.
REQUEST = "{request}"

#: Headers that belong to a connection or to the recorded server, not to the request.
_LEFT_OUT = frozenset({"host", "authorization", "content-length", "connection", "accept-encoding"})


class Fate(StrEnum):
    """What became of a request."""

    ACCEPTED = "accepted"
    DOCUMENTED = "refused as documented"
    REFUSED = "refused"
    FAILED = "failed"
    UNMET = "premise unmet"
    UNSENT = "not sent"


#: What a server must not do.
BAD = frozenset({Fate.REFUSED, Fate.FAILED})


@dataclass(frozen=True, slots=True)
class Resent:
    """A request and what became of it; `why` says so where it was not accepted. `refusal` is the
    name of the refusal that is documented."""

    request: Recorded
    fate: Fate
    why: str = ""
    status: int | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Resending:
    """All that was sent. `unused` are documented refusals that no request met."""

    server: str
    model: str
    results: tuple[Resent, ...]
    refusals: tuple[Refusal, ...]

    @property
    def unused(self) -> list[Refusal]:
        """The documented refusals that no request met."""
        met = {result.refusal for result in self.results}
        return [refusal for refusal in self.refusals if refusal.name not in met]

    @property
    def failed(self) -> bool:
        """Whether anything came out as it should not."""
        return bool(self.unused) or any(result.fate in BAD for result in self.results)


def resend(
    config: Config,
    flows: Iterable[Flow],
    refusals: Sequence[Refusal] = (),
    told: Callable[[Resent], None] = lambda _: None,
) -> Resending:
    """Send all requests of all flows, one after the other; `told` hears of each.

    The configured model is asked; `{request}` in its name stands for the name of the request.
    """
    judge = Judge(Schemas(exact="exact" in config.profiles))
    client = Client(config.base_url, timeout=config.timeout)
    results = []
    try:
        for flow in flows:
            sender = _Sender(config, client, judge, refusals)
            for request in flow:
                result = sender.send(request)
                results.append(result)
                told(result)
            sender.close()
    finally:
        client.close()
    return Resending(
        config.server_name or config.base_url, config.model or "", tuple(results), tuple(refusals)
    )


class _Sender:
    """Sends one flow."""

    def __init__(
        self, config: Config, client: Client, judge: Judge, refusals: Sequence[Refusal]
    ) -> None:
        self._config = config
        self._client = client
        self._judge = judge
        self._refusals = refusals
        self._names = Names()
        self._socket: Socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.__exit__()

    def send(self, request: Recorded) -> Resent:
        """Send a request of the flow, if what it relies on is there."""
        if request.transport != HTTP and "websocket" not in self._config.profiles:
            return Resent(request, Fate.UNSENT, "the server claims no WebSocket")
        try:
            if request.transport == HANDSHAKE:
                return self._open(request)
            if request.transport == FRAME:
                exchange = self._turn(request)
            else:
                exchange = self._client.send(self._request(request))
        except Unmet as error:
            return Resent(request, Fate.UNMET, str(error))
        except Unreachable as error:
            return Resent(request, Fate.FAILED, str(error))
        return self._weighed(request, exchange)

    def _request(self, request: Recorded) -> Request:
        headers = {name: value for name, value in request.headers.items() if name not in _LEFT_OUT}
        content = b"" if request.body is None else self._content(request).encode()
        path = self._names.path(request)
        return Request(request.method, path, content, headers, key=self._config.api_key)

    def _content(self, request: Recorded) -> str:
        body = self._names.body(request)
        if isinstance(body, dict) and "model" in body and self._config.model is not None:
            body["model"] = self._config.model.replace(REQUEST, request.name)
        return body if isinstance(body, str) else json.dumps(body)

    def _open(self, request: Recorded) -> Resent:
        self.close()
        config = self._config
        try:
            self._socket = Socket(
                config.base_url, request.path, key=config.api_key, timeout=config.timeout
            )
        except UpgradeRefused as error:
            self._socket = None
            return self._weighed(request, error.exchange)
        return Resent(request, Fate.ACCEPTED, status=101)

    def _turn(self, request: Recorded) -> Exchange:
        if self._socket is None:
            raise Unmet("there is no open socket")
        if not request.creates:
            raise Unmet("what it asks for has no turn of its own")
        return self._socket.turn(self._content(request))

    def _weighed(self, request: Recorded, exchange: Exchange) -> Resent:
        status = exchange.status
        if exchange.out_of_time:
            why = f"the answer did not end within {self._config.timeout:g} s"
            return Resent(request, Fate.FAILED, why, status)
        seen = self._judge.judge(replace(exchange, case=request.name))
        if 200 <= status < 300:
            self._names.learn(request, seen)
        broken = [f"{found.rule} at {found.where}: {found.seen}" for found in seen.findings]
        if broken or not 0 < status < 500:
            answer = [] if broken else [cut(exchange.content.decode("utf-8", "replace"))]
            why = "; ".join([f"answered with {status}", *broken, *answer])
            return Resent(request, Fate.FAILED, why, status)
        if status >= 400:
            refusal = next((one for one in self._refusals if one.fits(exchange)), None)
            why = cut(json.dumps(exchange.json.get("error"), ensure_ascii=False))
            if refusal is None:
                return Resent(request, Fate.REFUSED, why, status)
            return Resent(request, Fate.DOCUMENTED, why, status, refusal.name)
        response = seen.response if request.creates else None
        if isinstance(response, dict) and response.get("status") == "failed":
            why = f"the response failed: {json.dumps(response.get('error'), ensure_ascii=False)}"
            return Resent(request, Fate.FAILED, why, status)
        return Resent(request, Fate.ACCEPTED, status=status)
