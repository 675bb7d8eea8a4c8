"""A whole decoder of the Llama shape, run by one call."""

import ctypes as c
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from antiphon.engine.kernels.structs import BLOCK_SIZE, AkBatch, AkDecoder, AkLayer, AkSegment
from antiphon.engine.kernels.weight import Floats, Weight, address, aligned

Integers = npt.NDArray[np.int32]
Activation = Literal["silu", "gelu_tanh"]

#: The numbers that the C interface gives activations.
ACTIVATIONS: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1}


class KernelError(Exception):
    """A kernel was given arguments that it cannot take."""


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """The weights of a layer. Rows of `q` and `k` are in the order of halves: the pairs that are
    rotated are (i, i + rotary / 2). `window` is how many tokens are seen, 0 for all."""

    q: Weight
    k: Weight
    v: Weight
    o: Weight
    gate: Weight
    up: Weight
    down: Weight
    attention_norm: Floats
    ffn_norm: Floats
    q_norm: Floats | None = None
    k_norm: Floats | None = None
    rotates: bool = True
    window: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DecoderWeights:
    """All weights. `head` may be the same object as `embedding`."""

    layers: Sequence[DecoderLayer]
    embedding: Weight
    head: Weight
    norm: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DecoderShape:
    """The numbers of a decoder. `inv_freq` is float32 [rotary / 2], the angles of position 1."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int
    inv_freq: Floats
    eps: float
    scale: float
    activation: Activation = "silu"
    rope_scale: float = 1.0
    residual_scale: float = 1.0
    embedding_scale: float = 1.0
    logit_scale: float = 1.0


def segments_of(parts: Sequence[tuple[int, int, "array[int]"]]) -> "c.Array[AkSegment]":
    """The segments of a batch from (number of tokens, first position, block table of C ints).

    The tables must stay as they are, neither grown nor dropped, while the segments are used.
    """
    segments = (AkSegment * len(parts))()
    row = 0
    for segment, (n, position, blocks) in zip(segments, parts, strict=True):
        segment.row, segment.n, segment.position = row, n, position
        segment.blocks = blocks.buffer_info()[0]
        row += n
    return segments


class Decoder:
    """A decoder with its cache of keys and values, half precision, of `num_blocks` blocks.

    Raises `KernelError` from `forward` if weights and shape do not fit together.
    """

    def __init__(
        self, library: c.CDLL, shape: DecoderShape, weights: DecoderWeights, num_blocks: int
    ) -> None:
        self._forward = library.ak_forward
        self._weights = weights  # The structures only point to them.
        self._shape = shape
        self.vocab_size = weights.head.rows
        self.num_blocks = num_blocks
        self._layers = (AkLayer * len(weights.layers))(*map(_layer, weights.layers))
        block = shape.kv_heads * shape.head_size * BLOCK_SIZE
        self.cache = aligned(len(weights.layers) * 2 * num_blocks * block * 2, 4096)
        self._struct = AkDecoder(
            len(weights.layers),
            shape.hidden,
            shape.ffn,
            shape.heads,
            shape.kv_heads,
            shape.head_size,
            2 * len(shape.inv_freq),
            ACTIVATIONS[shape.activation],
            shape.eps,
            shape.scale,
            shape.rope_scale,
            shape.residual_scale,
            shape.embedding_scale,
            shape.logit_scale,
            address(shape.inv_freq),
            self._layers,
            weights.embedding.struct,
            weights.head.struct,
            address(weights.norm),
            address(self.cache),
            num_blocks,
        )
        #: The cache again, as the keys and values of each layer: [2 * layers, blocks, bytes].
        self.blocks = self.cache.reshape(2 * len(weights.layers), num_blocks, block * 2)
        self._pointer = c.byref(self._struct)
        self._batch = AkBatch()
        self._batch_pointer = c.byref(self._batch)

    def forward(
        self,
        tokens: Integers,
        segments: Any,
        logit_rows: Integers,
        logits: Floats,
        hidden: Floats | None = None,
    ) -> None:
        """Compute a batch of tokens and fill `logits` [len(logit_rows), vocab_size].

        `segments` are ctypes structures (`segments_of`), together all the tokens in their order.
        `hidden` [len(tokens), hidden_size] is filled with the last layer's output before the final
        norm. For one thread at a time. Raises `KernelError` for a batch that makes no sense, and
        `ValueError` for arrays of the wrong size.
        """
        if logits.shape != (len(logit_rows), self.vocab_size):
            raise ValueError(f"there is room for {logits.shape} scores")
        if hidden is not None and hidden.shape != (len(tokens), self._shape.hidden):
            raise ValueError(f"there is room for {hidden.shape} outputs")
        batch = self._batch
        batch.m = len(tokens)
        batch.tokens = address(tokens)
        batch.segments = c.addressof(segments)
        batch.num_segments = len(segments)
        batch.logit_rows = address(logit_rows)
        batch.num_logits = len(logit_rows)
        code = self._forward(self._pointer, self._batch_pointer, address(logits), address(hidden))
        if code != 0:
            raise KernelError(f"the batch or the decoder is malformed (error {code})")


def _layer(layer: DecoderLayer) -> AkLayer:
    linears = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
    norms = (layer.attention_norm, layer.ffn_norm, layer.q_norm, layer.k_norm)
    return AkLayer(
        *(weight.struct for weight in linears),
        *map(address, norms),
        int(layer.rotates),
        layer.window,
    )
