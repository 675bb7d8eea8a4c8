"""How the next token is drawn from a model's scores."""

import math
from collections import Counter

import pytest
import torch

from antiphon.engine.sampler import Sampler
from antiphon.engine.sequence import EngineStream, SampledToken, Sequence, SequenceRequest
from antiphon.turn import Sampling

CLEAR = torch.tensor([0.0, 3.0, 1.0, -2.0])
NUM_DRAWS = 3000


def sequence(counts: dict[int, int] | None = None, top_logprobs: int | None = None) -> Sequence:
    request = SequenceRequest([0], Sampling(), frozenset(), 100, top_logprobs)
    stream: EngineStream = None  # type: ignore[assignment]
    return Sequence(request, stream, counts=counts or {})


def drawn(logits: torch.Tensor, number: int, **sampling: float | None) -> list[int]:
    sampler = Sampler(Sampling(**{"seed": 5, **sampling}))
    return [sampler.sample(logits, sequence()).token for _ in range(number)]


def shares(logits: torch.Tensor, **sampling: float) -> list[float]:
    """How often each token is drawn."""
    counts = Counter(drawn(logits, NUM_DRAWS, **sampling))
    return [counts[token] / NUM_DRAWS for token in range(len(logits))]


def logits_of(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


# --- temperature ---


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-9, 5e-5])
@pytest.mark.parametrize("top_p", [0, 0.5, 1])
def test_use_02_no_temperature_or_almost_none_takes_the_likeliest(temperature, top_p):
    nearly_equal = torch.tensor([1.0, 1.0001, 1.0])
    assert set(drawn(nearly_equal, 50, temperature=temperature, top_p=top_p, seed=None)) == {1}


def test_the_likeliest_is_the_likeliest_after_penalties():
    sampler = Sampler(Sampling(temperature=0, presence_penalty=2))
    assert sampler.sample(torch.tensor([1.5, 1.0]), sequence({0: 1})).token == 1


@pytest.mark.parametrize("temperature", [0.01, 0.5, 1, 2])
def test_use_02_every_temperature_that_may_be_asked_for_draws_as_softmax_has_it(temperature):
    expected = (CLEAR / temperature).softmax(-1).tolist()
    assert shares(CLEAR, temperature=temperature) == pytest.approx(expected, abs=0.03)


def test_scores_far_apart_draw_without_overflow():
    logits = torch.tensor([-math.inf, 1e30, -1e30, 0.0])
    assert set(drawn(logits, 50, temperature=0.001)) == {1}
    assert set(drawn(logits, 50, temperature=2, top_p=0.9)) == {1}


# --- top_p ---


@pytest.mark.parametrize("top_p", [0, 1e-12, 0.0001])
def test_use_02_a_top_p_of_nothing_or_almost_takes_the_likeliest(top_p):
    assert set(drawn(torch.tensor([1.0, 1.1, 1.0]), 100, temperature=2, top_p=top_p)) == {1}


def test_use_02_a_top_p_of_1_leaves_every_token():
    assert shares(logits_of(0.4, 0.3, 0.2, 0.1), top_p=1) == pytest.approx(
        [0.4, 0.3, 0.2, 0.1], abs=0.03
    )


def test_top_p_keeps_the_fewest_tokens_that_reach_it_and_their_proportions():
    # Shuffled, so that places and ranks differ.
    logits = logits_of(0.05, 0.5, 0.15, 0.3)
    assert shares(logits, top_p=0.7) == pytest.approx([0, 0.625, 0, 0.375], abs=0.03)
    assert shares(logits, top_p=0.9) == pytest.approx([0, 0.526, 0.158, 0.316], abs=0.03)


def test_a_token_that_top_p_is_reached_without_is_left_out():
    # Four tokens of exactly a quarter each.
    for top_p, number in [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4)]:
        assert len(set(drawn(torch.zeros(4), 100, top_p=top_p))) == number


def test_top_p_counts_after_temperature():
    logits = logits_of(0.6, 0.2, 0.2)
    assert set(drawn(logits, 200, top_p=0.5)) == {0}
    assert set(drawn(logits, 200, top_p=0.5, temperature=2)) == {0, 1}


# --- seeds ---


