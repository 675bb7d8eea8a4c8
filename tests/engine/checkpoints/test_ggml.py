"""How tensors are stored, held against a plain reading of their bytes."""

import numpy as np
import pytest
from ggml_blocks import FORMATS, random_data, values_of
from gguf_files import TENSOR_CODES, encoded

from antiphon.engine.checkpoints.checkpoint import Tensor
from antiphon.engine.checkpoints.ggml import TENSOR_TYPES, TYPES_BY_NAME


def tensor(kind: str, data: bytes, shape: tuple[int, ...]) -> Tensor:
    return Tensor("t", TYPES_BY_NAME[kind], shape, np.frombuffer(data, np.uint8))


def test_every_type_is_held_against_a_plain_reading():
    assert {kind.name for kind in TENSOR_TYPES.values()} == set(FORMATS)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_type_has_ggml_s_number_and_sizes(kind):
    found = TYPES_BY_NAME[kind]
    assert found.number == TENSOR_CODES[kind]
    assert (found.block, found.size) == FORMATS[kind][:2]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_type_is_read_as_a_plain_reading_of_its_bytes_has_it(kind):
    data = random_data(kind, 3 * 512)
    values = tensor(kind, data, (3, 512)).floats()
    assert (values.shape, values.dtype) == ((3, 512), np.float32)
    expected = np.array(values_of(kind, data)).reshape(3, 512)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q6_K", "F16"])
def test_rows_in_another_order_are_the_same_rows(kind):
    whole = tensor(kind, random_data(kind, 4 * 256), (4, 256))
    other = whole.reordered(np.array([2, 0, 3, 1]))
    assert (other.name, other.type, other.shape) == (whole.name, whole.type, whole.shape)
    np.testing.assert_array_equal(other.floats(), whole.floats()[[2, 0, 3, 1]])


@pytest.mark.parametrize(
    ("kind", "most"), [("F32", 0), ("F16", 2e-3), ("BF16", 2e-2), ("Q8_0", 0.02), ("Q4_0", 0.4)]
)
def test_what_these_tests_write_comes_back_as_it_was(kind, most):
    values = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    read = tensor(kind, encoded(values, kind), (2, 64)).floats()
    assert np.abs(read - values).max() <= most
