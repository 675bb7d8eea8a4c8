"""Draws from one row of scores with numpy: what `native/sampling.h` does, where that is not to be
had. The same seed draws the same token there and here, unless rounding has it lie on an edge."""

import numpy as np
import numpy.typing as npt

from antiphon.turn import Sampling

Floats = npt.NDArray[np.float32]
#: Tokens, each once, and how often they were made.
Counts = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]

#: Below this temperature the likeliest token always wins by so much that drawing is pointless.
GREEDY = 1e-4
#: Filters seldom reach further than to tokens of this share of the likeliest one's probability.
_LIKELY = np.float32(1e-3)
_LARGEST = np.finfo(np.float32).max
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on a seed and the draw's number alone (SplitMix64)."""
    start = _mixed((seed + _GOLDEN) & _WORD)
    return (_mixed((start + (position + 1) * _GOLDEN) & _WORD) >> 11) * 2.0**-53


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def adjusted(
    scores: Floats, sampling: Sampling, counts: Counts | None, mask: npt.NDArray[np.uint32] | None
) -> Floats:
    """Scores with the mask, penalties and biases applied: a copy, of numbers and -infinity."""
    scores = _clean(scores)
    if mask is not None:
        bits = np.unpackbits(mask.astype("<u4", copy=False).view(np.uint8), bitorder="little")
        scores[bits[: scores.size] == 0] = -np.inf
    if counts is not None:
        tokens, times = counts
        known = (tokens >= 0) & (tokens < scores.size)
        penalties = sampling.presence_penalty + sampling.frequency_penalty * times
        scores[tokens[known]] -= penalties[known].astype(np.float32)
    for token, bias in sampling.bias:
        if 0 <= token < scores.size:
            scores[token] += np.float32(bias)
    return _clean(scores) if sampling.bias else scores


def _clean(scores: Floats) -> Floats:
    """A copy in which what is not a number is impossible, and what is infinite is very likely."""
    return np.minimum(np.where(np.isnan(scores), np.float32(-np.inf), scores), _LARGEST)


def draw(scores: Floats, sampling: Sampling, seed: int, position: int) -> int | None:
    """A token, or None if all are impossible. `scores` are those of `adjusted`."""
    likeliest = int(scores.argmax())
    if scores[likeliest] == -np.inf:
        return None
    if sampling.temperature < GREEDY or sampling.top_k == 1 or sampling.top_p <= 0:
        return likeliest
    weights = _weights(scores, scores[likeliest], np.float32(1) / np.float32(sampling.temperature))
    tokens = _kept(weights, sampling)
    sums = np.cumsum(weights[tokens], dtype=np.float64)
    place = int(sums.searchsorted(uniform(seed, position) * sums[-1], "right"))
    return int(tokens[min(place, len(tokens) - 1)])


def _weights(scores: Floats, largest: np.float32, factor: np.float32) -> Floats:
    """e^((score - largest) * factor). What is below e^-87 is too small to be told from 0."""
    with np.errstate(over="ignore"):
        exponents = (scores - largest) * factor
    exponents[exponents <= -87] = -np.inf
    weights: Floats = np.exp(exponents)
    return weights


def _kept(weights: Floats, sampling: Sampling) -> npt.NDArray[np.intp]:
    """The tokens that the filters leave, in the order of their numbers."""
    by_rank = 0 < sampling.top_k < weights.size
    by_mass = sampling.top_p < 1
    least = max(np.float32(sampling.min_p), np.float32(0))
    if not by_rank and not by_mass:
        return np.flatnonzero((weights >= least) & (weights > 0))
    tokens = np.flatnonzero(weights >= _LIKELY)
    total = weights.sum(dtype=np.float64)
    top_p = float(np.float32(sampling.top_p))
    found = weights[tokens].sum(dtype=np.float64)
    if len(tokens) < sampling.top_k if by_rank else found < top_p * total:
        tokens = np.flatnonzero(weights > 0)
    # The likeliest first; of equal ones the lowest number.
    ranked = tokens[np.argsort(-weights[tokens], kind="stable")]
    if by_rank:
        ranked = ranked[: sampling.top_k]
        total = weights[ranked].sum(dtype=np.float64)
    if by_mass:
        sums = np.cumsum(weights[ranked], dtype=np.float64)
        ranked = ranked[: int(sums.searchsorted(top_p * total, "left")) + 1]
    return np.sort(ranked[weights[ranked] >= least])


def logprobs(
    scores: Floats, token: int, num_top: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of a token and the likeliest tokens with theirs, before any setting."""
    scores = _clean(scores)
    shifted = scores.astype(np.float64) - float(scores.max())
    values = shifted - np.log(np.exp(shifted).sum())
    if num_top == 0:
        return float(values[token]), ()
    least = np.partition(scores, scores.size - num_top)[scores.size - num_top]
    tokens = np.flatnonzero((scores >= least) & (scores > -np.inf))
    tokens = tokens[np.argsort(-scores[tokens], kind="stable")][:num_top]
    return float(values[token]), tuple((int(t), float(values[t])) for t in tokens)
