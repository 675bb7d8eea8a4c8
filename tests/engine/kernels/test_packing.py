"""Packed weights hold what the blocks of the file, or the floats, said."""

import numpy as np
import numpy.typing as npt
import pytest

from antiphon.engine.checkpoints.ggml import TENSOR_TYPES
from antiphon.engine.kernels.decoder import KernelError
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import P4, P6, P8

Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K = 2, 3, 6, 8, 12, 14
#: Where the half-precision scales are in a block.
SCALES = {Q4_0: [0], Q4_1: [0, 2], Q5_0: [0], Q8_0: [0], Q4_K: [0, 2], Q6_K: [208]}


def random_blocks(number: int, rows: int, cols: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Blocks of random bits, with scales that are ordinary numbers."""
    random = np.random.default_rng(seed)
    kind = TENSOR_TYPES[number]
    blocks = random.integers(0, 256, (rows * cols // kind.block, kind.size), np.uint8)
    for offset in SCALES[number]:
        scales = random.uniform(-0.1, 0.1, len(blocks)).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


@pytest.mark.parametrize("rows", [1, 8, 21])
@pytest.mark.parametrize(
    ("number", "packed"),
    [(Q4_0, P4), (Q4_1, P4), (Q5_0, P6), (Q8_0, P8), (Q4_K, P4), (Q6_K, P6)],
)
def test_packing_keeps_what_blocks_say(
    kernels: Kernels, number: int, packed: int, rows: int
) -> None:
    cols = 512 if number in (Q4_K, Q6_K) else 96
    blocks = random_blocks(number, rows, cols)
    weight = kernels.pack(number, blocks.reshape(-1), rows, cols)
    assert weight.format == packed
    unpacked = kernels.unpack_rows(weight, range(rows))
    expected = TENSOR_TYPES[number].read(blocks).reshape(rows, cols).astype(np.float32)
    if number in (Q4_K, Q6_K):  # The product of two scales is rounded to half precision.
        largest = np.abs(expected).reshape(rows, -1, 16).max(axis=2).repeat(16, axis=1)
        assert (np.abs(unpacked - expected) <= 2.0**-9 * (largest + 1)).all()
        assert np.abs(unpacked - expected).mean() < 2.0**-10 * np.abs(expected).mean()
    else:
        np.testing.assert_array_equal(unpacked, expected)


def test_other_types_are_not_packed(kernels: Kernels) -> None:
    assert kernels.packed_format(0) is None
    assert kernels.packed_format(99) is None
    with pytest.raises(KernelError):
        kernels.pack(7, np.zeros(24, np.uint8), 1, 32)


def test_blocks_of_another_size_are_refused(kernels: Kernels) -> None:
    with pytest.raises(ValueError, match="no 2 rows of 32 Q8_0"):
        kernels.pack(Q8_0, np.zeros(34, np.uint8), 2, 32)
    with pytest.raises(ValueError, match="no 1 rows of 33"):
        kernels.pack(Q8_0, np.zeros(34, np.uint8), 1, 33)


@pytest.mark.parametrize(("packed", "steps"), [(P8, 254), (P4, 15)])
def test_quantising_is_off_by_half_a_step(kernels: Kernels, packed: int, steps: int) -> None:
    values = np.random.default_rng(1).standard_normal((13, 96)).astype(np.float32)
    unpacked = kernels.unpack_rows(kernels.quantize(packed, values), range(13))
    blocks = values.reshape(13, 3, 32)
    spread = blocks.max(axis=2) - blocks.min(axis=2)
    if packed == P8:
        spread = 2 * np.abs(blocks).max(axis=2)
    step = (spread / steps).repeat(32, axis=1)
    assert (np.abs(unpacked - values) <= 0.51 * step + 2e-3).all()


@pytest.mark.parametrize("packed", [P8, P4])
def test_quantising_keeps_numbers_finite(kernels: Kernels, packed: int) -> None:
    values = np.zeros((2, 64), np.float32)
    values[0, :32] = np.linspace(-1e30, 1e30, 32)
    values[0, 32:] = 1e-30
    unpacked = kernels.unpack_rows(kernels.quantize(packed, values), range(2))
    assert np.isfinite(unpacked).all()
    assert not unpacked[1].any()


def test_columns_that_fill_no_tile_are_not_quantised(kernels: Kernels) -> None:
    with pytest.raises(KernelError):
        kernels.quantize(P8, np.zeros((8, 40), np.float32))


def test_plain_weights_are_the_array_itself(kernels: Kernels) -> None:
    values = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float16)
    weight = kernels.plain(values)
    assert weight.data is values
    np.testing.assert_array_equal(kernels.unpack_rows(weight, range(3)), values.astype("f4"))
    bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    shortened = kernels.unpack_rows(kernels.plain(bits, bfloat16=True), range(1, 3))
    np.testing.assert_array_equal(shortened, (bits[1:].astype("u4") << 16).view("f4"))
    with pytest.raises(ValueError, match="float64"):
        kernels.plain(values.astype(np.float64))
