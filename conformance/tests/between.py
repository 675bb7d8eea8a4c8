"""Servers that stand between the suite and a sound one, and change what goes through.

`seeing` makes of a server that reads text alone one that takes pictures and files. The faults of
`FORGETFUL` are broken builds of a server that keeps responses.
"""

import base64
import binascii
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from listening import listening

CREATE = ("POST", "/v1/responses")


@dataclass(frozen=True)
class Message:
    """A request, or the answer to one: `status` is that of an answer, `key` that of a request."""

    method: str
    path: str
    body: object = None
    raw: bytes = b""
    key: str | None = None
    status: int = 200
    media: str = "application/json"

    @property
    def create(self):
        """Whether this asks for a response."""
        return (self.method, self.path.partition("?")[0]) == CREATE and isinstance(self.body, dict)


@dataclass
class Change:
    """What happens to requests and answers. `kept` is for what has to be remembered."""

    kept: dict = field(default_factory=dict)

    def asked(self, request):
        """The request as it is passed on; an answer if it is not."""
        return request

    def told(self, request, answer):
        """The answer as it is passed back."""
        return answer


class Between(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream, change):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream.removesuffix("/v1")
        self.change = change
        self.http = httpx.Client(timeout=30, trust_env=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        key = self.headers.get("authorization")
        asked = Message(self.command, self.path, _json(raw), raw, key)
        request = self.server.change.asked(asked)
        refusal = request.status != 200
        answer = self.server.change.told(asked, request if refusal else self._fetched(request))
        self.send_response(answer.status)
        self.send_header("content-type", answer.media)
        self.send_header("content-length", str(len(answer.raw)))
        self.end_headers()
        self.wfile.write(answer.raw)

    do_GET = do_POST = do_DELETE = _pass_on

    def _fetched(self, request):
        headers = {} if request.key is None else {"authorization": request.key}
        if request.raw:
            headers["content-type"] = self.headers.get("content-type", "application/json")
        url = self.server.upstream + request.path
        answer = self.server.http.request(request.method, url, content=request.raw, headers=headers)
        return replace(
            request,
            body=_json(answer.content),
            raw=answer.content,
            status=answer.status_code,
            media=answer.headers["content-type"],
        )

    def log_message(self, format, *args):
        pass


def _json(raw):
    try:
        return json.loads(raw)
    except ValueError:
        return None


def with_body(message, body):
    """The message with another body."""
    return replace(message, body=body, raw=json.dumps(body).encode())


def without(body, name):
    """A body without one of its fields."""
    return {key: value for key, value in body.items() if key != name}


def refused(message, code, param, status=400):
    """An answer that refuses."""
    error = {"message": f"Not possible: {param}.", "type": "invalid_request_error"}
    answer = replace(message, status=status, media="application/json")
    return with_body(answer, {"error": {**error, "param": param, "code": code}})


@contextmanager
def between(upstream, change):
    """Serve with a change until the block ends; gives the base URL."""
    server = Between(upstream, change)
    with server.http, listening(server) as url:
        yield url


MARK = "a part that is no text: "
STARTS = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
    "application/pdf": b"%PDF",
    "text/plain": b"hello",
}


class Seeing(Change):
    """Takes pictures and files, as words that stand for them."""

    def asked(self, request):
        if not request.create or not isinstance(request.body.get("input"), list):
            return request
        items = []
        for number, item in enumerate(request.body["input"]):
            item = dict(item)
            name = "output" if "output" in item else "content"
            assistant = item.get("role") == "assistant"
            if isinstance(item.get(name), list) and not assistant:
                parts = []
                for place, part in enumerate(item[name]):
                    if part.get("type") in ("input_image", "input_file"):
                        if not self.read(part):
                            where = f"input[{number}].{name}[{place}]"
                            return refused(request, "invalid_value", where)
                        part = {"type": "input_text", "text": MARK + json.dumps(part)}
                    parts.append(part)
                item[name] = parts
            items.append(item)
        return with_body(request, {**request.body, "input": items})

    def read(self, part):
        """Whether a part holds a file that can be read."""
        url = part.get("image_url") or part.get("file_data") or ""
        media, _, content = url.removeprefix("data:").partition(";base64,")
        try:
            start = base64.b64decode(content, validate=True)
        except binascii.Error:
            return False
        return media in STARTS and start.startswith(STARTS[media])

    def told(self, request, answer):
        if "/input_items" not in request.path:
            return answer
        body = answer.body
        for item in body["data"]:
            for place, part in enumerate(item.get("content", [])):
                if part.get("text", "").startswith(MARK):
                    item["content"][place] = json.loads(part["text"].removeprefix(MARK))
        return with_body(answer, body)


