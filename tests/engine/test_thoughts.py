"""Reasoning that is closed after a number of tokens."""

import numpy as np
import numpy.typing as npt
import pytest

from antiphon.engine.grammar.errors import GrammarFailed
from antiphon.engine.grammar.thoughts import ThoughtLimit, ThoughtMarks

#: Tokens 0 to 25 are letters; then come the marks as tokens.
OPEN, CLOSE, VOCABULARY = 26, 27, 40


def spell(token: int) -> bytes:
    return {OPEN: b"<think>", CLOSE: b"</think>"}.get(token) or bytes([ord("a") + token])


class Only:
    """Allows some tokens, and fails on others."""

    def __init__(self, *allowed: int) -> None:
        self.allowed = set(allowed)
        self.accepted: list[int] = []

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        for token in self.allowed:
            mask[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token: int) -> None:
        if token not in self.allowed:
            raise GrammarFailed(f"{token} is not allowed")
        self.accepted.append(token)

    def forced_tokens(self) -> list[int]:
        return []


MARKS = ThoughtMarks(b"<think>", b"</think>", (CLOSE,))


def limit(max_tokens: int, *, inside: bool, inner: Only | None = None) -> ThoughtLimit:
    return ThoughtLimit(inner, MARKS, spell, VOCABULARY, max_tokens=max_tokens, inside=inside)


def allowed(grammar: ThoughtLimit) -> set[int]:
    mask = np.zeros(-(-VOCABULARY // 32), np.uint32)
    grammar.fill_mask(mask)
    return {n for n in range(VOCABULARY) if mask[n // 32] >> np.uint32(n % 32) & np.uint32(1)}


def say(grammar: ThoughtLimit, *tokens: int) -> list[list[int]]:
    """What is forced before each token and after the last."""
    forced = [grammar.forced_tokens()]
    for token in tokens:
        grammar.accept(token)
        forced.append(grammar.forced_tokens())
    return forced


def test_reasoning_is_closed_when_it_has_had_its_tokens():
    assert say(limit(3, inside=True), 0, 1, 2) == [[], [], [], [CLOSE]]


def test_reasoning_that_may_have_no_token_is_closed_at_once():
    assert say(limit(0, inside=True)) == [[CLOSE]]
    assert say(limit(0, inside=False), 0, OPEN) == [[], [], [CLOSE]]


def test_what_closes_it_ends_it():
    assert say(limit(2, inside=True), 0, 1, CLOSE, 2, 3) == [[], [], [CLOSE], [], [], []]


def test_only_tokens_of_reasoning_count():
    assert say(limit(2, inside=False), *range(5), OPEN, 0, 1)[-3:] == [[], [], [CLOSE]]


def test_reasoning_that_ends_in_time_is_left_alone():
    assert say(limit(5, inside=True), 0, CLOSE, *range(10)) == [[]] * 13


def test_the_limit_is_of_all_reasoning_together():
    said = [OPEN, 0, 1, CLOSE, 2, OPEN, 3]
    assert say(limit(4, inside=False), *said)[-2:] == [[], [CLOSE]]


def test_marks_that_are_no_tokens_are_seen_in_the_text():
    marks = ThoughtMarks(b"ab", b"cd", (2, 3))
    grammar = ThoughtLimit(None, marks, spell, VOCABULARY, max_tokens=2, inside=False)
    assert say(grammar, 0, 1, 5, 5) == [[], [], [], [], [2, 3]]
    grammar = ThoughtLimit(None, marks, spell, VOCABULARY, max_tokens=9, inside=False)
    assert say(grammar, 0, 1, 2, 3, *[5] * 20) == [[]] * 25


def test_without_a_grammar_everything_may_be_said():
    assert allowed(limit(3, inside=True)) == set(range(VOCABULARY))


def test_a_grammar_is_followed():
    inner = Only(0, 1, CLOSE)
    grammar = limit(2, inside=True, inner=inner)
    assert allowed(grammar) == {0, 1, CLOSE}
    assert say(grammar, 0, 1)[-1] == [CLOSE]
    grammar.accept(CLOSE)
    assert inner.accepted == [0, 1, CLOSE]
    with pytest.raises(GrammarFailed):
        grammar.accept(7)


def test_a_call_that_a_grammar_lets_begin_inside_of_reasoning_is_not_cut():
    assert say(limit(1, inside=True, inner=Only(0, 1, 2)), 0, 1, 2) == [[]] * 4
