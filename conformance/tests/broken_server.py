"""A server with a fault: passes everything on to a sound one, and breaks the streams on their way.

It stands in for broken builds of a server. A fault is a function from events to events.
"""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
from listening import listening
from made import frame

from responses_conformance.frames import blocks


class BrokenServer(ThreadingHTTPServer):
    """Stands before `upstream`, a base URL that ends in /v1."""

    daemon_threads = True

    def __init__(self, upstream, fault):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream.removesuffix("/v1")
        self.fault = fault
        self.http = httpx.Client(timeout=30, trust_env=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self):
        length = int(self.headers.get("content-length") or 0)
        kept = {
            k: v for k, v in self.headers.items() if k.lower() in ("authorization", "content-type")
        }
        answer = self.server.http.request(
            self.command,
            self.server.upstream + self.path,
            content=self.rfile.read(length),
            headers=kept,
        )
        body = answer.content
        resumed = "starting_after" in urlsplit(self.path).query
        if answer.headers["content-type"].startswith("text/event-stream") and not resumed:
            body = self._broken(body)
        self.send_response(answer.status_code)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _pass_on

    def _broken(self, body):
        events = [json.loads(b.text) for b in blocks(body) if b.event is not None]
        broken = self.server.fault(events)
        return ("".join(map(frame, broken)) + "data: [DONE]\n\n").encode()

    def log_message(self, format, *args):
        pass


@contextmanager
def broken(upstream, fault):
    """Serve with a fault until the block ends; gives the base URL."""
    server = BrokenServer(upstream, fault)
    with server.http, listening(server) as url:
        yield url
