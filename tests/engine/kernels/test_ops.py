"""Embeddings, norms, rotations and gates give what numpy does."""

import numpy as np
import pytest
from engine_kernels import activated, rms_norm, rotated

from antiphon.engine.kernels.decoder import Activation, KernelError
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import P8


@pytest.mark.parametrize("m", [1, 33])
@pytest.mark.parametrize("n", [1, 7, 64, 577])
def test_rows_are_divided_by_their_root_mean_square(kernels: Kernels, m: int, n: int) -> None:
    random = np.random.default_rng(n)
    x = random.standard_normal((m, n)).astype(np.float32) * 3
    weight = random.standard_normal(n).astype(np.float32)
    y = kernels.rms_norm(x, weight, 1e-5)
    np.testing.assert_allclose(y, rms_norm(x, weight, 1e-5), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("size", "rotary"), [(64, 64), (80, 32), (10, 6), (2, 2)])
@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_halves_of_heads_are_rotated_by_their_position(
    kernels: Kernels, size: int, rotary: int, scale: float
) -> None:
    x = np.random.default_rng(0).standard_normal((5, 3, size)).astype(np.float32)
    positions = np.array([0, 1, 17, 4000, 4001], np.int32)
    inv_freq = (1e4 ** -(np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    expected = rotated(x, positions, inv_freq, scale)
    kernels.rope(x, positions, inv_freq, scale)
    np.testing.assert_allclose(x, expected, atol=2e-6)


def test_no_more_than_a_head_can_be_rotated(kernels: Kernels) -> None:
    with pytest.raises(KernelError):
        kernels.rope(np.zeros((1, 1, 4), "f4"), np.zeros(1, "i4"), np.ones(3, "f4"))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("n", [1, 8, 37])
def test_gates_let_through_what_the_activation_says(
    kernels: Kernels, activation: Activation, n: int
) -> None:
    x = np.random.default_rng(n).standard_normal((9, 2 * n)).astype(np.float32) * 20
    x[0, 0], x[1, 0] = 300, -300
    expected = activated(x[:, :n], activation) * x[:, n:]
    np.testing.assert_allclose(kernels.gated(x, activation), expected, rtol=2e-6, atol=2e-6)


def test_tokens_get_their_rows(kernels: Kernels) -> None:
    table = kernels.quantize(P8, np.random.default_rng(0).standard_normal((20, 64), np.float32))
    tokens = np.array([3, 19, 0, 3], np.int32)
    rows = kernels.unpack_rows(table, range(20))
    np.testing.assert_array_equal(kernels.embed(table, tokens), rows[tokens])
    with pytest.raises(KernelError):
        kernels.embed(table, np.array([20], np.int32))
