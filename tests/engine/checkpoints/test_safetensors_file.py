"""Safetensors files, held against the library of that name."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save as to_bytes

from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.checkpoints.safetensors_file import read_tensors

TENSORS = {
    "single": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "half": torch.linspace(-3, 3, 8, dtype=torch.float16).reshape(2, 2, 2),
    "brain": torch.linspace(-3, 3, 5, dtype=torch.bfloat16),
    "scalar": torch.tensor(0.25),
    "none": torch.zeros(0, 4),
}
WHOLE = to_bytes(TENSORS, metadata={"format": "pt"})


def written(tmp_path: Path, header: Any, data: bytes = b"") -> Path:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(content)) + content + data)
    return path


def test_tensors_are_read_as_the_library_reads_them(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(WHOLE)
    found = {tensor.name: tensor for tensor in read_tensors(path)}
    assert set(found) == set(TENSORS)
    for name, expected in TENSORS.items():
        assert found[name].name == name
        assert found[name].shape == tuple(expected.shape)
        np.testing.assert_array_equal(found[name].floats(), expected.float().numpy())
    assert [found[name].type.name for name in ("single", "half", "brain")] == ["F32", "F16", "BF16"]


def test_types_that_only_torch_reads_are_left_out(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.int64)}
    path.write_bytes(to_bytes({**tensors, "c": torch.ones(2, dtype=torch.float64)}))
    assert [tensor.name for tensor in read_tensors(path)] == ["a"]


def test_an_empty_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(LoadError, match=r"model\.safetensors is empty"):
        list(read_tensors(path))


def described(**changes: Any) -> dict[str, Any]:
    return {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff\xfe",
        [],
        {"t": 5},
        {"t": {}},
        described(shape=[3]),
        described(shape=[-1, -2]),
        described(shape="two"),
        described(shape=[float("inf")]),
        described(shape=None),
        described(data_offsets=[0]),
        described(data_offsets=[0, 4]),
        described(data_offsets=[-8, 0]),
        described(data_offsets=[8, 16]),
        described(data_offsets=[2**70, 2**70 + 8]),
        described(data_offsets=[0.0, 8.0]),
        described(shape=[2**40], data_offsets=[0, 2**42]),
    ],
    ids=str,
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, header):
    with pytest.raises(LoadError, match=r"model\.safetensors is damaged or cut off"):
        list(read_tensors(written(tmp_path, header, bytes(8))))


def test_what_was_right_in_these_headers_is_read(tmp_path):
    (tensor,) = read_tensors(written(tmp_path, described(), struct.pack("<2f", 1, 2)))
    assert tensor.floats().tolist() == [1, 2]


def test_a_file_cut_off_anywhere_is_refused_and_nothing_else_is_raised(tmp_path):
    path = tmp_path / "model.safetensors"
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        with pytest.raises(LoadError):
            list(read_tensors(path))


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_a_damaged_file_is_read_or_refused_and_nothing_else_is_raised(tmp_path_factory, damage):
    content = bytearray(WHOLE)
    for place, byte in damage:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content)
    try:
        tensors = list(read_tensors(path))
    except LoadError:
        return
    for tensor in tensors:
        assert tensor.floats().shape == tensor.shape
