"""Guesses: where they come from, and when they are made."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest
from antiphon.engine.speculation import PromptLookup, Speculator
from antiphon.engine.step_costs import StepCosts
from antiphon.turn import Sampling

#: Streams want a loop; nothing is ever sent through these.
LOOP = asyncio.new_event_loop()
LOOP.close()


def sequence(tokens: list[int], max_tokens: int = 1000, **options: Any) -> Sequence:
    request = SequenceRequest(tokens, Sampling(), frozenset(), max_tokens, **options)
    return Sequence(request, EngineStream(LOOP))


# --- looking up ---


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 4, 1, 2], [3, 4, 1, 2]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2]),  # The last time counts,
        ([5, 6, 1, 2, 8, 7, 1, 2, 9, 5, 6, 1, 2], [8, 7, 1, 2, 9]),  # and the longest end.
        ([1, 2, 3, 4, 5], []),
        ([1, 1, 1], [1]),
        ([1], []),
        ([1, 2], []),
    ],
)
def test_what_followed_the_end_before_is_guessed(tokens, expected):
    assert PromptLookup().continuation(sequence(tokens), 5) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 6))
def test_a_lookup_that_grew_with_its_sequence_finds_what_a_search_finds(tokens, at_most):
    def searched(known: list[int]) -> list[int]:
        for length in (4, 2):
            for start in range(len(known) - length - 1, -1, -1):
                if known[start : start + length] == known[-length:]:
                    return known[start + length : start + length + at_most]
        return []

    grown, lookup = sequence(tokens[:1]), PromptLookup()
    for number in range(1, len(tokens) + 1):
        assert lookup.continuation(grown, at_most) == searched(tokens[:number])
        if number < len(tokens):
            grown.append(tokens[number])


# --- whether it pays ---


def costs(row: float, rows: int = 40) -> StepCosts:
    """One row takes a second, each more `row` seconds."""
    learnt = StepCosts()
    for number in range(1, rows):
        learnt.learn(number, 0, 1 + row * (number - 1))
    return learnt


REPEATS = [1, 2, 3, 4, 5, 6, 7, 8] * 4


def test_nothing_is_guessed_before_a_step_was_measured():
    assert Speculator(StepCosts()).propose(sequence(REPEATS), 1) == []


def test_cheap_rows_are_used_in_full_and_dear_ones_not_at_all():
    assert Speculator(costs(0.0), 5).propose(sequence(REPEATS), 1) == [1, 2, 3, 4, 5]
    assert Speculator(costs(1.5), 5).propose(sequence(REPEATS), 1) == []
    assert Speculator(costs(0.3), 5).propose(sequence(REPEATS), 1) == [1]


def test_many_rows_leave_no_room_for_guesses():
    speculator = Speculator(costs(0.1))
    assert speculator.propose(sequence(REPEATS), 1)
    # With 20 rows a step is 2.9 s: a row more costs what two thirds of a token are worth.
    assert len(speculator.propose(sequence(REPEATS), 20)) <= 1


def test_no_more_is_guessed_than_may_come():
    speculator = Speculator(costs(0.0))
    one = sequence(REPEATS, max_tokens=4)
    assert len(speculator.propose(one, 1)) == 3
    for token in (1, 2):
        one.append(token)
    assert len(speculator.propose(one, 1)) == 1
    one.append(3)
    assert speculator.propose(one, 1) == []


def test_a_sequence_with_a_grammar_gets_no_guesses():
    assert Speculator(costs(0.0)).propose(sequence(REPEATS, grammar=object()), 1) == []


def propose_for(speculator: Speculator, one: Sequence, steps: int, right: bool) -> list[int]:
    """The numbers of guesses in so many steps, all of them right or wrong."""
    numbers = []
    for _ in range(steps):
        number = len(speculator.propose(one, 1))
        numbers.append(number)
        if number:
            speculator.learn(one, number, number if right else 0)
    return numbers


def test_wrong_guesses_become_rare_and_right_ones_bring_them_back():
    speculator = Speculator(costs(0.1))
    one = sequence(REPEATS)
    early = propose_for(speculator, one, 100, right=False)
    late = propose_for(speculator, one, 1000, right=False)
    assert sum(map(bool, early)) > sum(map(bool, late[-500:]))
    assert 1 <= sum(map(bool, late[-500:])) <= 4
    assert sum(late[-500:]) <= 4
    back = propose_for(speculator, one, 300, right=True)
    assert min(back[-10:]) >= 3


def test_what_was_learnt_of_rows_by_chance_is_put_to_the_test_again():
    learnt = costs(0.1)
    learnt.learn(2, 0, 10**3)
    speculator, one = Speculator(learnt), sequence(REPEATS)
    for _ in range(2000):
        number = len(speculator.propose(one, 1))
        learnt.learn(1 + number, 0, 1 + 0.1 * number)
        if number:
            speculator.learn(one, number, number)
    assert len(speculator.propose(one, 1)) == 5


def test_each_stream_is_measured_by_itself():
    speculator = Speculator(costs(0.1))
    bad, good = sequence(REPEATS), sequence(REPEATS)
    propose_for(speculator, bad, 100, right=False)
    assert min(propose_for(speculator, good, 20, right=True)) >= 1
    assert speculator.num_accepted > 0


def test_what_is_done_is_forgotten():
    speculator = Speculator(costs(0.0))
    one = sequence(REPEATS)
    speculator.propose(one, 1)
    speculator.forget(one)
    speculator.learn(one, 2, 1)
    assert not speculator._records


# --- what steps cost ---


def test_costs_between_measured_steps_are_interpolated():
    learnt = StepCosts()
    assert learnt.of_rows(1) is None
    assert learnt.of_rows(0) == 0
    learnt.learn(1, 0, 1.0)
    learnt.learn(5, 0, 3.0)
    assert learnt.of_rows(3) == pytest.approx(2.0)
    assert learnt.of_rows(1) == 1.0
    beyond = learnt.of_rows(9)
    assert beyond is not None and beyond > 3.0


def test_a_prompt_s_tokens_cost_what_is_left_of_a_step_without_its_rows():
    learnt = StepCosts()
    assert learnt.of_prompt_token() is None
    learnt.learn(2, 0, 1.0)
    learnt.learn(2, 10, 3.0)
    assert learnt.of_prompt_token() == pytest.approx(0.2)
    assert learnt.of_rows(2) == 1.0


def test_costs_follow_a_change():
    learnt = StepCosts()
    for _ in range(100):
        learnt.learn(1, 0, 1.0)
    for _ in range(50):
        learnt.learn(1, 0, 2.0)
    assert learnt.of_rows(1) == pytest.approx(2.0, abs=0.02)
