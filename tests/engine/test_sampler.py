"""How the next token is drawn from a model's scores: by the kernels and without them."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from antiphon.engine.draws import uniform
from antiphon.engine.kernels.library import Kernels, KernelsUnavailable, load
from antiphon.engine.sampler import NoTokenAllowed, Sampler, SampleRow
from antiphon.engine.sequence import EngineStream, SampledToken, Sequence, SequenceRequest
from antiphon.turn import Sampling

Floats = npt.NDArray[np.float32]

CLEAR = np.array([0.0, 3.0, 1.0, -2.0], np.float32)
NUM_DRAWS = 3000
PROMPT = [0, 1, 2]


def available() -> list[Kernels | None]:
    try:
        return [load(), None]
    except KernelsUnavailable:
        return [None]


ALL = pytest.mark.parametrize(
    "kernels", available(), ids=lambda kernels: "kernels" if kernels else "numpy"
)


def sequence(
    sampling: Sampling, made: Iterable[int] = (), top_logprobs: int | None = None
) -> Sequence:
    request = SequenceRequest(PROMPT, sampling, frozenset(), 10_000, top_logprobs)
    stream: EngineStream = None  # type: ignore[assignment]
    sequence = Sequence(request, stream)
    for token in made:
        sequence.append(token)
    return sequence


def allowing(vocab_size: int, tokens: Iterable[int]) -> npt.NDArray[np.uint32]:
    mask = np.zeros((vocab_size + 31) // 32, np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def sample(
    kernels: Kernels | None,
    scores: Floats,
    sequence: Sequence,
    mask: npt.NDArray[np.uint32] | None = None,
) -> SampledToken:
    sampler = Sampler(len(scores), kernels)
    return sampler.sample(scores[None], [SampleRow(sequence, mask)])[0]


def drawn(
    kernels: Kernels | None,
    scores: Floats,
    number: int,
    mask: npt.NDArray[np.uint32] | None = None,
    **sampling: Any,
) -> list[int]:
    """Tokens that one sequence draws from the same scores again and again."""
    sampler, drawing = Sampler(len(scores), kernels), sequence(Sampling(**{"seed": 5, **sampling}))
    tokens = []
    for _ in range(number):
        tokens.append(sampler.sample(scores[None], [SampleRow(drawing, mask)])[0].token)
        drawing.append(tokens[-1])
    return tokens


def check_shares(
    kernels: Kernels | None, scores: Floats, expected: Iterable[float], **sampling: Any
) -> None:
    """Tokens are drawn as often as expected, to within five standard deviations."""
    counts = Counter(drawn(kernels, scores, NUM_DRAWS, **sampling))
    assert set(counts) <= set(range(len(scores)))
    for token, share in enumerate(expected):
        deviation = math.sqrt(share * (1 - share) / NUM_DRAWS)
        assert abs(counts[token] / NUM_DRAWS - share) <= 5 * deviation, token


def softmax(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    scores = np.asarray(scores, np.float64)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def scores_of(*probabilities: float) -> Floats:
    return np.log(np.array(probabilities, np.float32))


# --- temperature ---


@ALL
@pytest.mark.parametrize("temperature", [0, 0.0, 1e-9, 5e-5])
@pytest.mark.parametrize("top_p", [0, 0.5, 1])
def test_use_02_no_temperature_or_almost_none_takes_the_likeliest(kernels, temperature, top_p):
    nearly_equal = np.array([1.0, 1.0001, 1.0], np.float32)
    tokens = drawn(kernels, nearly_equal, 50, temperature=temperature, top_p=top_p, seed=None)
    assert set(tokens) == {1}


@ALL
def test_of_equally_likely_tokens_the_lowest_is_the_likeliest(kernels):
    scores = np.zeros(1000, np.float32)
    scores[[77, 300, 901]] = 5
    assert sample(kernels, scores, sequence(Sampling(temperature=0))).token == 77


@ALL
def test_the_likeliest_is_the_likeliest_after_penalties(kernels):
    settings = Sampling(temperature=0, presence_penalty=2)
    scores = np.array([1.5, 1.0], np.float32)
    assert sample(kernels, scores, sequence(settings, [0])).token == 1


@ALL
@pytest.mark.parametrize("temperature", [0.01, 0.5, 1, 2])
def test_use_02_every_temperature_that_may_be_asked_for_draws_as_softmax_has_it(
    kernels, temperature
):
    check_shares(kernels, CLEAR, softmax(CLEAR / temperature), temperature=temperature)


@ALL
def test_a_large_vocabulary_is_drawn_from_evenly(kernels):
    tokens = drawn(kernels, np.zeros(10_001, np.float32), NUM_DRAWS)
    tenths = Counter(token * 10 // 10_001 for token in tokens)
    assert all(abs(tenths[tenth] - 300) < 5 * math.sqrt(270) for tenth in range(10))


@ALL
def test_scores_far_apart_draw_without_overflow(kernels):
    scores = np.array([-np.inf, 1e30, -1e30, 0.0], np.float32)
    assert set(drawn(kernels, scores, 50, temperature=0.001)) == {1}
    assert set(drawn(kernels, scores, 50, temperature=2, top_p=0.9)) == {1}


@ALL
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0}, {"top_p": 0.9}, {"top_k": 3}])
def test_what_is_not_a_number_is_never_drawn(kernels, sampling):
    scores = np.array([np.nan, 0.0, -np.inf, np.nan, 0.0], np.float32)
    assert set(drawn(kernels, scores, 100, **sampling)) <= {1, 4}


@ALL
@pytest.mark.parametrize("temperature", [0, 1])
def test_what_is_infinite_is_always_drawn(kernels, temperature):
    scores = np.array([1e38, np.inf, 0.0], np.float32)
    assert set(drawn(kernels, scores, 50, temperature=temperature)) == {1}


# --- filters ---


@ALL
@pytest.mark.parametrize("top_p", [0, 1e-12, 0.0001])
def test_use_02_a_top_p_of_nothing_or_almost_takes_the_likeliest(kernels, top_p):
    scores = np.array([1.0, 1.1, 1.0], np.float32)
    assert set(drawn(kernels, scores, 100, temperature=2, top_p=top_p)) == {1}


@ALL
def test_use_02_a_top_p_of_1_leaves_every_token(kernels):
    check_shares(kernels, scores_of(0.4, 0.3, 0.2, 0.1), [0.4, 0.3, 0.2, 0.1], top_p=1)


@ALL
def test_top_p_keeps_the_fewest_tokens_that_reach_it_and_their_proportions(kernels):
    # Shuffled, so that places and ranks differ.
    scores = scores_of(0.05, 0.5, 0.15, 0.3)
    check_shares(kernels, scores, [0, 0.625, 0, 0.375], top_p=0.7)
    check_shares(kernels, scores, [0, 0.5 / 0.95, 0.15 / 0.95, 0.3 / 0.95], top_p=0.9)


@ALL
def test_a_token_that_top_p_is_reached_without_is_left_out(kernels):
    # Four tokens of exactly a quarter each.
    for top_p, number in [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4)]:
        tokens = set(drawn(kernels, np.zeros(4, np.float32), 100, top_p=top_p))
        assert tokens == set(range(number))


@ALL
def test_top_p_counts_after_temperature(kernels):
    scores = scores_of(0.6, 0.2, 0.2)
    assert set(drawn(kernels, scores, 200, top_p=0.5)) == {0}
    assert set(drawn(kernels, scores, 200, top_p=0.5, temperature=2)) == {0, 1}


@ALL
def test_top_k_keeps_the_likeliest_of_equal_ones_the_first(kernels):
    scores = scores_of(0.1, 0.2, 0.4, 0.2, 0.1)
    assert set(drawn(kernels, scores, 100, top_k=1)) == {2}
    check_shares(kernels, scores, [0, 1 / 3, 2 / 3, 0, 0], top_k=2)
    check_shares(kernels, scores, [0.1, 0.2, 0.4, 0.2, 0.1], top_k=5)
    check_shares(kernels, scores, [0.1, 0.2, 0.4, 0.2, 0.1], top_k=1_000_000)


@ALL
def test_top_p_is_of_what_top_k_leaves(kernels):
    # Two thirds of what the first two have together are the first one's.
    scores = scores_of(0.4, 0.2, 0.2, 0.2)
    assert set(drawn(kernels, scores, 200, top_k=2, top_p=0.65)) == {0}
    assert set(drawn(kernels, scores, 200, top_p=0.65)) == {0, 1, 2}


@ALL
def test_min_p_is_of_the_likeliest_token_s_probability(kernels):
    scores = scores_of(0.5, 0.26, 0.14, 0.1)
    check_shares(kernels, scores, [0.5 / 0.76, 0.26 / 0.76, 0, 0], min_p=0.5)
    check_shares(kernels, scores, [0.5, 0.26, 0.14, 0.1], min_p=0.1)
    assert set(drawn(kernels, scores, 200, min_p=0.25, top_p=0.7)) == {0, 1}
    assert set(drawn(kernels, scores, 100, min_p=1.0)) == {0}


def kept(scores: Floats, sampling: Sampling) -> dict[int, float]:
    """What the filters leave of all tokens, sorted in full, with their probabilities. Gives up on
    filters whose edges are within rounding of a token."""
    probabilities = softmax(scores.astype(np.float64) / sampling.temperature)
    order = np.lexsort((np.arange(len(scores)), -probabilities))
    if sampling.top_k:
        order = order[: sampling.top_k]
    mass = probabilities[order].sum()
    before, chosen = 0.0, []
    for place, token in enumerate(order.tolist()):
        if sampling.top_p < 1 and place and before >= sampling.top_p * mass:
            break
        chosen.append(token)
        before += probabilities[token]
        assume(abs(before - sampling.top_p * mass) > 1e-5 * mass or sampling.top_p == 1)
    ratios = probabilities[chosen] / probabilities.max()
    assume(np.abs(ratios - sampling.min_p).min() > 1e-5 or not 0 < sampling.min_p < 1)
    left = sorted(t for t, r in zip(chosen, ratios, strict=True) if r >= sampling.min_p)
    total = probabilities[left].sum()
    return {token: float(probabilities[token] / total) for token in left}


@ALL
@settings(max_examples=150, deadline=None)
@given(
    rng=st.integers(0, 2**32),
    vocab_size=st.integers(1, 700),
    spread=st.sampled_from([0.01, 1.0, 3.0, 10.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 2, 7, 50, 400]),
    top_p=st.sampled_from([1.0, 1.0, 0.01, 0.5, 0.9, 0.999, 0.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0]),
)
def test_tokens_are_those_that_a_full_sort_would_draw(
    kernels, rng, vocab_size, spread, temperature, top_k, top_p, min_p
):
    generator = np.random.default_rng(rng)
    scores = (spread * generator.normal(size=vocab_size)).astype(np.float32)
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=rng)
    left = kept(scores, sampling)
    tokens, edges = list(left), np.cumsum(list(left.values()))
    for number, token in enumerate(drawn(kernels, scores, 40, **_fields(sampling))):
        place = uniform(rng, number)
        assert token in left
        nearest = np.abs(edges - place).min()
        assert token == tokens[min(int(edges.searchsorted(place, "right")), len(tokens) - 1)] or (
            nearest < 1e-5
        )


def _fields(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in Sampling.__dataclass_fields__}


@ALL
def test_filters_leave_most_of_a_large_flat_vocabulary(kernels):
    scores = np.random.default_rng(0).normal(0, 0.01, 10_000).astype(np.float32)
    order = np.argsort(-scores)
    reached = int(np.cumsum(softmax(scores)[order]).searchsorted(0.9))
    left = set(order[: reached + 2].tolist())
    tokens = drawn(kernels, scores, 1000, top_p=0.9)
    assert set(tokens) <= left
    assert len(set(tokens)) > 900
    tenths = Counter(token // 1000 for token in tokens)
    assert all(50 < tenths[tenth] < 150 for tenth in range(10))


# --- seeds ---


@ALL
def test_the_same_seed_draws_the_same_whatever_is_drawn_beside_it(kernels):
    flat = np.zeros(1000, np.float32)
    alone = drawn(kernels, flat, 20, seed=42)
    sampler = Sampler(1000, kernels)
    others = [sequence(Sampling(seed=seed), made) for seed, made in [(1, ()), (42, [5]), (7, ())]]
    drawing = sequence(Sampling(seed=42))
    among_others = []
    for step in range(20):
        rows = [SampleRow(other) for other in others[: step % 4]]
        rows.insert(step % 3, SampleRow(drawing))
        place = rows.index(SampleRow(drawing))
        sampled = sampler.sample(np.zeros((len(rows), 1000), np.float32), rows)
        among_others.append(sampled[place].token)
        drawing.append(among_others[-1])
    assert among_others == alone


@ALL
def test_a_place_is_drawn_the_same_again(kernels):
    flat = np.zeros(1000, np.float32)
    drawing = sequence(Sampling(seed=1), [4, 4])
    assert sample(kernels, flat, drawing) == sample(kernels, flat, drawing)


@ALL
def test_other_seeds_draw_other_tokens(kernels):
    flat = np.zeros(100_000, np.float32)
    tokens = [tuple(drawn(kernels, flat, 4, seed=seed)) for seed in (None, None, 0, 1, 2)]
    assert len(set(tokens)) == 5


@ALL
@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1, 2**64 - 1])
def test_any_64_bit_seed_repeats(kernels, seed):
    flat = np.zeros(1000, np.float32)
    assert drawn(kernels, flat, 5, seed=seed) == drawn(kernels, flat, 5, seed=seed)


@pytest.mark.skipif(len(available()) == 1, reason="there are no kernels to compare with")
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"top_p": 0.9},
        {"top_k": 40, "min_p": 0.01},
        {"temperature": 0.7, "presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"bias": ((3, 5.0), (499, -100.0), (100_000, 1.0))},
    ],
)
def test_the_same_seed_draws_the_same_with_and_without_kernels(sampling):
    scores = np.random.default_rng(3).normal(0, 2, 500).astype(np.float32)
    mask = allowing(500, range(0, 500, 3))
    mine = drawn(load(), scores, 300, mask, **sampling)
    assert mine == drawn(None, scores, 300, mask, **sampling)


# --- penalties, biases and masks ---


@ALL
@pytest.mark.parametrize(
    ("made", "penalties", "token"),
    [
        ([], {"presence_penalty": 2, "frequency_penalty": 2}, 0),
        ([0], {"presence_penalty": 0.9}, 0),
        ([0], {"presence_penalty": 1.1}, 1),
        ([0] * 9, {"presence_penalty": 0.9}, 0),
        ([0], {"frequency_penalty": 0.6}, 0),
        ([0, 0], {"frequency_penalty": 0.6}, 1),
        ([0], {"presence_penalty": 0.6, "frequency_penalty": 0.6}, 1),
        ([0, 1, 0, 1], {"presence_penalty": 1, "frequency_penalty": 1}, 0),
        ([1], {"presence_penalty": -1.1}, 1),
        ([1] * 3, {"frequency_penalty": -0.5}, 1),
    ],
)
def test_tokens_that_were_made_are_penalised_once_and_for_every_time(
    kernels, made, penalties, token
):
    """The prompt has each of the tokens once, which does not count."""
    scores = np.array([2.0, 1.0, -9.0], np.float32)
    drawing = sequence(Sampling(temperature=0, **penalties), made)
    assert sample(kernels, scores, drawing).token == token


@ALL
def test_penalties_grow_with_what_is_made(kernels):
    scores = np.array([2.0, 1.1, 0.3], np.float32)
    tokens = drawn(kernels, scores, 6, temperature=0, frequency_penalty=0.5)
    assert tokens == [0, 0, 1, 0, 1, 0]


@ALL
def test_many_different_tokens_are_counted(kernels):
    scores = np.arange(1000, dtype=np.float32)[::-1] / 1e4
    tokens = drawn(kernels, scores.copy(), 1000, temperature=0, presence_penalty=2)
    assert tokens == list(range(1000))


@ALL
def test_a_bias_is_added_to_a_score(kernels):
    scores = np.array([0.0, 1.0, 2.0], np.float32)
    for bias, token in [(((0, 2.1),), 0), (((0, 1.9),), 2), (((2, -1.5), (1, 0.1)), 1)]:
        drawing = sequence(Sampling(temperature=0, bias=bias))
        assert sample(kernels, scores, drawing).token == token


@ALL
def test_a_bias_of_a_token_that_does_not_exist_is_nothing(kernels):
    drawing = sequence(Sampling(temperature=0, bias=((4, 100.0), (-1, 100.0), (2**40, 100.0))))
    assert sample(kernels, CLEAR, drawing).token == 1


@ALL
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0}, {"top_p": 0.5}, {"top_k": 2}])
@pytest.mark.parametrize("vocab_size", [5, 32, 100, 1000])
def test_only_tokens_of_the_mask_are_drawn(kernels, vocab_size, sampling):
    scores = np.zeros(vocab_size, np.float32)
    scores[0] = 50
    allowed = {1, 3, vocab_size - 1}
    mask = allowing(vocab_size, allowed)
    tokens = set(drawn(kernels, scores, 100, mask, **sampling))
    assert tokens <= allowed
    if not sampling:
        assert tokens == allowed


@ALL
def test_a_bias_does_not_lift_a_token_over_the_mask(kernels):
    drawing = sequence(Sampling(bias=((0, 100.0),)))
    assert sample(kernels, CLEAR, drawing, allowing(4, [3])).token == 3


@ALL
@pytest.mark.parametrize("temperature", [0, 1])
def test_it_is_an_error_if_nothing_is_allowed(kernels, temperature):
    fine, stuck = (sequence(Sampling(temperature=temperature)) for _ in range(2))
    scores = np.stack([CLEAR, CLEAR])
    with pytest.raises(NoTokenAllowed) as caught:
        Sampler(4, kernels).sample(scores, [SampleRow(fine), SampleRow(stuck, allowing(4, []))])
    assert caught.value.sequence is stuck


@ALL
def test_it_is_an_error_if_what_is_allowed_is_impossible(kernels):
    scores = np.array([-np.inf, np.nan, 0.0], np.float32)
    with pytest.raises(NoTokenAllowed):
        sample(kernels, scores, sequence(Sampling()), allowing(3, [0, 1]))


@ALL
def test_masks_and_scores_of_the_wrong_size_are_refused(kernels):
    sampler, drawing = Sampler(40, kernels), sequence(Sampling())
    with pytest.raises(ValueError, match="mask of 1 words"):
        sampler.sample(np.zeros((1, 40), np.float32), [SampleRow(drawing, allowing(32, [1]))])
    with pytest.raises(ValueError, match="1 rows of 40"):
        sampler.sample(np.zeros((1, 41), np.float32), [SampleRow(drawing)])
    with pytest.raises(ValueError, match="float32"):
        sampler.sample(np.zeros((1, 40)), [SampleRow(drawing)])  # type: ignore[arg-type]


# --- log-probabilities ---

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 2, "top_p": 0.1},
    {"temperature": 1, "presence_penalty": 2, "frequency_penalty": 2},
    {"bias": ((0, 9.0),)},
]


@ALL
@pytest.mark.parametrize("sampling", SETTINGS)
def test_log_probabilities_are_those_before_any_sampling_setting(kernels, sampling):
    expected = np.log(softmax(CLEAR)).tolist()
    for seed in range(5):
        drawing = sequence(Sampling(seed=seed, **sampling), [1, 1, 1], top_logprobs=4)
        sampled = sample(kernels, CLEAR, drawing, allowing(4, [0, 2]))
        assert sampled.token in (0, 2)
        assert sampled.logprob == pytest.approx(expected[sampled.token], abs=1e-6)
        assert dict(sampled.top) == pytest.approx(dict(enumerate(expected)), abs=1e-6)


@ALL
def test_the_likeliest_tokens_come_first_and_of_equal_ones_the_lowest(kernels):
    scores = np.random.default_rng(0).integers(0, 30, 5003).astype(np.float32)
    order = np.lexsort((np.arange(5003), -scores))
    sampled = sample(kernels, scores, sequence(Sampling(), top_logprobs=20))
    assert [token for token, _ in sampled.top] == order[:20].tolist()
    expected = np.log(softmax(scores))[order[:20]].tolist()
    assert [logprob for _, logprob in sampled.top] == pytest.approx(expected, abs=1e-5)


@ALL
def test_no_likeliest_tokens_may_be_asked_for(kernels):
    sampled = sample(kernels, CLEAR, sequence(Sampling(temperature=0), top_logprobs=0))
    assert sampled.top == ()
    assert sampled.logprob == pytest.approx(np.log(softmax(CLEAR))[1], abs=1e-6)


@ALL
def test_impossible_tokens_are_not_among_the_likeliest(kernels):
    scores = np.array([0.0, -np.inf, np.nan, 1.0], np.float32)
    sampled = sample(kernels, scores, sequence(Sampling(), top_logprobs=20))
    assert [token for token, _ in sampled.top] == [3, 0]


@ALL
def test_rows_with_and_without_log_probabilities_go_together(kernels):
    sampler = Sampler(4, kernels)
    numbers = [None, 2, 0, 4]
    sequences = [sequence(Sampling(temperature=0), top_logprobs=number) for number in numbers]
    for _ in range(2):
        sampled = sampler.sample(np.tile(CLEAR, (4, 1)), [SampleRow(s) for s in sequences])
        assert [token.token for token in sampled] == [1] * 4
        assert [len(token.top) for token in sampled] == [0, 2, 0, 4]
        assert [token.logprob < 0 for token in sampled] == [False, True, True, True]


@ALL
def test_log_probabilities_that_nobody_asked_for_are_not_worked_out(kernels):
    assert sample(kernels, CLEAR, sequence(Sampling(temperature=0))) == SampledToken(1)


@ALL
@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_scores_are_not_changed(kernels, sampling):
    scores = CLEAR.copy()
    drawing = sequence(Sampling(**sampling), [1, 1, 1], top_logprobs=2)
    sample(kernels, scores, drawing, allowing(4, [1, 2]))
    assert np.array_equal(scores, CLEAR)
