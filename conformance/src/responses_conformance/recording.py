"""Records a transcript from a live server."""

import json
from typing import Any

from responses_conformance.exchange import Client, OutOfTime, Request
from responses_conformance.frames import blocks
from responses_conformance.texts import parsed
from responses_conformance.transcripts import Transcript

_KEPT_HEADERS = ("content-type", "retry-after")


def record(client: Client, body: dict[str, Any], key: str | None) -> Transcript:
    """Post a body and keep what comes back; of a response that was stored, also what the server
    says when it is asked again, and its stream after half of its events.

    Raises `Unreachable`, also if the answer does not end in time.
    """
    sent = client.send(Request("POST", "/responses", json.dumps(body).encode(), key=key))
    if sent.out_of_time:
        raise OutOfTime("POST /responses", client.timeout, "the answer did not end")
    headers = {name: sent.headers[name] for name in _KEPT_HEADERS if name in sent.headers}
    retrieved: Any = None
    resumed: dict[int, bytes] = {}
    identity = _id(sent.content) if sent.streamed else None
    if identity is not None and body.get("store", True):
        again = client.send(Request("GET", f"/responses/{identity}", key=key))
        if again.status == 200:
            retrieved = again.json
            after = (sum(1 for _ in blocks(sent.content)) - 1) // 2
            query = {"stream": "true", "starting_after": str(after)}
            part = client.send(Request("GET", f"/responses/{identity}", query=query, key=key))
            if part.streamed:
                resumed[after] = part.content
    return Transcript(sent.content, sent.status, headers, body, retrieved, resumed)


def _id(content: bytes) -> str | None:
    """The id of the response that a stream tells of."""
    for block in blocks(content):
        try:
            response = parsed(block.text)["response"]
            return str(response["id"])
        except (ValueError, KeyError, TypeError):
            continue
    return None
