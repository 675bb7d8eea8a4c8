"""How ggml stores a tensor's values: blocks of quantised numbers, and how to read them.

Formulas are those of ggml's `ggml-quants.c` and `ggml-common.h`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorType:
    """How a tensor's values are stored: `block` values in `size` bytes, and how to read them.

    `number` is ggml's. `read` takes rows of bytes, one for each block, and returns rows of float32.
    """

    number: int
    name: str
    block: int
    size: int
    read: Callable[[Array], Array]


def _halves(blocks: Array, start: int) -> Array:
    """The float16 at byte `start` of each block, as a float32 column."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def _nibbles(blocks: Array, start: int) -> Array:
    """32 4-bit values of each block: the low halves of 16 bytes, then the high ones."""
    packed = blocks[:, start : start + 16]
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _fifth_bits(blocks: Array, start: int) -> Array:
    """32 values of one bit each, worth 16."""
    return np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") * np.float32(16)


def _read_bf16(blocks: Array) -> Array:
    return (blocks.copy().view("<u2").astype(np.uint32) << 16).view(np.float32)


def _scales_and_minima(blocks: Array, start: int) -> tuple[Array, Array]:
    """Eight scales and eight minima of six bits each, in twelve bytes."""
    packed = blocks[:, start : start + 12]
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (rest >> 4) | (second >> 6 << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _parted(blocks: Array, start: int) -> Array:
    """128 bytes as [4][2][32]: of each 32 bytes the low halves, then the high ones."""
    packed = blocks[:, start : start + 128].reshape(-1, 4, 1, 32)
    return np.concatenate([packed & 15, packed >> 4], axis=2)


def _read_q4_k(blocks: Array) -> Array:
    scales, minima = _scales_and_minima(blocks, 4)
    scales, minima = _halves(blocks, 0) * scales, _halves(blocks, 2) * minima
    values = _parted(blocks, 16).reshape(-1, 8, 32).astype(np.float32)
    read: Array = scales[:, :, None] * values - minima[:, :, None]
    return read.reshape(len(blocks), 256)


def _read_q5_k(blocks: Array) -> Array:
    scales, minima = _scales_and_minima(blocks, 4)
    scales, minima = _halves(blocks, 0) * scales, _halves(blocks, 2) * minima
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    values = _parted(blocks, 48).reshape(-1, 8, 32) + (high << 4)
    values = values.astype(np.float32)
    read: Array = scales[:, :, None] * values - minima[:, :, None]
    return read.reshape(len(blocks), 256)


def _read_q6_k(blocks: Array) -> Array:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    high = high >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None] & 3
    values = (low | high << 4).astype(np.float32) - 32
    scales = _halves(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    read: Array = scales[:, :, None] * values.reshape(-1, 16, 16)
    return read.reshape(len(blocks), 256)


def _read_q2_k(blocks: Array) -> Array:
    packed = blocks[:, 16:80].reshape(-1, 2, 1, 32)
    values = packed >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None] & 3
    scales = _halves(blocks, 80) * (blocks[:, :16] & 15)
    minima = _halves(blocks, 82) * (blocks[:, :16] >> 4)
    read: Array = scales[:, :, None] * values.reshape(-1, 16, 16) - minima[:, :, None]
    return read.reshape(len(blocks), 256)


def _read_q3_k(blocks: Array) -> Array:
    packed = blocks[:, 32:96].reshape(-1, 2, 1, 32)
    low = packed >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None] & 3
    high = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    values = low.reshape(-1, 8, 32).astype(np.float32) - 4 * (1 - high.astype(np.float32))
    nibbles = np.concatenate([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], axis=1)
    upper = blocks[:, 104:108].reshape(-1, 1, 4)
    upper = upper >> np.array([0, 2, 4, 6], np.uint8)[None, :, None] & 3
    scales = (nibbles | upper.reshape(-1, 16) << 4).astype(np.float32) - 32
    scales = _halves(blocks, 108) * scales
    read: Array = scales[:, :, None] * values.reshape(-1, 16, 16)
    return read.reshape(len(blocks), 256)


#: The values that the sixteen codes of IQ4_NL stand for.
_CODES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def _read_iq4_nl(blocks: Array) -> Array:
    return _halves(blocks, 0) * _CODES[_nibbles(blocks, 2).astype(np.uint8)]


_TYPES = (
    TensorType(0, "F32", 1, 4, lambda b: b.copy().view("<f4")),
    TensorType(1, "F16", 1, 2, lambda b: b.copy().view("<f2").astype(np.float32)),
    TensorType(2, "Q4_0", 32, 18, lambda b: _halves(b, 0) * (_nibbles(b, 2) - 8)),
    TensorType(3, "Q4_1", 32, 20, lambda b: _halves(b, 0) * _nibbles(b, 4) + _halves(b, 2)),
    TensorType(
        6, "Q5_0", 32, 22, lambda b: _halves(b, 0) * (_nibbles(b, 6) + _fifth_bits(b, 2) - 16)
    ),
    TensorType(
        7,
        "Q5_1",
        32,
        24,
        lambda b: _halves(b, 0) * (_nibbles(b, 8) + _fifth_bits(b, 4)) + _halves(b, 2),
    ),
    TensorType(
        8, "Q8_0", 32, 34, lambda b: _halves(b, 0) * b[:, 2:].view(np.int8).astype(np.float32)
    ),
    TensorType(10, "Q2_K", 256, 84, _read_q2_k),
    TensorType(11, "Q3_K", 256, 110, _read_q3_k),
    TensorType(12, "Q4_K", 256, 144, _read_q4_k),
    TensorType(13, "Q5_K", 256, 176, _read_q5_k),
    TensorType(14, "Q6_K", 256, 210, _read_q6_k),
    TensorType(20, "IQ4_NL", 32, 18, _read_iq4_nl),
    TensorType(30, "BF16", 1, 2, _read_bf16),
)

#: By ggml's number.
TENSOR_TYPES: Mapping[int, TensorType] = {kind.number: kind for kind in _TYPES}
TYPES_BY_NAME: Mapping[str, TensorType] = {kind.name: kind for kind in _TYPES}
