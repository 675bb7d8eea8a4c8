"""What the kernels' sampling does beyond what the sampler's tests see of it."""

import ctypes as c
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from antiphon.engine.draws import uniform
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import AkSampling

Floats = npt.NDArray[np.float32]


def settings_of(**settings: Any) -> AkSampling:
    return AkSampling(**{"temperature": 1, "top_p": 1, "num_top": -1, **settings})


def sample(kernels: Kernels, scores: Floats, **settings: Any) -> int:
    sampling = settings_of(**settings)
    pointers = scores.ctypes.data, len(scores), c.byref(sampling), None, None, None
    return int(kernels.library.ak_sample(*pointers))


@pytest.mark.parametrize("vocab_size", [1, 7, 8, 9, 63, 64, 65, 127, 1000, 4099])
def test_a_vocabulary_of_any_size_is_drawn_from_to_its_end(kernels, vocab_size):
    # With more behind it that would win if it were looked at.
    scores = np.full(vocab_size + 100, 1e3, np.float32)
    scores[:vocab_size] = 0
    whole = scores[:vocab_size]
    for position in range(200):
        token = sample(kernels, whole, seed=3, position=position)
        assert token == int(uniform(3, position) * vocab_size)
        assert sample(kernels, whole, seed=3, position=position, top_p=0.99) < vocab_size
    whole[-1] = 1
    assert sample(kernels, whole, temperature=0) == vocab_size - 1


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), 0.0])
def test_a_temperature_that_is_none_takes_the_likeliest(kernels, temperature):
    assert sample(kernels, np.array([0, 2, 1], np.float32), temperature=temperature) == 1


def test_tokens_outside_the_vocabulary_are_passed_over(kernels):
    tokens, counts = np.array([-1, 5, 2**31 - 1], np.int32), np.ones(3, np.int32)
    values = np.full(3, 100, np.float32)
    outside = {
        "num_counted": 3,
        "counted": tokens.ctypes.data,
        "counts": counts.ctypes.data,
        "presence_penalty": -2.0,
        "num_biased": 3,
        "biased": tokens.ctypes.data,
        "biases": values.ctypes.data,
    }
    assert sample(kernels, np.array([0, 2, 1, 0, 0], np.float32), temperature=0, **outside) == 1


def test_rows_are_drawn_as_they_are_alone(kernels):
    scores = np.random.default_rng(0).normal(0, 3, (40, 500)).astype(np.float32)
    rows = [settings_of(seed=i, position=i, top_p=0.5 + i / 80, num_top=i % 3) for i in range(40)]
    tokens = np.empty(40, np.int32)
    logprobs, tops = np.empty(40, np.float32), np.empty((40, 2), np.float32)
    top_tokens = np.empty((40, 2), np.int32)
    outputs = (x.ctypes.data for x in (tokens, logprobs, top_tokens, tops))
    structs = (AkSampling * 40)(*rows)
    assert kernels.library.ak_sample_rows(scores.ctypes.data, 500, 40, structs, *outputs, 2) == 0
    for i in range(40):
        assert tokens[i] == sample(kernels, scores[i], seed=i, position=i, top_p=0.5 + i / 80)
        assert top_tokens[i, 0] == scores[i].argmax() or i % 3 == 0


def test_more_likeliest_tokens_than_there_is_room_for_are_refused(kernels):
    scores, out = np.zeros((1, 8), np.float32), np.zeros(8, np.float32)
    structs = (AkSampling * 1)(settings_of(num_top=3))
    pointers = (out.ctypes.data,) * 4
    assert kernels.library.ak_sample_rows(scores.ctypes.data, 8, 1, structs, *pointers, 2) < 0


def test_numbers_are_spread_evenly_over_seeds_and_positions():
    for numbers in (
        np.array([uniform(seed, 0) for seed in range(20_000)]),
        np.array([uniform(12345, position) for position in range(20_000)]),
    ):
        assert 0 <= numbers.min() < numbers.max() < 1
        counts = np.histogram(numbers, 100, (0, 1))[0]
        # Chi-square with 99 degrees of freedom: six standard deviations around its mean.
        assert abs(((counts - 200) ** 2 / 200).sum() - 99) < 6 * 14.1
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.04


def test_numbers_stay_the_same_from_one_version_to_the_next():
    """Somebody may count on a seed."""
    places = [(0, 0), (1, 0), (0, 1), (2**64 - 1, 10**6)]
    assert [uniform(*place) for place in places] == [
        0.6524484863740322,
        0.36818951565166946,
        0.7012121095215252,
        0.4611314684076886,
    ]
