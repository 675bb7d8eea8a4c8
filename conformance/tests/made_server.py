"""Servers for tests that answer as a function says."""

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from listening import listening


@dataclass(frozen=True)
class Answer:
    """What is answered: bytes as they are, anything else as JSON."""

    content: object = None
    status: int = 200
    media: str | None = "application/json"
    headers: dict = field(default_factory=dict)

    @property
    def raw(self):
        if isinstance(self.content, bytes):
            return self.content
        return json.dumps(self.content).encode()


class _Handler(BaseHTTPRequestHandler):
    def _answer(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        answer = self.server.answer(self.command, self.path, body)
        self.send_response(answer.status)
        if answer.media is not None:
            self.send_header("content-type", answer.media)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.raw)

    def __getattr__(self, name):
        if name.startswith("do_"):  # Whatever the method is.
            return self._answer
        raise AttributeError(name)

    def log_message(self, *_):
        pass


@contextmanager
def answering(answer):
    """Serve what `answer` makes of a method, a path and a body; gives the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.answer = answer
    with listening(server) as url:
        yield url
