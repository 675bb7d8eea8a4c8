"""ggml's blocks read value by value, as its `ggml-quants.c` does, and random ones to read."""

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

#: A block's bytes to its values.
Reader = Callable[[bytes], list[float]]


class Format(NamedTuple):
    """Values of a block, its bytes, where in it half-precision scales are, and how it is read."""

    block: int
    size: int
    scales: tuple[int, ...]
    read: Reader


def half(data: bytes, at: int = 0) -> float:
    value: float = struct.unpack_from("<e", data, at)[0]
    return value


def _f32(data: bytes) -> list[float]:
    return [struct.unpack("<f", data)[0]]


def _f16(data: bytes) -> list[float]:
    return [half(data)]


def _bf16(data: bytes) -> list[float]:
    return _f32(b"\0\0" + data)


def _nibbles(packed: bytes) -> list[int]:
    return [byte & 15 for byte in packed] + [byte >> 4 for byte in packed]


def _q4_0(data: bytes) -> list[float]:
    return [half(data) * (nibble - 8) for nibble in _nibbles(data[2:])]


def _q4_1(data: bytes) -> list[float]:
    return [half(data) * nibble + half(data, 2) for nibble in _nibbles(data[4:])]


def _fives(high: bytes, packed: bytes) -> list[int]:
    bits = int.from_bytes(high, "little")
    return [nibble | (bits >> n & 1) << 4 for n, nibble in enumerate(_nibbles(packed))]


def _q5_0(data: bytes) -> list[float]:
    return [half(data) * (five - 16) for five in _fives(data[2:6], data[6:])]


def _q5_1(data: bytes) -> list[float]:
    return [half(data) * five + half(data, 2) for five in _fives(data[4:8], data[8:])]


def _q8_0(data: bytes) -> list[float]:
    return [half(data) * value for value in struct.unpack("<32b", data[2:])]


def _q2_k(data: bytes) -> list[float]:
    scales, packed = data[:16], data[16:80]
    d, least = half(data, 80), half(data, 82)
    values = []
    for run in range(16):
        part, shift, side = run // 8, 2 * (run % 8 // 2), run % 2
        for n in range(16):
            two = packed[32 * part + 16 * side + n] >> shift & 3
            values.append(d * (scales[run] & 15) * two - least * (scales[run] >> 4))
    return values


def _q3_k(data: bytes) -> list[float]:
    masks, packed, scales = data[:32], data[32:96], data[96:108]
    values = []
    for run in range(16):
        low = scales[run % 8] >> (4 * (run // 8)) & 15
        high = scales[8 + run % 4] >> (2 * (run // 4)) & 3
        scale = (low | high << 4) - 32
        part, step, side = run // 8, run % 8 // 2, run % 2
        for n in range(16 * side, 16 * side + 16):
            two = packed[32 * part + n] >> (2 * step) & 3
            value = two - (0 if masks[n] >> (4 * part + step) & 1 else 4)
            values.append(half(data, 108) * scale * value)
    return values


def _scale_and_least(packed: bytes, n: int) -> tuple[int, int]:
    """`get_scale_min_k4`."""
    if n < 4:
        return packed[n] & 63, packed[n + 4] & 63
    scale = packed[n + 4] & 15 | packed[n - 4] >> 6 << 4
    return scale, packed[n + 4] >> 4 | packed[n] >> 6 << 4


def _k4_or_k5(data: bytes, high: bytes | None, packed: bytes) -> list[float]:
    values = []
    for run in range(8):
        scale, least = _scale_and_least(data[4:16], run)
        for n in range(32):
            value = packed[32 * (run // 2) + n] >> (4 * (run % 2)) & 15
            if high is not None:
                value += 16 * (high[n] >> run & 1)
            values.append(half(data) * scale * value - half(data, 2) * least)
    return values


def _q4_k(data: bytes) -> list[float]:
    return _k4_or_k5(data, None, data[16:])


def _q5_k(data: bytes) -> list[float]:
    return _k4_or_k5(data, data[16:48], data[48:])


def _q6_k(data: bytes) -> list[float]:
    low, high, scales = data[:128], data[128:192], struct.unpack("<16b", data[192:208])
    values = []
    for part in range(2):
        for quarter in range(4):
            for n in range(32):
                byte = low[64 * part + 32 * (quarter % 2) + n]
                nibble = byte >> 4 if quarter >= 2 else byte & 15
                six = nibble | (high[32 * part + n] >> (2 * quarter) & 3) << 4
                scale = scales[8 * part + 2 * quarter + n // 16]
                values.append(half(data, 208) * scale * (six - 32))
    return values


_CODES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _iq4_nl(data: bytes) -> list[float]:
    return [half(data) * _CODES[nibble] for nibble in _nibbles(data[2:])]


FORMATS: Mapping[str, Format] = {
    "F32": Format(1, 4, (), _f32),
    "F16": Format(1, 2, (), _f16),
    "BF16": Format(1, 2, (), _bf16),
    "Q4_0": Format(32, 18, (0,), _q4_0),
    "Q4_1": Format(32, 20, (0, 2), _q4_1),
    "Q5_0": Format(32, 22, (0,), _q5_0),
    "Q5_1": Format(32, 24, (0, 2), _q5_1),
    "Q8_0": Format(32, 34, (0,), _q8_0),
    "Q2_K": Format(256, 84, (80, 82), _q2_k),
    "Q3_K": Format(256, 110, (108,), _q3_k),
    "Q4_K": Format(256, 144, (0, 2), _q4_k),
    "Q5_K": Format(256, 176, (0, 2), _q5_k),
    "Q6_K": Format(256, 210, (208,), _q6_k),
    "IQ4_NL": Format(32, 18, (0,), _iq4_nl),
}


def values_of(kind: str, data: bytes) -> list[float]:
    """Every value of a tensor's data."""
    size, read = FORMATS[kind].size, FORMATS[kind].read
    return [value for at in range(0, len(data), size) for value in read(data[at : at + size])]


def random_data(kind: str, num_values: int) -> bytes:
    """Blocks of random content with finite scales."""
    random = np.random.default_rng(7)
    if kind in ("F32", "F16", "BF16"):
        floats = random.normal(size=num_values).astype("<f4")
        if kind == "BF16":
            return (floats.view("<u4") >> 16).astype("<u2").tobytes()
        return floats.astype("<f2" if kind == "F16" else "<f4").tobytes()
    form = FORMATS[kind]
    blocks = random.integers(0, 256, (num_values // form.block, form.size), dtype=np.uint8)
    for at in form.scales:
        scales = random.normal(size=(len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.tobytes()
