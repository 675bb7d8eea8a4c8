from typing import Any

import numpy as np
import pytest
import torch
from stepping import continue_greedily, new_sequence, segment
from tiny_families import tiny_module

from antiphon.engine.runners.universal import SequenceState, UniversalRunner
from antiphon.engine.sequence import Sequence
from antiphon.engine.snapshots import SnapshotCache


def random_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, num_tokens).tolist()


def roomy(**options: Any) -> SnapshotCache:
    return SnapshotCache(max_bytes=1 << 30, **options)


class _Layer:
    """4 bytes for each token."""

    def __init__(self, num_tokens: int) -> None:
        self.keys = torch.zeros(num_tokens)


class _Cache:
    def __init__(self, num_tokens: int) -> None:
        self.layers = [_Layer(num_tokens)]


def compute(cache: SnapshotCache, sequence: Sequence, end: int) -> None:
    """As if a step had taken a sequence to `end`."""
    sequence.state = SequenceState(_Cache(end), end)
    sequence.num_computed = end
    cache.publish(sequence)


def begun(cache: SnapshotCache, tokens: list[int], **request: Any) -> Sequence:
    sequence = new_sequence(tokens, **request)
    cache.begin(sequence)
    assert cache.reserve(sequence, 1)
    return sequence


def done(cache: SnapshotCache, tokens: list[int], **request: Any) -> None:
    """A sequence that came and went."""
    sequence = begun(cache, tokens, **request)
    compute(cache, sequence, len(tokens))
    cache.release(sequence)


# --- what is said ---


@pytest.mark.parametrize("family", ["qwen3_next", "llama", "gpt_oss"])
def test_a_sequence_says_the_same_after_a_cached_prefix(family: str) -> None:
    runner, cache = UniversalRunner(tiny_module(family)), roomy()
    first = begun(cache, random_tokens(50))
    answer = continue_greedily(runner, [first], 10)[0]
    cache.publish(first)
    cache.release(first)
    turn = [*random_tokens(50), *answer, *random_tokens(9, 1)]
    (expected,) = continue_greedily(runner, [new_sequence(turn)], 10)
    for _ in range(2):  # The snapshot is not used up.
        second = begun(cache, turn)
        assert second.num_computed == 59
        assert continue_greedily(runner, [second], 10) == [expected]


def test_a_prompt_that_goes_on_otherwise_begins_at_the_prompt() -> None:
    runner, cache = UniversalRunner(tiny_module("qwen3_next")), roomy()
    prompt = random_tokens(40)
    first = begun(cache, prompt)
    runner.forward([segment(first, 0, 40, 0)])
    first.num_computed = 40
    cache.publish(first)
    first.append(3)
    continue_greedily(runner, [first], 5)
    other = begun(cache, [*prompt, 4, 5])
    assert other.num_computed == 40
    expected = continue_greedily(runner, [new_sequence([*prompt, 4, 5])], 6)
    assert continue_greedily(runner, [other], 6) == expected


# --- what is found ---


def test_the_longest_beginning_is_found_but_never_the_whole() -> None:
    cache = roomy()
    done(cache, [1, 2])
    done(cache, [1, 2, 3, 4])
    assert begun(cache, [1, 2, 3, 4]).num_computed == 2
    assert begun(cache, [1, 2, 3, 4, 5]).num_computed == 4
    assert begun(cache, [1, 3, 3, 4, 5]).num_computed == 0


def test_tokens_that_were_found_and_that_were_not_are_counted() -> None:
    cache = roomy()
    done(cache, [1, 2])
    begun(cache, [1, 2, 3])
    stats = cache.stats()
    assert (stats["hit_tokens"], stats["missed_tokens"]) == (2, 3)


def test_other_salts_find_nothing() -> None:
    cache = roomy()
    done(cache, [1, 2], cache_salt="a")
    assert begun(cache, [1, 2, 3], cache_salt="b").num_computed == 0
    assert begun(cache, [1, 2, 3], cache_salt="a").num_computed == 2


