"""What the engine asks of whatever computes a model's scores."""

from array import array
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from antiphon.engine.sequence import Sequence

#: Tokens in a block of the cache of keys and values.
BLOCK_SIZE = 16

Scores = npt.NDArray[np.float32]


class Segment(NamedTuple):
    """Consecutive tokens of one sequence that a step computes.

    `tokens` (int32) are at positions [start, start + len(tokens)); everything before `start` is
    computed already, and `sequence.blocks` has room for them all. The scores after the last
    `num_scores` of them are wanted: none in the middle of a prompt, one at its end and for each new
    token, more where the tokens after the first are guesses.
    """

    sequence: Sequence
    start: int
    tokens: npt.NDArray[np.int32]
    num_scores: int


class ModelRunner(Protocol):
    """Computes the scores of the next tokens. Used by the engine's thread alone."""

    #: How it runs the model: `native`, `paged` or `universal`.
    path: str
    #: Why it is run in this way, in one sentence.
    reason: str
    vocab_size: int
    #: Blocks of its cache; 0 where each sequence keeps a state of its own.
    num_blocks: int
    #: Whether tokens at the end of a sequence may be computed again, or others in their place.
    #: Guessing ahead needs it.
    rewinds: bool

    def forward(self, segments: list[Segment]) -> Scores:
        """The scores that the segments want, in their order: [sum of num_scores, vocab_size],
        float32, the caller's until the next call."""
        ...

    def stats(self) -> dict[str, Any]:
        """What it is made of, for `GET /v1/status`."""
        ...

    def close(self) -> None:
        """Let go of the weights."""
        ...


@runtime_checkable
class BlockStore(Protocol):
    """A runner whose blocks can be taken out of its cache and put back, into any other place.
    Used by the engine's thread alone."""

    #: What the bytes of a block depend on, besides the model. Equal layouts understand one another.
    layout: str
    #: Bytes of a block, in all layers.
    block_bytes: int

    def read_blocks(self, blocks: "array[int]") -> npt.NDArray[np.uint8]:
        """A copy of what blocks hold: [blocks, block_bytes]."""
        ...

    def write_blocks(self, blocks: "array[int]", content: npt.NDArray[np.uint8]) -> None:
        """Have blocks hold what was read of others: [blocks, block_bytes]."""
        ...
