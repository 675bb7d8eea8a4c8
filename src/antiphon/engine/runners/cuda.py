"""Attention and decoding on NVIDIA's processors. Written to its libraries' documents and tested
against stand-ins for them; not measured on the hardware yet."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import structlog
import torch

from antiphon.engine.runners.attention import Batch, GatheredAttention, LayerCache, Reach
from antiphon.engine.runners.base import BLOCK_SIZE, Segment
from antiphon.engine.sequence import Sequence

_logger = structlog.get_logger("antiphon.engine")

#: Batches that are recorded. Others are filled up to the next larger one.
GRAPH_SIZES = (1, 2, 4, 8, 16, 32)


def flash_function() -> Callable[..., Any] | None:
    """FlashAttention 3's function for caches in pages, if its package is there.

    FlashAttention 2 wants pages of 256 tokens, and so is of no use here.
    """
    try:
        package: Any = import_module("flash_attn_interface")
    except ImportError:
        return None
    function: Callable[..., Any] = package.flash_attn_with_kvcache
    return function


@dataclass(frozen=True, slots=True)
class Tables:
    """What FlashAttention is told of a batch of S segments, in the order of its tokens (int32).

    `blocks` [S, B] are the block tables, `lengths` [S] the tokens so far and with those of the
    batch, and `starts` [S + 1] where in the batch each segment's tokens begin. No segment has more
    than `max_tokens` of them.
    """

    blocks: torch.Tensor
    lengths: torch.Tensor
    starts: torch.Tensor
    max_tokens: int

    @classmethod
    def of(cls, batch: Batch, num_blocks: int | None = None) -> "Tables":
        """The tables of a batch; those of its blocks `num_blocks` wide, None for the least."""
        sizes = np.array([len(segment.tokens) for segment in batch.segments])
        lengths = np.array([segment.start for segment in batch.segments]) + sizes
        width = num_blocks or int(lengths.max() - 1) // BLOCK_SIZE + 1
        blocks = np.zeros((len(sizes), width), np.int32)
        for row, segment, length in zip(blocks, batch.segments, lengths, strict=True):
            used = segment.sequence.blocks[: (int(length) - 1) // BLOCK_SIZE + 1]
            row[: len(used)] = used
        device = batch.tokens.device
        return cls(
            torch.from_numpy(blocks).to(device),
            torch.from_numpy(lengths.astype(np.int32)).to(device),
            torch.from_numpy(np.cumsum([0, *sizes], dtype=np.int32)).to(device),
            int(sizes.max()),
        )


class FlashAttention:
    """FlashAttention on the cache as it lies; what that cannot do is done by gathering."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._gathered = GatheredAttention()
        self._tables: tuple[Batch, Tables] | None = None

    def prepare(self, batch: Batch, tables: Tables) -> None:
        """Use these tables for a batch."""
        self._tables = (batch, tables)

    def attend(
        self,
        query: torch.Tensor,
        cache: LayerCache,
        batch: Batch,
        reach: Reach,
        *,
        scaling: float,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `Attention.attend`."""
        if sinks is not None or cache.keys.shape != cache.values.shape:
            return self._gathered.attend(
                query, cache, batch, reach, scaling=scaling, softcap=softcap, sinks=sinks
            )
        if self._tables is None or self._tables[0] is not batch:
            self.prepare(batch, Tables.of(batch))
        assert self._tables is not None
        tables = self._tables[1]
        seen: torch.Tensor = self._function(
            query,
            # Pages are [tokens, heads, size] to it; only the last axis must be in one piece.
            cache.keys.transpose(1, 2),
            cache.values.transpose(1, 2),
            cache_seqlens=tables.lengths,
            page_table=tables.blocks,
            cu_seqlens_q=tables.starts,
            max_seqlen_q=tables.max_tokens,
            softmax_scale=scaling,
            causal=True,
            # Tokens before, and tokens after, beside the token itself.
            window_size=(-1, -1) if reach.window is None else (reach.window - 1, 0),
            attention_chunk=reach.chunk or 0,
            softcap=softcap or 0.0,
        )
        return seen


@dataclass(slots=True)
class _Recorded:
    """A graph, and the tensors that it reads and writes."""

    graph: Any
    batch: Batch
    tables: Tables
    logits: torch.Tensor


class DecodeGraphs:
    """Replays recorded passes for steps in which every sequence computes one token.

    `run` is a pass over a batch that gives its logits, with `attention` in it, which must not have
    to gather anything. Batches are filled
    up with a sequence that lies in `scratch_block`, which belongs to nobody. Tables of blocks are
    `max_blocks` wide. A model that cannot be recorded is run as it is.
    """

    def __init__(
        self,
        run: Callable[[Batch], torch.Tensor],
        attention: FlashAttention,
        like: torch.Tensor,
        *,
        scratch_block: int,
        max_blocks: int,
    ) -> None:
        self._run = run
        self._attention = attention
        self._like = like
        self._scratch = array("i", [scratch_block])
        self._max_blocks = max_blocks
        self._recorded: dict[int, _Recorded] = {}
        self._broken = False

    def run(self, segments: list[Segment]) -> torch.Tensor | None:
        """The logits of a step, [S, vocabulary]; None if it is not one for graphs."""
        fits = all(len(s.tokens) == 1 and s.num_scores == 1 for s in segments)
        if self._broken or not fits or len(segments) > GRAPH_SIZES[-1]:
            return None
        size = next(size for size in GRAPH_SIZES if size >= len(segments))
        fresh = Batch([*segments, *self._fillers(segments[0], size - len(segments))], self._like)
        tables = Tables.of(fresh, self._max_blocks)
        if size not in self._recorded:
            try:
                self._recorded[size] = self._record(fresh, tables)
            except RuntimeError as error:
                self._broken = True
                _logger.warning("decoding is not recorded", reason=str(error))
                return None
        recorded = self._recorded[size]
        for name in ("tokens", "positions", "slot_blocks", "slot_offsets", "wanted"):
            getattr(recorded.batch, name).copy_(getattr(fresh, name))
        recorded.tables.blocks.copy_(tables.blocks)
        recorded.tables.lengths.copy_(tables.lengths)
        recorded.graph.replay()
        return recorded.logits[: len(segments)]

    def _record(self, batch: Batch, tables: Tables) -> _Recorded:
        # Work outside of the recording first, as whatever is made on first use must not be in it.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._attention.prepare(batch, tables)
                self._run(batch)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._run(batch)
        return _Recorded(graph, batch, tables, logits)

    def _fillers(self, like: Segment, count: int) -> list[Segment]:
        """Segments of one token at the start of a sequence of nobody's."""
        if not count:
            return []
        sequence = Sequence(like.sequence.request, like.sequence.stream)
        sequence.blocks = self._scratch
        return [Segment(sequence, 0, np.zeros(1, np.int32), 1)] * count
