"""Serves a transcript: an upstream that always answers the same."""

import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from responses_conformance.frames import blocks
from responses_conformance.texts import parsed
from responses_conformance.transcripts import Transcript

_FRAMES = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)


class Replay(ThreadingHTTPServer):
    """Answers every request for a response with a transcript, frame by frame, with `pause` seconds
    in between. Listens on loopback; `url` is its base URL."""

    daemon_threads = True

    def __init__(self, transcript: Transcript, *, port: int = 0, pause: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.transcript = transcript
        self.pause = pause

    @property
    def url(self) -> str:
        """Where it listens, up to the paths of the API."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Replay
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        try:
            body = parsed(self.rfile.read(length) or b"{}")
        except ValueError as error:
            self._refuse(400, f"The body is no JSON: {error}.", "invalid_json")
            return
        if not isinstance(body, dict):
            self._refuse(400, "The body must be an object.", "invalid_type")
            return
        transcript = self.server.transcript
        if transcript.status >= 400 or body.get("stream") is True:
            self._send(transcript.status, transcript.headers, transcript.body)
        else:
            self._json(200, terminal(transcript))

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        transcript = self.server.transcript
        response = terminal(transcript)
        if address.path == "/v1/models":
            model = {"id": response.get("model", "replay"), "object": "model", "created": 0}
            self._json(200, {"object": "list", "data": [{**model, "owned_by": "replay"}]})
        elif address.path != f"/v1/responses/{response.get('id')}":
            self._refuse(404, f"There is no {address.path}.", "not_found")
        elif query.get("stream") == ["true"]:
            told = query.get("starting_after", ["-1"])[0]
            if not re.fullmatch(r"-1|\d{1,15}", told):
                self._refuse(400, "It must be a number.", "invalid_type", "starting_after")
                return
            after = int(told)
            body = transcript.resumed.get(after, _suffix(transcript.body, after))
            self._send(200, transcript.headers, body)
        else:
            self._json(200, transcript.retrieved or response)

    def _refuse(self, status: int, message: str, code: str, param: str | None = None) -> None:
        detail = {"type": "invalid_request_error", "param": param, "code": code}
        self._json(status, {"error": {"message": message, **detail}})

    def _json(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self._send(status, {"content-type": "application/json"}, body)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        for frame in _FRAMES.findall(body):
            self.wfile.write(frame)
            self.wfile.flush()
            if self.server.pause and frame:
                time.sleep(self.server.pause)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what is served is known."""


def terminal(transcript: Transcript) -> dict[str, Any]:
    """The last response that the stream of a transcript tells; empty if it tells none."""
    response: dict[str, Any] = {}
    for block in blocks(transcript.body):
        try:
            event = parsed(block.text)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("response"), dict):
            response = event["response"]
    return response


def _suffix(body: bytes, after: int) -> bytes:
    """The frames after the one of this number, `[DONE]` included."""
    kept = []
    for frame in _FRAMES.findall(body):
        number = re.search(rb'"sequence_number": ?(\d+)', frame)
        if number is None or int(number[1]) > after:
            kept.append(frame)
    return b"".join(kept)
