"""Linear layers give what numpy does, and a row the same to the last bit in any company."""

import numpy as np
import numpy.typing as npt
import pytest
from engine_kernels import quantized_inputs

from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import BF16, F16, F32, P4, P6, P8
from antiphon.engine.kernels.weight import Weight

Floats = npt.NDArray[np.float32]

PACKED, PLAIN = (P4, P6, P8), (F32, F16, BF16)


def make(kernels: Kernels, kind: int, rows: int, cols: int, seed: int = 0) -> Weight:
    """A random weight of a format."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, cols)).astype(np.float32)
    if kind in (P4, P8):
        return kernels.quantize(kind, values)
    if kind == P6:
        blocks = random.integers(0, 256, (rows * cols // 32, 22), np.uint8)
        blocks[:, :2] = values[:, ::32].astype(np.float16).reshape(-1, 1).view(np.uint8)
        return kernels.pack(6, blocks.reshape(-1), rows, cols)
    if kind == BF16:
        return kernels.plain((values.view(np.uint32) >> 16).astype(np.uint16), bfloat16=True)
    return kernels.plain(values.astype(np.float16) if kind == F16 else values)


def inputs(m: int, cols: int) -> Floats:
    return np.random.default_rng(m).standard_normal((m, cols)).astype(np.float32)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize(("rows", "cols"), [(1, 32), (8, 64), (43, 576), (24, 1536)])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 7, 17])
def test_packed_weights_multiply_quantised_inputs(
    kernels: Kernels, kind: int, rows: int, cols: int, m: int
) -> None:
    weight, x = make(kernels, kind, rows, cols), inputs(m, cols)
    y = kernels.linear(weight, x)
    values = kernels.unpack_rows(weight, range(rows)).astype(np.float64)
    expected = quantized_inputs(x) @ values.T
    scale = np.abs(x).max() * np.abs(values).max() * cols**0.5
    assert np.abs(y - expected).max() < 2e-6 * scale
    # What 8 bits cost: half of a step of 1/127 of the largest in each of the inputs.
    assert np.abs(y - x @ values.T).max() < 0.01 * scale


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (3, 7), (43, 77), (24, 1536)])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 17])
def test_plain_weights_multiply_in_single_precision(
    kernels: Kernels, kind: int, rows: int, cols: int, m: int
) -> None:
    weight, x = make(kernels, kind, rows, cols), inputs(m, cols)
    values = kernels.unpack_rows(weight, range(rows)).astype(np.float64)
    expected = x.astype(np.float64) @ values.T
    error = np.abs(kernels.linear(weight, x) - expected).max()
    assert error < 1e-6 * np.abs(x).max() * np.abs(values).max() * (cols + 8)


@pytest.mark.parametrize("kind", PACKED + PLAIN)
def test_a_row_gives_the_same_alone_and_among_others(kernels: Kernels, kind: int) -> None:
    weight, x = make(kernels, kind, 43, 576), inputs(17, 576)
    alone = np.concatenate([kernels.linear(weight, x[i : i + 1]) for i in range(len(x))])
    for m in range(1, len(x) + 1):
        for threads in (1, 2, 3) if m in (1, 6, 17) else (2,):
            kernels.set_threads(threads)
            np.testing.assert_array_equal(kernels.linear(weight, x[:m]), alone[:m])


@pytest.mark.parametrize("kind", [P4, P8])
def test_more_rows_than_the_cache_takes_give_the_same(kernels: Kernels, kind: int) -> None:
    weight, x = make(kernels, kind, 40, 1536), inputs(150, 1536)
    whole = kernels.linear(weight, x)
    np.testing.assert_array_equal(whole[40:43], kernels.linear(weight, x[40:43]))
    np.testing.assert_array_equal(whole[149:], kernels.linear(weight, x[149:]))


@pytest.mark.parametrize("kind", [P4, P8, F32])
def test_a_bias_is_added(kernels: Kernels, kind: int) -> None:
    weight, x = make(kernels, kind, 11, 64), inputs(3, 64)
    bias = np.arange(11, dtype=np.float32)
    biased = kernels.linear(weight.with_bias(bias), x)
    np.testing.assert_array_equal(biased, kernels.linear(weight, x) + bias)
    with pytest.raises(ValueError, match="bias"):
        weight.with_bias(bias[:10])


@pytest.mark.parametrize("kind", PACKED)
def test_the_largest_numbers_do_not_overflow(kernels: Kernels, kind: int) -> None:
    cols = 64
    if kind == P6:
        blocks = np.full((8 * cols // 32, 22), 255, np.uint8)
        blocks[:, :2] = np.float16(1).reshape(1).view(np.uint8)
        weight = kernels.pack(6, blocks.reshape(-1), 8, cols)
    elif kind == P8:  # -128 is outside of what ggml writes, but a file may hold it.
        blocks = np.full((8 * cols // 32, 34), 128, np.uint8)
        blocks[:, :2] = np.float16(1).reshape(1).view(np.uint8)
        weight = kernels.pack(8, blocks.reshape(-1), 8, cols)
    else:
        blocks = np.full((8 * cols // 32, 20), 255, np.uint8)
        blocks[:, :4] = np.array([1, -8], np.float16).view(np.uint8)
        weight = kernels.pack(3, blocks.reshape(-1), 8, cols)
    for sign in (1, -1):
        x = np.full((5, cols), 127 * sign, np.float32)
        expected = x.astype(np.float64) @ kernels.unpack_rows(weight, range(8)).T
        np.testing.assert_allclose(kernels.linear(weight, x), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", PACKED)
def test_nothing_gives_nothing(kernels: Kernels, kind: int) -> None:
    weight = make(kernels, kind, 8, 64)
    assert not kernels.linear(weight, np.zeros((2, 64), np.float32)).any()
    tiny = kernels.linear(weight, np.full((2, 64), 1e-38, np.float32))
    assert (np.abs(tiny) < 1e-30).all()


def test_inputs_of_another_width_or_kind_are_refused(kernels: Kernels) -> None:
    weight = make(kernels, P8, 8, 64)
    with pytest.raises(ValueError, match="64 columns"):
        kernels.linear(weight, inputs(1, 32))
    with pytest.raises(ValueError, match="float32 is needed"):
        kernels.linear(weight, inputs(1, 64).astype(np.float64))
    with pytest.raises(ValueError, match="C-contiguous"):
        kernels.linear(weight, inputs(2, 128)[:, ::2])
