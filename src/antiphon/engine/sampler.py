"""Draws the next tokens from a model's scores."""

import ctypes as c
import secrets
from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from antiphon.engine import draws
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import AkSampling
from antiphon.engine.runners.base import Scores
from antiphon.engine.sequence import SampledToken, Sequence

Mask = npt.NDArray[np.uint32]


class NoTokenAllowed(Exception):
    """A sequence's mask and biases leave no token that is possible."""

    def __init__(self, sequence: Sequence) -> None:
        super().__init__("no token is allowed to come next")
        self.sequence = sequence


class SampleRow(NamedTuple):
    """Whose next token a row of scores is to give, and the tokens that may be drawn: a bit each, as
    `Grammar.fill_mask` sets them; None for all."""

    sequence: Sequence
    mask: Mask | None = None


class Sampler:
    """Draws a token from each row of a step's scores.

    A token depends on the row, the request and how many tokens were made before, and on nothing
    else: not on the rows beside it, nor on whether the kernels draw it or numpy (but for rounding).
    """

    def __init__(self, vocab_size: int, kernels: Kernels | None) -> None:
        self._vocab_size = vocab_size
        self._kernels = kernels
        self._outputs = _Outputs(0, 0)

    def sample(self, scores: Scores, rows: list[SampleRow]) -> list[SampledToken]:
        """The next token of each row's sequence. `scores` [len(rows), vocab_size] are not changed.

        Raises `NoTokenAllowed` for the first row that has none. Nothing has changed then, and the
        other rows may be drawn again.
        """
        if scores.shape != (len(rows), self._vocab_size):
            raise ValueError(f"scores of {len(rows)} rows of {self._vocab_size} are needed")
        if scores.dtype != np.float32 or not scores.flags.c_contiguous:
            raise ValueError("scores must be contiguous and float32")
        if self._kernels is None:
            return [self._sample_row(row, scores[i]) for i, row in enumerate(rows)]
        return self._sample_rows(self._kernels, scores, rows)

    def _state(self, row: SampleRow) -> "_State":
        state = row.sequence.draws
        if not isinstance(state, _State):
            state = row.sequence.draws = _State(row.sequence, self._vocab_size)
        if row.mask is not None and row.mask.size * 32 < self._vocab_size:
            raise ValueError(f"a mask of {row.mask.size} words is too short")
        if state.counts is not None:
            state.counts.count(row.sequence)
        return state

    # --- with the kernels ---

    def _sample_rows(
        self, kernels: Kernels, scores: Scores, rows: list[SampleRow]
    ) -> list[SampledToken]:
        out = self._outputs
        n = len(rows)
        if n > out.capacity:
            out = self._outputs = _Outputs(2 * n, out.max_top)
        max_top = -1
        for i, row in enumerate(rows):
            state = self._state(row)
            settings = state.settings
            settings.position = row.sequence.num_generated
            settings.allowed = None if row.mask is None else row.mask.ctypes.data
            if state.counts is not None:
                state.counts.point(settings)
            out.settings[i] = settings
            max_top = max(max_top, state.num_top)
        if max_top > out.max_top:
            out = self._outputs = out.wider(max_top)
        code = kernels.library.ak_sample_rows(
            scores.ctypes.data, self._vocab_size, n, *out.pointers, out.max_top
        )
        if code != 0:
            raise ValueError(f"the kernels cannot draw from these rows (error {code})")
        tokens = out.tokens[:n].tolist()
        if -1 in tokens:
            raise NoTokenAllowed(rows[tokens.index(-1)].sequence)
        if max_top < 0:
            return [SampledToken(token) for token in tokens]
        return [out.sampled(i, token) for i, token in enumerate(tokens)]

    # --- without ---

    def _sample_row(self, row: SampleRow, scores: Scores) -> SampledToken:
        state = self._state(row)
        sampling = row.sequence.request.sampling
        counts = None if state.counts is None else state.counts.arrays()
        adjusted = draws.adjusted(scores, sampling, counts, row.mask)
        token = draws.draw(adjusted, sampling, state.seed, row.sequence.num_generated)
        if token is None:
            raise NoTokenAllowed(row.sequence)
        if state.num_top < 0:
            return SampledToken(token)
        logprob, top = draws.logprobs(scores, token, state.num_top)
        return SampledToken(token, logprob, top)


