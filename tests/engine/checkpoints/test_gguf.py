"""GGUF files, written by `gguf_files` and read by the product's own reader."""

import math
import struct
from pathlib import Path

import pytest
from ggml_blocks import FORMATS, random_data
from gguf_files import GGUFWriter, StoredTensor, Typed
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.checkpoints.gguf import GGUFError, GGUFFile


def read(tmp_path: Path, writer: GGUFWriter) -> GGUFFile:
    return GGUFFile(writer.write(tmp_path / "model.gguf"))


def refused(tmp_path: Path, content: bytes) -> str:
    """What is said of a file that cannot be read."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError) as caught:
        GGUFFile(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# --- metadata ---


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint8", 255),
        ("int8", -128),
        ("uint16", 65535),
        ("int16", -32768),
        ("uint32", 2**32 - 1),
        ("int32", -(2**31)),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
        ("float32", 0.5),
        ("float64", 0.1),
        ("bool", True),
        ("bool", False),
        ("string", "naïve 😀 \0 text"),
        ("string", ""),
        ("array:int16", [-1, 0, 1]),
        ("array:float32", [0.5, -0.25]),
        ("array:bool", [True, False]),
        ("array:uint64", [2**64 - 1]),
        ("array:string", ["a", "", "日本"]),
        ("array:uint32", []),
        ("array:string", []),
    ],
)
def test_a_value_of_every_kind_is_read_as_it_was_written(tmp_path, kind, value):
    writer = GGUFWriter({"before": 1, "key": Typed(kind, value), "after": "end"})
    metadata = read(tmp_path, writer).metadata
    assert metadata == {"before": 1, "key": value, "after": "end"}
    assert type(metadata["key"]) is type(value)


def test_version_2_is_read_as_well(tmp_path):
    assert read(tmp_path, GGUFWriter({"key": "value"}, version=2)).metadata == {"key": "value"}


# --- tensors ---


@pytest.mark.parametrize("kind", FORMATS)
def test_a_tensor_of_every_type_is_found(tmp_path, kind):
    data = random_data(kind, 3 * 256)
    file = read(tmp_path, GGUFWriter(tensors=[StoredTensor("t", kind, (3, 256), data)]))
    tensor = file.tensors["t"]
    assert (tensor.name, tensor.type.name, tensor.shape) == ("t", kind, (3, 256))
    assert tensor.data.tobytes() == data
    assert tensor.floats().shape == (3, 256)


def test_special_floats_are_read(tmp_path):
    data = struct.pack("<4e", math.inf, -math.inf, math.nan, -0.0)
    writer = GGUFWriter(tensors=[StoredTensor("t", "F16", (4,), data)])
    values = read(tmp_path, writer).tensors["t"].floats().tolist()
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])
    assert math.copysign(1, values[3]) == -1


def test_tensors_are_found_where_their_alignment_puts_them(tmp_path):
    first, second = b"\x01" * 7, struct.pack("<2f", 1.5, -2.5)
    tensors = [
        StoredTensor("odd", "Q8_0", (32,), struct.pack("<e", 1.0) + first.ljust(32, b"\x02")),
        StoredTensor("pair", "F32", (2,), second),
        StoredTensor("scalar", "F32", (), struct.pack("<f", 9.0)),
    ]
    for alignment in (32, 64, 8):
        writer = GGUFWriter({"general.alignment": alignment}, tensors, alignment=alignment)
        file = read(tmp_path, writer)
        assert list(file.tensors) == ["odd", "pair", "scalar"]
        assert file.tensors["odd"].floats()[:8].tolist() == [1.0] * 7 + [2.0]
        assert file.tensors["pair"].floats().tolist() == [1.5, -2.5]
        assert file.tensors["scalar"].floats().tolist() == 9.0


# --- what is no GGUF file, or not all of one ---


def test_an_empty_file_is_refused(tmp_path):
    assert "is empty" in refused(tmp_path, b"")


@pytest.mark.parametrize("content", [b"G", b"GGML" + bytes(100), b"PK\x03\x04" + bytes(100)])
def test_another_kind_of_file_is_refused(tmp_path, content):
    assert "is no GGUF file" in refused(tmp_path, content)


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_another_version_is_refused_by_its_number(tmp_path, version):
    message = refused(tmp_path, GGUFWriter(version=version).to_bytes())
    assert f"version {version}" in message and "2 and 3 are known" in message


def test_an_unknown_tensor_type_is_refused_with_those_that_are_known(tmp_path):
    writer = GGUFWriter(tensors=[StoredTensor("blk.0.ffn_up.weight", "IQ2_XXS", (256,), bytes(66))])
    message = refused(tmp_path, writer.to_bytes())
    assert "blk.0.ffn_up.weight" in message and "type 16" in message
    assert all(kind in message for kind in FORMATS)


def test_rows_that_are_no_whole_blocks_are_refused(tmp_path):
    writer = GGUFWriter(tensors=[StoredTensor("t", "Q8_0", (2, 48), bytes(34 * 3))])
    assert "no whole blocks" in refused(tmp_path, writer.to_bytes())


def test_a_quantised_scalar_is_refused(tmp_path):
    writer = GGUFWriter(tensors=[StoredTensor("t", "Q8_0", (), bytes(34))])
    refused(tmp_path, writer.to_bytes())


@pytest.mark.parametrize("kind", ["13", "array:13", "array:array:uint8"])
def test_an_unknown_kind_of_value_is_refused(tmp_path, kind):
    value = [[1]] if kind == "array:array:uint8" else []
    message = refused(tmp_path, GGUFWriter({"key": Typed(kind, value)}).to_bytes())
    assert "are not known" in message


def whole_file() -> bytes:
    """A file with every kind of thing in it."""
    return GGUFWriter(
        {
            "general.alignment": 32,
            "name": "model",
            "numbers": Typed("array:float64", [1.0, 2.0]),
            "words": ["one", "two"],
            "flag": True,
        },
        [
            StoredTensor("first", "F32", (2, 3), random_data("F32", 6)),
            StoredTensor("second", "Q4_1", (2, 32), random_data("Q4_1", 64)),
        ],
    ).to_bytes()


def test_a_file_cut_off_anywhere_is_refused_and_nothing_else_is_raised(tmp_path):
    content = whole_file()
    path = tmp_path / "model.gguf"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(GGUFError):
            GGUFFile(path)
    path.write_bytes(content)
    assert list(GGUFFile(path).tensors) == ["first", "second"]


def test_a_text_that_is_cut_off_is_not_taken_for_a_shorter_one(tmp_path):
    content = GGUFWriter({"key": "value"}).to_bytes().rstrip(b"\0")
    assert content.endswith(b"value")
    assert "cut off" in refused(tmp_path, content[:-1])


@pytest.mark.parametrize("number", [2**31, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("old", [2, 3, 5, 7, 32])
def test_a_count_or_size_beyond_all_bounds_is_refused_and_nothing_else_is_raised(
    tmp_path, old, number
):
    content = whole_file()
    path = tmp_path / "model.gguf"
    needle = struct.pack("<Q", old)
    at = content.index(needle)
    while at >= 0:
        path.write_bytes(content[:at] + struct.pack("<Q", number) + content[at + 8 :])
        with pytest.raises(GGUFError):
            GGUFFile(path)
        at = content.find(needle, at + 8)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused_and_nothing_else_is_raised(
    tmp_path_factory, first, byte, second, other
):
    content = bytearray(whole_file())
    content[first % len(content)] = byte
    content[second % len(content)] = other
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    try:
        file = GGUFFile(path)
    except GGUFError:
        return
    for tensor in file.tensors.values():
        assert tensor.floats().shape == tensor.shape


@pytest.mark.parametrize("alignment", [0, "thirty-two", [32], -32])
def test_an_alignment_that_is_none_is_refused(tmp_path, alignment):
    kind = "int32" if isinstance(alignment, int) else None
    value = Typed(kind, alignment) if kind else alignment
    tensors = [StoredTensor("t", "F32", (1,), bytes(4))]
    message = refused(tmp_path, GGUFWriter({"general.alignment": value}, tensors).to_bytes())
    assert "damaged" in message


def test_a_shape_without_values_or_with_too_many_is_refused(tmp_path):
    for shape in [(2**32, 2**32), (2**63, 2), (2**62, 4, 3), (0, 2**63), (0, 4)]:
        writer = GGUFWriter(tensors=[StoredTensor("t", "F32", shape, bytes(64))])
        refused(tmp_path, writer.to_bytes())
