"""Stands between a client and a server, and writes down what the client sends."""

import json
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from responses_conformance.recorded.bodies import HANDSHAKE, HTTP
from responses_conformance.recorded.redaction import Redactor, as_file

#: A POST here names the flow that begins.
FLOW = "/flow/"

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})
_OVERLAP = 200
_UNSAFE = re.compile(r"[^\w-]+")


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether a request asks for a WebSocket."""
    return headers.get("upgrade", "").lower() == "websocket"


@dataclass
class _Files:
    """Writes requests of a client, numbered from 1 on, each flow redacted by itself."""

    folder: Path
    client: str
    version: str
    flow: str
    number: int = 0
    redactor: Redactor = field(default_factory=Redactor)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, flow: str) -> None:
        with self.lock:
            self.flow, self.redactor = flow, Redactor()

    def write(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Redactor:
        """Write a request; gives the redactor that is to learn of its answer."""
        with self.lock:
            self.number += 1
            content = {
                "client": self.client,
                "version": self.version,
                "flow": self.flow,
                "transport": HANDSHAKE if is_upgrade(headers) else HTTP,
                "method": method,
                "path": self.redactor.text(path),
                "headers": self.redactor.headers(headers),
                "original_body_bytes": len(body),
                "body": self.redactor.body(_read(body)),
            }
            name = _UNSAFE.sub("_", self.flow)
            file = self.folder / f"{self.number:02}-{name}.json"
            file.write_text(as_file(content), encoding="utf-8")
            return self.redactor


class Capture(ThreadingHTTPServer):
    """Passes everything on to the server of `base_url`, which ends in /v1, and writes a file for
    each request into `folder`. WebSockets are refused, so that clients fall back to requests.
    Listens on loopback; `url` is its base URL."""

    daemon_threads = True

    def __init__(
        self,
        base_url: str,
        folder: Path,
        *,
        client: str,
        version: str,
        flow: str = "requests",
        port: int = 0,
    ) -> None:
        parts = urlsplit(base_url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        folder.mkdir(parents=True, exist_ok=True)
        self.files = _Files(folder, client, version, flow)
        limits = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(timeout=None, trust_env=False, limits=limits)
        super().__init__(("127.0.0.1", port), _Handler)  # Closes all if the port is taken.

    @property
    def url(self) -> str:
        """Where it listens, up to the paths of the API."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Stop listening, and close what leads to the server."""
        super().server_close()
        self.http.close()


class _Handler(BaseHTTPRequestHandler):
    server: Capture
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body(headers)
        if self.command == "POST" and self.path.startswith(FLOW):
            self.server.files.begin(unquote(self.path.removeprefix(FLOW)))
            self.send_response(204)
            self.end_headers()
            return
        redactor = self.server.files.write(self.command, self.path, headers, body)
        sent = {name: value for name, value in headers.items() if name not in _HOP}
        if is_upgrade(headers):
            self._refuse_upgrade()
            return
        try:
            with self.server.http.stream(
                self.command, self.server.origin + self.path, content=body or None, headers=sent
            ) as answer:
                self._relay(answer, redactor)
        except httpx.ConnectError as error:
            self.send_error(502, explain=str(error))
        except httpx.HTTPError:
            self.close_connection = True  # The answer broke off, which is passed on as well.

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _pass_on

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length") or 0))
        body = bytearray()
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def _refuse_upgrade(self) -> None:
        message = "What is recorded goes over HTTP. Send requests instead."
        detail = {"type": "invalid_request_error", "param": None, "code": "upgrade_refused"}
        body = json.dumps({"error": {"message": message, **detail}}).encode()
        self.send_response(426)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _relay(self, answer: httpx.Response, redactor: Redactor) -> None:
        self.send_response_only(answer.status_code, answer.reason_phrase)
        for name, value in answer.headers.multi_items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        bodiless = answer.status_code in (204, 304)
        if not bodiless:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        last = b""
        for chunk in answer.iter_raw():
            last = last[-_OVERLAP:] + chunk
            # Before the client can name what it is told here.
            redactor.learn(last)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if not bodiless:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what was sent lies in the folder."""


def _read(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")
