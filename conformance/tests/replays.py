"""Servers for tests that always answer with a transcript."""

from contextlib import contextmanager
from pathlib import Path

from listening import listening

from responses_conformance.cases import Case
from responses_conformance.replaying import Replay
from responses_conformance.transcripts import load

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"


@contextmanager
def replayed(name):
    """Serve a transcript, named as `valid/text`; gives the base URL."""
    with listening(Replay(load(TRANSCRIPTS / f"{name}.sse"))) as url:
        yield url


def case(*steps, identity="T-1", rules=(), needs=(), profile="core", requirement="It MUST work."):
    """A case with these steps."""
    return Case(
        identity, "A title", requirement, ("a test",), profile, needs, (), rules, (), steps, "here"
    )


ASK = {"name": "answer", "request": "POST /responses", "body": {"input": "hi", "stream": True}}
