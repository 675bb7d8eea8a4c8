"""A server with WebSockets: passes each message on to one without them, as a streamed request.

It keeps the last response of each connection, whether it is stored or not. `Faults` name what a
broken build of it does.
"""

import contextlib
import json
import socket
import socketserver
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Thread
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

SOCKET_FIELDS = ("type", "generate", "stream_id", "stream", "previous_response_id")
FAULTS = (
    "closes after each turn",
    "closes after an error",
    "forgets what is not stored",
    "remembers what failed",
    "shares what is not stored",
    "answers a warm-up",
    "does not name lanes",
    "sends no terminal event",
    "loses the first delta",
    "lets anybody in",
    "tells errors as text",
    "sends only new input on",
)


@dataclass
class Server:
    """Stands before `upstream`, a base URL that ends in /v1, for the holder of `key`."""

    upstream: str
    key: str
    fault: str | None = None
    shared: dict = field(default_factory=dict)

    def __post_init__(self):
        assert self.fault is None or self.fault in FAULTS
        headers = {"authorization": f"Bearer {self.key}"}
        self.http = httpx.Client(headers=headers, timeout=30, trust_env=False)

    def admit(self, connection, request):
        """Plain requests go upstream; a socket needs the key."""
        allowed = request.headers.get("authorization") == f"Bearer {self.key}"
        if allowed or self.fault == "lets anybody in":
            return None
        error = {"message": "A key is needed.", "type": "invalid_request_error"}
        text = json.dumps({"error": {**error, "param": None, "code": "invalid_api_key"}})
        answer = connection.respond(HTTPStatus.UNAUTHORIZED, text)
        del answer.headers["content-type"]
        answer.headers["content-type"] = "application/json"
        return answer

    def talk(self, connection):
        """Answer the messages of one connection."""
        kept = self.shared if self.fault == "shares what is not stored" else {}
        for message in connection:
            try:
                self.turn(connection, message, kept)
            except ConnectionClosed:
                return
            if self.fault == "closes after each turn":
                return

    def turn(self, connection, message, kept):
        """Make the response that a message asks for."""
        try:
            asked = json.loads(message)
            kind = asked.get("type")
        except (ValueError, AttributeError):
            return self.refuse(connection, {}, 400, "invalid_json", None)
        if kind != "response.create":
            return self.refuse(connection, asked, 400, "invalid_value", "type")
        earlier = asked.get("previous_response_id")
        body = {k: v for k, v in asked.items() if k not in SOCKET_FIELDS}
        body = {"store": False, **body, "stream": True}
        given = body.get("input", [])
        given = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if earlier is not None:
            if earlier not in kept:
                code = "previous_response_not_found"
                return self.refuse(connection, asked, 400, code, "previous_response_id")
            if self.fault != "sends only new input on":
                given = [*kept[earlier], *given]
        body["input"] = given
        with self.http.stream("POST", f"{self.upstream}/responses", json=body) as answer:
            if answer.status_code >= 400:
                if self.fault != "remembers what failed":
                    kept.pop(earlier, None)
                error = json.loads(answer.read())["error"]
                return self.refuse(connection, asked, answer.status_code, error, None)
            data = [
                line.removeprefix("data: ")
                for line in answer.iter_lines()
                if line.startswith("data: {")
            ]
        events = self.changed([json.loads(text) for text in data], asked)
        final = json.loads(data[-1])["response"]
        if self.fault != "shares what is not stored":
            kept.clear()
        if self.fault != "forgets what is not stored":
            warm = asked.get("generate") is False
            kept[final["id"]] = [*given, *([] if warm else final["output"])]
        for event in events:
            connection.send(json.dumps(event))

    def changed(self, events, asked):
        """The events as they are sent: those of a warm-up alone, named by their lane, broken."""
        if asked.get("generate") is False and self.fault != "answers a warm-up":
            last = {**events[-1], "type": "response.completed", "sequence_number": 1}
            last["response"] = {**last["response"], "status": "completed", "output": []}
            events = [events[0], {**last, "response": {**last["response"], "error": None}}]
        if self.fault == "sends no terminal event":
            events = events[:-1]
        if self.fault == "loses the first delta":
            kinds = [event["type"] for event in events]
            if "response.output_text.delta" in kinds:
                events.pop(kinds.index("response.output_text.delta"))
        return [self.named(event, asked) for event in events]

    def named(self, event, asked):
        lane = {} if self.fault == "does not name lanes" else {"stream_id": asked.get("stream_id")}
        return event | {k: v for k, v in lane.items() if v is not None}

    def refuse(self, connection, asked, status, error, param):
        """Tell an error; `error` is its code or all of it."""
        if isinstance(error, str):
            told = {"message": "This cannot be.", "type": "invalid_request_error"}
            error = {**told, "param": param, "code": error}
        if self.fault == "tells errors as text":
            error = error["message"]
        event = {"type": "error", "status": status, "error": error}
        connection.send(json.dumps(self.named(event, asked)))
        if self.fault == "closes after an error":
            connection.close()


class Front(socketserver.ThreadingTCPServer):
    """Passes connections on: those that ask for an upgrade to the sockets, others upstream."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, sockets, upstream):
        super().__init__(("127.0.0.1", 0), _Splice)
        self.sockets = sockets
        self.upstream = upstream


class _Splice(socketserver.BaseRequestHandler):
    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            more = self.request.recv(65536)
            if not more:
                return
            head += more
        upgrade = b"upgrade: websocket" in head.partition(b"\r\n\r\n")[0].lower()
        target = self.server.sockets if upgrade else self.server.upstream
        with socket.create_connection(target) as other:
            other.sendall(head)
            back = Thread(target=_copy, args=(other, self.request), daemon=True)
            back.start()
            _copy(self.request, other)
            back.join()


def _copy(source, target):
    """Copy until one side is closed."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def sockets(upstream, key, fault=None):
    """Serve sockets beside what `upstream` serves, until the block ends; gives the base URL."""
    server = Server(upstream, key, fault)
    address = urlsplit(upstream)
    with (
        serve(server.talk, "127.0.0.1", 0, process_request=server.admit) as listening,
        Front(listening.socket.getsockname(), (address.hostname, address.port)) as front,
    ):
        threads = [Thread(target=listening.serve_forever), Thread(target=front.serve_forever)]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{front.server_address[1]}/v1"
        finally:
            front.shutdown()
            listening.shutdown()
            for thread in threads:
                thread.join()
            server.http.close()