class NoHistory(Change):
    """Forgets what is continued, and tells that it did not."""

    def asked(self, request):
        if not request.create:
            return request
        return with_body(request, without(request.body, "previous_response_id"))

    def told(self, request, answer):
        earlier = request.body.get("previous_response_id") if request.create else None
        if earlier is None or not isinstance(answer.body, dict):
            return answer
        return with_body(answer, {**answer.body, "previous_response_id": earlier})


class OldInstructions(Change):
    """Lets the instructions of the first request hold for all."""

    def asked(self, request):
        if not request.create:
            return request
        told = request.body.get("instructions")
        self.kept.setdefault("it", told) if told else None
        return with_body(request, {**request.body, "instructions": told or self.kept.get("it")})


class AlwaysStored(Change):
    """Stores what must not be stored."""

    def asked(self, request):
        if not request.create or request.body.get("store") is not False:
            return request
        return with_body(request, {**request.body, "store": True})

    def told(self, request, answer):
        if request.create and request.body.get("store") is False:
            return replace(answer, raw=answer.raw.replace(b'"store":true', b'"store":false'))
        return answer


class OneTenant(Change):
    """Takes every key for the same."""

    def asked(self, request):
        return replace(request, key="Bearer sk-conformance-first")


class NeverDeleted(Change):
    """Says that it deleted, and did not."""

    def asked(self, request):
        if request.method != "DELETE" or not request.path.startswith("/v1/responses/"):
            return request
        return replace(request, method="GET")

    def told(self, request, answer):
        if request.method != "DELETE" or answer.status != 200:
            return answer
        name = request.path.rpartition("/")[2]
        return with_body(answer, {"id": name, "object": "response", "deleted": True})


class FirstSnapshot(Change):
    """Gives the first snapshot of a response for ever."""

    def told(self, request, answer):
        if request.method != "GET" or not re.fullmatch(r"/v1/responses/resp_\w+", request.path):
            return answer
        return self.kept.setdefault(request.path, answer)


class NoCursor(Change):
    """Does not look at queries."""

    def asked(self, request):
        path, _, query = request.path.partition("?")
        return replace(request, path=f"{path}?stream=true" if "stream=true" in query else path)


class NoCancel(Change):
    """Says that it cancelled, and did not."""

    def asked(self, request):
        if not request.path.endswith("/cancel"):
            return request
        return replace(request, method="GET", path=request.path.removesuffix("/cancel"), raw=b"")

    def told(self, request, answer):
        if not request.path.endswith("/cancel") or answer.status != 200:
            return answer
        return with_body(answer, {**answer.body, "status": "cancelled", "completed_at": None})


class NoNul(Change):
    """Takes NUL out of everything."""

    def told(self, request, answer):
        return replace(answer, raw=re.sub(rb"(?<!\\)\\u0000", b"", answer.raw))


class OutsideConversations(Change):
    """Makes responses beside the conversation they belong to."""

    def asked(self, request):
        if not request.create:
            return request
        return with_body(request, without(request.body, "conversation"))

    def told(self, request, answer):
        held = request.body.get("conversation") if request.create else None
        if held is None or not isinstance(answer.body, dict) or answer.status != 200:
            return answer
        held = held if isinstance(held, dict) else {"id": held}
        return with_body(answer, {**answer.body, "conversation": held})


class MergedMetadata(Change):
    """Adds metadata to those that are there."""

    def asked(self, request):
        found = re.fullmatch(r"/v1/conversations(/\w+)?", request.path)
        if request.method != "POST" or not found or not isinstance(request.body, dict):
            return request
        self.kept |= request.body.get("metadata") or {}
        return with_body(request, {**request.body, "metadata": dict(self.kept)})


#: Broken builds, each with the cases that catch it.
FORGETFUL = {
    NoHistory: {"STA-01", "STA-02", "STORE-02", "STORE-24", "STORE-25", "STORE-26"},
    OldInstructions: {"STA-04", "CONV-21"},
    AlwaysStored: {"STA-06", "STORE-24"},
    OneTenant: {"STA-14", "STORE-34", "CONV-09"},
    NeverDeleted: {"STA-05", "STORE-20"},
    FirstSnapshot: {"STA-08"},
    NoCursor: {"STORE-04", "STORE-22", "STA-12", "CONV-04", "CONV-19"},
    NoCancel: {"BG-07"},
    NoNul: {"STA-13", "STORE-15"},
    OutsideConversations: {"CONV-05", "CONV-06", "CONV-14", "CONV-23"},
    MergedMetadata: {"CONV-13"},
}
