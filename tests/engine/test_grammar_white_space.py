"""Grammars of JSON and a model that likes nothing better than blanks. (JSO-04)"""

import json
import re
from typing import Any

import pytest
from grammar_walks import plain_speaker
from tiny_models import run

from antiphon.formats.grammars.turn import answer_grammar, arguments_grammar
from antiphon.schemas import validate_answer
from antiphon.turn import AnswerFormat, Tool

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "n": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["q", "n"],
    "additionalProperties": False,
}
MOST_BLANKS = 22  # Two line breaks, and an indentation.
#: What such a model says where it may say no blank, the dearest first.
_ENDS = ('"', "}", "]", ":", ",")


def blanks_first(grammar: str, *, at_most: int = 2000) -> str:
    """What a model says that takes a blank wherever it may, but in strings, and else ends what is
    open as soon as it can."""
    speaker = plain_speaker()
    compiler = speaker.compiler()
    try:
        matcher = run(compiler.compile(grammar))
    finally:
        compiler.close()
    said = b""
    for _ in range(at_most):
        allowed = speaker.allowed(matcher)
        texts = {speaker.tokenizer.bytes_of(t): t for t in allowed - speaker.vocabulary.ends}
        # Whole strings gone, a quotation mark is one that is open.
        in_string = b'"' in re.sub(rb'"[^"\\]*"', b"", said)
        blank = min((text for text in texts if text.isspace()), key=len, default=None)
        if blank is not None and not in_string:
            chosen = blank
        elif allowed & speaker.vocabulary.ends:
            return said.decode()
        else:
            ends = [end.encode() for end in _ENDS if end.encode() in texts]
            chosen = ends[0] if ends else min(texts)
        matcher.accept(texts[chosen])
        said += chosen
    raise AssertionError(f"it goes on for ever: {said!r}")


@pytest.mark.parametrize(
    "grammar",
    [
        answer_grammar(AnswerFormat(CITY, strict=True)),
        answer_grammar(AnswerFormat(CITY)),
        answer_grammar(AnswerFormat()),
        arguments_grammar(Tool("f", parameters=CITY, strict=True)),
    ],
    ids=["strict", "not strict", "any object", "arguments"],
)
def test_jso_04_blanks_come_to_an_end(grammar: str):
    text = blanks_first(grammar)
    assert isinstance(json.loads(text), dict)
    runs = re.findall(r"\s+", text)
    assert runs and max(map(len, runs)) <= MOST_BLANKS


def test_jso_04_an_answer_with_many_blanks_still_fits():
    assert (
        validate_answer(blanks_first(answer_grammar(AnswerFormat(CITY, strict=True))), CITY) is None
    )