class _Counts:
    """How often a sequence has made each token."""

    def __init__(self) -> None:
        self._tokens = array("i")
        self._times = array("i")
        self._places: dict[int, int] = {}
        self._counted = 0

    def count(self, sequence: Sequence) -> None:
        """Count the tokens that were made since the last time."""
        for token in sequence.tokens[sequence.num_prompt + self._counted :]:
            place = self._places.setdefault(token, len(self._tokens))
            if place == len(self._tokens):
                self._tokens.append(token)
                self._times.append(0)
            self._times[place] += 1
        self._counted = sequence.num_generated

    def point(self, settings: AkSampling) -> None:
        settings.num_counted = len(self._tokens)
        settings.counted = self._tokens.buffer_info()[0]
        settings.counts = self._times.buffer_info()[0]

    def arrays(self) -> draws.Counts:
        return np.array(self._tokens, np.int32), np.array(self._times, np.int32)


class _State:
    """What the draws of one sequence go by."""

    def __init__(self, sequence: Sequence, vocab_size: int) -> None:
        sampling, num_top = sequence.request.sampling, sequence.request.top_logprobs
        self.seed = secrets.randbits(64) if sampling.seed is None else sampling.seed % 2**64
        self.num_top = -1 if num_top is None else min(num_top, vocab_size)
        penalised = sampling.presence_penalty != 0 or sampling.frequency_penalty != 0
        self.counts = _Counts() if penalised else None
        bias = [pair for pair in sampling.bias if 0 <= pair[0] < vocab_size]
        self._biased = array("i", (token for token, _ in bias))
        self._biases = array("f", (value for _, value in bias))
        self.settings = AkSampling(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            top_k=min(sampling.top_k, vocab_size),
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            num_biased=len(self._biased),
            biased=self._biased.buffer_info()[0],
            biases=self._biases.buffer_info()[0],
            seed=self.seed,
            num_top=self.num_top,
        )


class _Outputs:
    """Arguments of a call for up to `capacity` rows with `max_top` likeliest tokens each, and where
    it puts what it makes of them. They serve all steps."""

    def __init__(self, capacity: int, max_top: int) -> None:
        self.capacity = capacity
        self.max_top = max_top
        self.settings = (AkSampling * capacity)()
        self.tokens = np.empty(capacity, np.int32)
        self._logprobs = np.empty(capacity, np.float32)
        self._top_tokens = np.empty((capacity, max_top), np.int32)
        self._top_logprobs = np.empty((capacity, max_top), np.float32)
        self.pointers = (
            c.addressof(self.settings),
            self.tokens.ctypes.data,
            self._logprobs.ctypes.data,
            self._top_tokens.ctypes.data,
            self._top_logprobs.ctypes.data,
        )

    def wider(self, max_top: int) -> "_Outputs":
        """The same settings with room for more likeliest tokens."""
        other = _Outputs(self.capacity, max_top)
        c.memmove(other.settings, self.settings, c.sizeof(self.settings))
        return other

    def sampled(self, row: int, token: int) -> SampledToken:
        num_top = self.settings[row].num_top
        if num_top < 0:
            return SampledToken(token)
        tokens = self._top_tokens[row, :num_top].tolist()
        logprobs = self._top_logprobs[row, :num_top].tolist()
        # Token -1 stands where fewer are possible.
        top = tuple(pair for pair in zip(tokens, logprobs, strict=True) if pair[0] >= 0)
        return SampledToken(token, float(self._logprobs[row]), top)