def test_long_prompts_are_kept_at_doubling_lengths() -> None:
    cache = roomy()
    sequence = begun(cache, [7] * 2000)
    for end in range(100, 2001, 100):
        compute(cache, sequence, end)
    found = [begun(cache, [7] * length).num_computed for length in (299, 301, 601, 1201, 2001)]
    assert found == [0, 300, 600, 1200, 2000]
    assert cache.num_snapshots == 4


def test_a_sequence_set_back_to_the_start_goes_on_where_it_was() -> None:
    cache = roomy()
    sequence = begun(cache, [1, 2, 3, 4])
    compute(cache, sequence, 3)
    cache.release(sequence)
    assert (sequence.num_computed, sequence.state) == (0, None)
    cache.begin(sequence)
    assert sequence.num_computed == 3


def test_what_a_failed_pass_left_is_not_kept() -> None:
    cache = roomy()
    sequence = begun(cache, [1, 2, 3])
    compute(cache, sequence, 2)
    assert isinstance(sequence.state, SequenceState)
    sequence.state.num_tokens = None
    cache.publish(sequence)
    cache.release(sequence)
    assert cache.num_snapshots == 0


# --- room ---


def test_a_sequence_that_waits_for_room_holds_nothing() -> None:
    cache = SnapshotCache(max_bytes=4 * 100)
    done(cache, [1] * 50)
    first = begun(cache, [2] * 99)
    compute(cache, first, 40)
    second = new_sequence([1] * 60)
    cache.begin(second)
    assert (second.num_computed, second.state) == (50, None)
    assert not cache.reserve(second, 11)
    cache.release(second)
    assert cache.held_bytes == 4 * 40
    cache.begin(second)
    assert cache.reserve(second, 10)
    assert isinstance(second.state, SequenceState)
    assert second.state.num_tokens == 50
    assert cache.held_bytes == 4 * 90


def test_what_was_not_used_for_longest_goes_first_and_sequences_with_a_key_last() -> None:
    cache = roomy(max_snapshots=3)
    done(cache, [1, 1], cache_key="conversation")
    done(cache, [2, 2])
    done(cache, [3, 3])
    assert begun(cache, [2, 2, 2]).num_computed == 2
    done(cache, [4, 4])
    kept = [begun(cache, [n, n, n]).num_computed == 2 for n in (1, 2, 3, 4)]
    assert kept == [True, True, False, True]


def test_snapshots_and_states_stay_within_their_bytes() -> None:
    cache = SnapshotCache(max_bytes=4 * 120)
    done(cache, [1] * 60)
    done(cache, [2] * 30)
    assert cache.snapshot_bytes == 4 * 90
    sequence = begun(cache, [3] * 60)
    compute(cache, sequence, 50)
    assert (cache.held_bytes, cache.snapshot_bytes) == (4 * 50, 4 * 30)


def test_there_is_no_room_for_a_second_sequence_where_one_fills_it() -> None:
    cache = SnapshotCache(max_bytes=4 * 100)
    first = begun(cache, [1] * 200)
    compute(cache, first, 90)
    assert cache.reserve(first, 110)
    second = begun(cache, [2] * 50)
    compute(cache, second, 8)
    assert cache.reserve(second, 2)
    assert not cache.reserve(second, 3)
    cache.release(first)
    assert cache.reserve(second, 92)


def test_idle_prefixes_are_forgotten_after_their_time() -> None:
    now = [100.0]
    cache = roomy(clock=lambda: now[0])
    done(cache, [1, 2], keep_seconds=60.0)
    done(cache, [3, 4])
    now[0] += 59
    assert begun(cache, [1, 2, 5]).num_computed == 2
    now[0] += 59  # It was used in between.
    assert begun(cache, [1, 2, 5]).num_computed == 2
    now[0] += 61
    assert begun(cache, [1, 2, 5]).num_computed == 0
    assert begun(cache, [3, 4, 5]).num_computed == 2
