"""Servers for tests that always answer with a transcript."""

import threading
from contextlib import contextmanager
from pathlib import Path

from responses_conformance.cases import Case
from responses_conformance.replaying import Replay
from responses_conformance.transcripts import load

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"


@contextmanager
def replayed(name):
    """Serve a transcript, named as `valid/text`; gives the base URL."""
    server = Replay(load(TRANSCRIPTS / f"{name}.sse"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def case(*steps, identity="T-1", rules=(), needs=(), profile="core", requirement="It MUST work."):
    """A case with these steps."""
    return Case(
        identity, "A title", requirement, ("a test",), profile, needs, (), rules, (), steps, "here"
    )


ASK = {"name": "answer", "request": "POST /responses", "body": {"input": "hi", "stream": True}}