def test_the_same_seed_draws_the_same_whatever_is_drawn_elsewhere():
    alone = drawn(torch.zeros(1000), 20, seed=42)
    others = [Sampler(Sampling(seed=seed)) for seed in (1, 42)]
    sampler = Sampler(Sampling(seed=42))
    among_others = []
    for step in range(20):
        torch.manual_seed(step)
        torch.rand(3)
        others[0].sample(torch.zeros(1000), sequence())
        among_others.append(sampler.sample(torch.zeros(1000), sequence()).token)
        others[1].sample(torch.zeros(7), sequence())
    assert among_others == alone


def test_drawing_leaves_torch_s_own_generator_alone():
    before = torch.get_rng_state()
    drawn(torch.zeros(10), 5, top_p=0.5, seed=None)
    assert torch.equal(torch.get_rng_state(), before)


def test_other_seeds_draw_other_tokens():
    tokens = [tuple(drawn(torch.zeros(100_000), 4, seed=seed)) for seed in (None, None, 0, 1, 2)]
    assert len(set(tokens)) == 5


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**64 - 1])
def test_any_64_bit_seed_repeats(seed):
    assert drawn(torch.zeros(1000), 5, seed=seed) == drawn(torch.zeros(1000), 5, seed=seed)


# --- penalties ---


def greedy(counts: dict[int, int], **penalties: float) -> int:
    """Which of two tokens wins, of which the first is ahead by 1."""
    sampler = Sampler(Sampling(temperature=0, **penalties))
    return sampler.sample(torch.tensor([2.0, 1.0, -9.0]), sequence(counts)).token


@pytest.mark.parametrize(
    ("counts", "penalties", "token"),
    [
        ({}, {"presence_penalty": 2, "frequency_penalty": 2}, 0),
        ({0: 1}, {"presence_penalty": 0.9}, 0),
        ({0: 1}, {"presence_penalty": 1.1}, 1),
        ({0: 9}, {"presence_penalty": 0.9}, 0),
        ({0: 1}, {"frequency_penalty": 0.6}, 0),
        ({0: 2}, {"frequency_penalty": 0.6}, 1),
        ({0: 1}, {"presence_penalty": 0.6, "frequency_penalty": 0.6}, 1),
        ({0: 2, 1: 2}, {"presence_penalty": 1, "frequency_penalty": 1}, 0),
        ({1: 1}, {"presence_penalty": -1.1}, 1),
        ({1: 3}, {"frequency_penalty": -0.5}, 1),
    ],
)
def test_tokens_that_were_made_are_penalised_once_and_for_every_time(counts, penalties, token):
    assert greedy(counts, **penalties) == token


# --- log-probabilities ---

SETTINGS = [
    {"temperature": 0},
    {"temperature": 2, "top_p": 0.1},
    {"temperature": 1, "presence_penalty": 2, "frequency_penalty": 2},
]


@pytest.mark.parametrize("sampling", SETTINGS)
def test_log_probabilities_are_those_before_any_sampling_setting(sampling):
    expected = CLEAR.log_softmax(-1).tolist()
    for seed in range(5):
        sampler = Sampler(Sampling(seed=seed, **sampling))
        sampled = sampler.sample(CLEAR, sequence({1: 3}, top_logprobs=4))
        assert sampled.logprob == pytest.approx(expected[sampled.token])
        assert dict(sampled.top) == pytest.approx(dict(enumerate(expected)))


def test_the_likeliest_tokens_come_first():
    sampled = Sampler(Sampling()).sample(CLEAR, sequence(top_logprobs=3))
    assert [token for token, _ in sampled.top] == [1, 2, 0]


def test_no_likeliest_tokens_may_be_asked_for():
    sampled = Sampler(Sampling(temperature=0)).sample(CLEAR, sequence(top_logprobs=0))
    assert sampled.top == ()
    assert sampled.logprob == pytest.approx(CLEAR.log_softmax(-1)[1].item())


def test_log_probabilities_that_nobody_asked_for_are_not_worked_out():
    assert Sampler(Sampling(temperature=0)).sample(CLEAR, sequence()) == SampledToken(1)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_scores_are_not_changed(sampling):
    logits = CLEAR.clone()
    Sampler(Sampling(**sampling)).sample(logits, sequence({1: 3}, top_logprobs=2))
    assert torch.equal(logits, CLEAR)
