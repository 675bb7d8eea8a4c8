"""Attention over a paged cache in plain torch: what a batch looks up, and how it is summed up."""

import math
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from antiphon.engine.runners.base import BLOCK_SIZE, Segment

Ints = npt.NDArray[np.int64]


class Reach(NamedTuple):
    """Which tokens a token looks at, besides itself: all earlier ones; the last of them, `window`
    with itself; or those of its own chunk, where the text is cut into chunks of `chunk` tokens."""

    window: int | None = None
    chunk: int | None = None

    def lowest(self, positions: Ints) -> Ints:
        """The first position that each of `positions` looks at."""
        if self.window is not None:
            return np.maximum(positions - self.window + 1, 0)
        if self.chunk is not None:
            return positions // self.chunk * self.chunk
        return np.zeros_like(positions)


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """The shape of one call of the attention function. Sizes are those of a head. Sinks are scores
    of nothing that take part in the softmax."""

    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    reach: Reach
    has_sinks: bool = False

    @property
    def elements_per_block(self) -> int:
        """Numbers that a block of the cache holds for this layer."""
        return BLOCK_SIZE * self.num_kv_heads * (self.key_size + self.value_size)


class LayerCache:
    """Keys and values of one layer: [blocks, heads, tokens of a block, size] each."""

    def __init__(
        self, layer: AttentionLayer, num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (num_blocks, layer.num_kv_heads, BLOCK_SIZE)
        # Zeros, since what is masked is still multiplied: by 0, which keeps a NaN.
        self.keys = torch.zeros(*shape, layer.key_size, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, layer.value_size, dtype=dtype, device=device)

    def write(self, batch: "Batch", key: torch.Tensor, value: torch.Tensor) -> None:
        """Keep the keys and values of a batch: [T, heads, size] each."""
        # A sequence whose numbers overflow must not reach the next owner of its blocks (see above).
        self.keys[batch.slot_blocks, :, batch.slot_offsets] = torch.nan_to_num(key)
        self.values[batch.slot_blocks, :, batch.slot_offsets] = torch.nan_to_num(value)


class View(NamedTuple):
    """What a group of segments looks up in a layer of some reach.

    `rows` says where in a cache, seen as [blocks * heads, numbers of a head in a block], the blocks
    are: [S * heads * B]. Taking rows of a matrix is many times faster than taking blocks as such,
    and leaves those of a head side by side. `mask` is added to the scores of the keys in them: 0 or
    minus infinity, [S, 1, heads of a group * n, B * block size].
    """

    rows: torch.Tensor
    mask: torch.Tensor


class Group:
    """Segments of the same number of tokens n and of similar contexts, computed at once.

    Their tokens are `[first, first + S * n)` of the batch.
    """

    def __init__(self, segments: Rows[Segment], first: int, like: torch.Tensor) -> None:
        self.num_segments = len(segments)
        self.num_tokens = len(segments[0].tokens)
        self.rows = slice(first, first + self.num_segments * self.num_tokens)
        self._segments = segments
        self._like = like
        self._views: dict[tuple[Reach, int, int], View] = {}

    def view(self, reach: Reach, num_kv_heads: int, num_grouped: int) -> View:
        """What to look up, for `num_grouped` query heads to each head of keys and values."""
        kind = (reach, num_kv_heads, num_grouped)
        if kind not in self._views:
            self._views[kind] = self._look_up(reach, num_kv_heads, num_grouped)
        return self._views[kind]

    def _look_up(self, reach: Reach, num_kv_heads: int, num_grouped: int) -> View:
        starts = np.array([segment.start for segment in self._segments], np.int64)
        first_blocks = reach.lowest(starts) // BLOCK_SIZE
        end_blocks = (starts + self.num_tokens - 1) // BLOCK_SIZE + 1
        table = np.zeros((self.num_segments, int((end_blocks - first_blocks).max())), np.int64)
        for row, segment, first, end in zip(
            table, self._segments, first_blocks, end_blocks, strict=True
        ):
            row[: end - first] = segment.sequence.blocks[first:end]
        keys = first_blocks[:, None] * BLOCK_SIZE + np.arange(table.shape[1] * BLOCK_SIZE)
        queries = starts[:, None] + np.arange(self.num_tokens)
        # Rows that are padded are so with positions after all of theirs.
        seen = (keys[:, None] <= queries[:, :, None]) & (
            keys[:, None] >= reach.lowest(queries)[:, :, None]
        )
        mask = torch.zeros(seen.shape, dtype=self._like.dtype)
        mask.masked_fill_(torch.from_numpy(~seen), -math.inf)
        rows = table[:, None] * num_kv_heads + np.arange(num_kv_heads)[:, None]
        return View(
            torch.from_numpy(rows.ravel()).to(self._like.device),
            mask[:, None].repeat(1, 1, num_grouped, 1).to(self._like.device),
        )


class Batch:
    """The tokens of several segments, packed: segments that can be computed at once lie together.

    `like` is a tensor of the model's: its type and device are taken.
    """

    def __init__(self, segments: Rows[Segment], like: torch.Tensor) -> None:
        order = sorted(range(len(segments)), key=lambda number: _kind(segments[number]))
        packed = [segments[number] for number in order]
        positions = np.concatenate([np.arange(s.start, s.start + len(s.tokens)) for s in packed])
        blocks = np.concatenate([_blocks_of(s) for s in packed])
        tokens = np.concatenate([s.tokens for s in packed]).astype(np.int64)
        ends = np.cumsum([len(s.tokens) for s in packed])
        wanted = [np.empty(0, np.int64)] * len(segments)
        for number, segment, end in zip(order, packed, ends, strict=True):
            wanted[number] = np.arange(end - segment.num_scores, end)
        device = like.device
        self.segments = packed
        self.tokens = torch.from_numpy(tokens)[None].to(device)
        self.positions = torch.from_numpy(positions)[None].to(device)
        self.slot_blocks = torch.from_numpy(blocks).to(device)
        self.slot_offsets = self.positions[0] % BLOCK_SIZE
        #: Which rows of the batch scores are wanted of, in the order of the segments given.
        self.wanted = torch.from_numpy(np.concatenate(wanted)).to(device)
        self.groups: list[Group] = []
        first = 0
        for _, members in groupby(packed, _kind):
            self.groups.append(Group(list(members), first, like))
            first = self.groups[-1].rows.stop


def _kind(segment: Segment) -> tuple[int, int]:
    """Segments of one kind are computed at once. Contexts in one batch are padded to the longest,
    so they may differ by a factor of 2 at most."""
    num_tokens = len(segment.tokens)
    return num_tokens, ((segment.start + num_tokens - 1) // BLOCK_SIZE + 1).bit_length()


def _blocks_of(segment: Segment) -> Ints:
    """The block of each token."""
    positions = np.arange(segment.start, segment.start + len(segment.tokens))
    return np.array(segment.sequence.blocks, np.int64)[positions // BLOCK_SIZE]


class Attention(Protocol):
    """A way to compute attention over the cache."""

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
        """What the tokens of a batch, whose own keys and values are written, see.

        `query`: [T, query heads, key size]. `softcap` bounds the scores; `sinks` [query heads] are
        scores of nothing that take part in the softmax. Returns [T, query heads, value size].
        """
        ...


class GatheredAttention:
    """Gathers the keys and values that a group needs and attends to them in one piece.

    Used by one thread at a time: what was gathered lies in the same memory each time, as fresh
    memory costs more than what is done with it.
    """

    def __init__(self) -> None:
        self._scratch: dict[str, torch.Tensor] = {}

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
        num_kv_heads = cache.keys.shape[1]
        num_grouped = query.shape[1] // num_kv_heads
        parts = []
        for group in batch.groups:
            view = group.view(reach, num_kv_heads, num_grouped)
            shape = (group.num_segments, group.num_tokens, num_kv_heads, num_grouped)
            # Query heads of one head of keys lie beside each other as if they were tokens, so that
            # keys need not be repeated.
            grouped = query[group.rows].view(*shape, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)
            seen = weigh(
                grouped,
                self._gathered("keys", cache.keys, view.rows, group.num_segments),
                self._gathered("values", cache.values, view.rows, group.num_segments),
                view.mask,
                scaling=scaling,
                softcap=softcap,
                sinks=_spread(sinks, num_kv_heads, group.num_tokens),
            )
            seen = seen.unflatten(2, (num_grouped, group.num_tokens)).permute(0, 3, 1, 2, 4)
            parts.append(seen.reshape(-1, num_kv_heads * num_grouped, seen.shape[-1]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _gathered(
        self, name: str, pool: torch.Tensor, rows: torch.Tensor, num_segments: int
    ) -> torch.Tensor:
        """The blocks of a view: [S, heads, tokens, size]."""
        _, num_heads, num_tokens, size = pool.shape
        row_size = num_tokens * size
        scratch = self._scratch.get(name)
        if scratch is None or scratch.numel() < len(rows) * row_size:
            scratch = self._scratch[name] = pool.new_empty(len(rows) * row_size)
        blocks = scratch[: len(rows) * row_size].view(len(rows), row_size)
        torch.index_select(pool.view(-1, row_size), 0, rows, out=blocks)
        return blocks.view(num_segments, num_heads, -1, size)


def _spread(sinks: torch.Tensor | None, num_kv_heads: int, num_tokens: int) -> torch.Tensor | None:
    """Sinks of grouped heads, for each of their tokens: [1, heads, heads of a group * n, 1]."""
    if sinks is None:
        return None
    return sinks.view(num_kv_heads, -1).repeat_interleave(num_tokens, 1)[None, :, :, None]


def weigh(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    scaling: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention itself: [S, heads, tokens, size] each, with a mask that is added to the scores."""
    if softcap is None and sinks is None:
        attended: torch.Tensor = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scaling
        )
        return attended
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype).expand(*scores.shape[:3], 1)], 3)
    weights = scores.softmax(3, dtype=torch.float32).to(value.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    seen: torch.Tensor = weights @ value
    return seen


#: What transformers hands to attention functions beside what is acted on: of no influence there
#: (the windows come with the masks, which are looked at instead).
_OF_NO_INFLUENCE = {"sliding_window", "position_ids", "position_embeddings", "use_cache"}


def refuse_unknown(options: dict[str, Any]) -> None:
    """Raise `ValueError` for options of an attention function that would change its result.

    None, False and 0 stand for options that are not used.
    """
    for name, value in options.items():
        unused = value is None or (isinstance(value, (bool, int, float)) and not value)
        if not unused and name not in _OF_NO_INFLUENCE:
            raise ValueError(f"its attention is given {name!r}, which paged attention lacks")
