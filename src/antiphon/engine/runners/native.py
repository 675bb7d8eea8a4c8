"""Runs models of the Llama shape with the package's own kernels."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.engine.kernels.decoder import Decoder, segments_of
from antiphon.engine.runners.base import Scores, Segment


class NativeRunner:
    """A decoder as a runner. `weights` says in words what it computes with."""

    path = "native"
    rewinds = True

    def __init__(self, decoder: Decoder, *, reason: str, weights: str) -> None:
        self.reason = reason
        self.vocab_size = decoder.vocab_size
        self.num_blocks = decoder.num_blocks
        num_pools, _, pool_bytes = decoder.blocks.shape
        self.block_bytes = num_pools * pool_bytes
        self.layout = f"native float16 {num_pools}x{pool_bytes}"
        self._decoder: Decoder | None = decoder
        self._weights = weights
        self._scores = np.empty((0, decoder.vocab_size), np.float32)

    def forward(self, segments: list[Segment]) -> Scores:
        """See `ModelRunner.forward`."""
        assert self._decoder is not None, "the runner was closed"
        tokens = np.concatenate([segment.tokens for segment in segments])
        rows: list[int] = []
        end = 0
        for segment in segments:
            end += len(segment.tokens)
            rows.extend(range(end - segment.num_scores, end))
        if len(rows) > len(self._scores):
            self._scores = np.empty((len(rows), self.vocab_size), np.float32)
        scores = self._scores[: len(rows)]
        parts = [(len(s.tokens), s.start, s.sequence.blocks) for s in segments]
        self._decoder.forward(tokens, segments_of(parts), np.array(rows, np.int32), scores)
        return scores

    def read_blocks(self, blocks: "array[int]") -> npt.NDArray[np.uint8]:
        """See `BlockStore.read_blocks`."""
        assert self._decoder is not None, "the runner was closed"
        pools = self._decoder.blocks
        content = np.empty((len(blocks), len(pools), pools.shape[2]), np.uint8)
        for number, block in enumerate(blocks):
            content[number] = pools[:, block]
        return content.reshape(len(blocks), -1)

    def write_blocks(self, blocks: "array[int]", content: npt.NDArray[np.uint8]) -> None:
        """See `BlockStore.write_blocks`."""
        assert self._decoder is not None, "the runner was closed"
        pools = self._decoder.blocks
        for block, data in zip(blocks, content, strict=True):
            pools[:, block] = data.reshape(len(pools), -1)

    def stats(self) -> dict[str, Any]:
        """See `ModelRunner.stats`."""
        return {"weights": self._weights}

    def close(self) -> None:
        """See `ModelRunner.close`."""
        self._decoder = None
