"""A server for tests that gives answers in turn and keeps what it was sent, and recorded requests
for it."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from listening import listening
from replays import TRANSCRIPTS

from responses_conformance.config import Config
from responses_conformance.recorded.bodies import Recorded
from responses_conformance.replaying import terminal
from responses_conformance.transcripts import load

_TEXT = terminal(load(TRANSCRIPTS / "valid" / "text.sse"))
MESSAGE = _TEXT["output"][0]


def response(identity="resp_real", output=(MESSAGE,), **fields):
    """A response that keeps all rules."""
    return {**_TEXT, "id": identity, "output": list(output), **fields}


def call(identity="fc_real", call_id="call_real", name="f"):
    """A call that a model made."""
    said = {"name": name, "arguments": "{}", "status": "completed"}
    return {"type": "function_call", "id": identity, "call_id": call_id, **said}


def error(code="invalid_value", param="input", message="No."):
    """An error as the API has it."""
    detail = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return {"error": detail}


def recorded(body=None, method="POST", path="/responses", flow="a", number=1, **more):
    """A recorded request; one for a response unless it is told otherwise."""
    fields = {"transport": "http", "headers": {"x-mark": "1", "host": "gone"}, **more}
    return Recorded(
        f"client/{number:02}-{flow}", "client", "1.0", flow, method=method, path=path, body=body,
        **fields,
    )  # fmt: skip


class _Answering(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.received = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = json.loads(body) if body else None
        self.server.received.append((self.command, self.path, dict(self.headers), asked))
        answer = self.server.answers.pop(0)
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        sent = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    do_POST = do_GET = do_DELETE = _answer

    def log_message(self, format, *args):
        """Say nothing."""


@contextmanager
def answering(*answers):
    """Serve answers in turn, each JSON or a status with it; gives how to reach it and the list of
    what it was sent: method, path, headers, body."""
    server = _Answering(answers)
    with listening(server) as url:
        claims = ("core", "stored", "conversations", "tools")
        yield Config(base_url=url, api_key="k", model="m", claims=claims, timeout=10), server
