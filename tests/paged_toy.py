"""A model of arithmetic over a paged cache, for tests of whoever hands out its blocks.

What comes next depends on every token before it, each read back through the block table from where
it was written. A wrong slot, a block that two hold, a prefix of somebody else or a token computed
twice in different places: all change what is said. `said` works the same out without any cache.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.engine.runners.base import BLOCK_SIZE, Scores, Segment
from antiphon.engine.sampler import NoTokenAllowed, SampleRow
from antiphon.engine.sequence import SampledToken

_ODD = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
#: Mostly the toy says again what it said so many tokens ago, so that guesses often come true.
PERIOD = 7


def _mixed(value: int) -> int:
    value = (value ^ (value >> 31)) * 0xBF58476D1CE4E5B9 & _MASK
    return (value ^ (value >> 29)) * 0x94D049BB133111EB & _MASK


def _value(before: int, token: int, position: int) -> int:
    """What is kept for a token: it depends on the one before, and so on all before."""
    return _mixed((before * 31 + token * _ODD + position) & _MASK)


def _next(values: npt.NDArray[np.uint64], tokens: npt.NDArray[np.int64], vocab_size: int) -> int:
    """The likeliest token after these. `tokens` and `values`: [n], what is kept of each."""
    weights = np.arange(1, 2 * len(values) + 1, 2, dtype=np.uint64)
    seen = _mixed(int((values * weights).sum(dtype=np.uint64)))
    if len(tokens) >= PERIOD and seen % 4:
        return int(tokens[len(tokens) - PERIOD])
    return seen // 4 % vocab_size


def said(prompt: list[int], number: int, vocab_size: int = 64) -> list[int]:
    """What the toy says after a prompt when the likeliest token is taken each time."""
    tokens, values, before = list(prompt), [], 0
    while True:
        for position in range(len(values), len(tokens)):
            before = _value(before, tokens[position], position)
            values.append(before)
        if len(tokens) == len(prompt) + number:
            return tokens[len(prompt) :]
        kept = np.array(values, np.uint64)
        tokens.append(_next(kept, np.array(tokens, np.int64), vocab_size))


class ToyRunner:
    """The toy as a model runner. `before_step` is called with the segments of each step, on the
    engine's thread, and may raise."""

    path = "paged"
    reason = "It is a toy."
    rewinds = True

    def __init__(
        self,
        num_blocks: int = 64,
        *,
        vocab_size: int = 64,
        before_step: Callable[[list[Segment]], None] = lambda segments: None,
    ) -> None:
        self.num_blocks = num_blocks
        self.vocab_size = vocab_size
        self.before_step = before_step
        #: For each step: of each sequence where it began, how many tokens and how many scores.
        self.steps: list[list[tuple[int, int, int]]] = []
        self.closed = 0
        self._values = np.zeros(num_blocks * BLOCK_SIZE, np.uint64)
        self._tokens = np.zeros(num_blocks * BLOCK_SIZE, np.int64)

    def forward(self, segments: list[Segment]) -> Scores:
        self.steps.append([(s.start, len(s.tokens), s.num_scores) for s in segments])
        assert segments and all(len(segment.tokens) for segment in segments)
        self.before_step(segments)
        held = [block for segment in segments for block in set(self._written(segment))]
        assert len(held) == len(set(held)), "two sequences write into one block"
        rows = [row for segment in segments for row in self._rows(segment)]
        return np.array(rows, np.float32).reshape(len(rows), self.vocab_size)

    def _written(self, segment: Segment) -> list[int]:
        end = segment.start + len(segment.tokens)
        numbers = range(segment.start // BLOCK_SIZE, -(-end // BLOCK_SIZE))
        return [segment.sequence.blocks[number] for number in numbers]

    def _rows(self, segment: Segment) -> list[npt.NDArray[np.float32]]:
        blocks = np.array(segment.sequence.blocks, np.int64)
        slots = (blocks[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE)).reshape(-1)
        rows = []
        for number, token in enumerate(segment.tokens.tolist()):
            position = segment.start + number
            before = int(self._values[slots[position - 1]]) if position else 0
            self._values[slots[position]] = _value(before, token, position)
            self._tokens[slots[position]] = token
            if number >= len(segment.tokens) - segment.num_scores:
                seen = slots[: position + 1]
                likeliest = _next(self._values[seen], self._tokens[seen], self.vocab_size)
                row = np.zeros(self.vocab_size, np.float32)
                row[likeliest] = 2
                rows.append(row)
        return rows

    def stats(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.closed += 1


class ToySampler:
    """Takes the likeliest token, or draws by seed and by how many were made before."""

    def sample(self, scores: Scores, rows: list[SampleRow]) -> list[SampledToken]:
        assert len(scores) == len(rows)
        return [self._drawn(row, scores[number]) for number, row in enumerate(rows)]

    def _drawn(self, row: SampleRow, scores: npt.NDArray[np.float32]) -> SampledToken:
        sampling, allowed = row.sequence.request.sampling, np.isfinite(scores)
        if row.mask is not None:
            bits = np.unpackbits(row.mask.view(np.uint8), bitorder="little")
            allowed &= bits[: len(scores)].astype(bool)
        if not allowed.any():
            raise NoTokenAllowed("there is no token to draw")
        scores = np.where(allowed, scores, -np.inf)
        if sampling.temperature == 0:
            return SampledToken(int(scores.argmax()))
        weights = np.exp(scores / sampling.temperature)
        dice = np.random.default_rng([sampling.seed or 0, row.sequence.num_generated])
        return SampledToken(int(dice.choice(len(scores), p=weights / weights.sum())))
