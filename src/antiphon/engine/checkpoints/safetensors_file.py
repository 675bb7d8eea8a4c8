"""Reads safetensors files through a memory map.

A file is the length of its header in 8 bytes, the header in JSON, and the tensors' data
(safetensors' `README.md`, "Format"). The library of that name reads bfloat16 into torch only, which
need not be there.
"""

import json
import math
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.engine.checkpoints.checkpoint import LoadError, Tensor
from antiphon.engine.checkpoints.ggml import TYPES_BY_NAME

#: The types that are read here. Their names are ggml's as well.
_TYPES = ("F32", "F16", "BF16")


def read_tensors(path: Path) -> Iterator[Tensor]:
    """The tensors of a file, mapped. Those of types that only torch reads are left out.

    Raises `LoadError` if it is damaged or cut off.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise LoadError(f"{path} is empty") from None
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        for name, described in header.items():
            if name != "__metadata__" and described["dtype"] in _TYPES:
                yield _tensor(name, described, data, 8 + length)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise LoadError(f"{path} is damaged or cut off: {error}") from None


def _tensor(name: str, described: Mapping[str, Any], data: mmap.mmap, base: int) -> Tensor:
    kind = TYPES_BY_NAME[described["dtype"]]
    shape = tuple(int(size) for size in described["shape"])
    start, end = described["data_offsets"]
    if start < 0 or min(shape, default=1) < 0 or end - start != math.prod(shape) * kind.size:
        raise ValueError(f"{name} is of another size than its shape")
    return Tensor(name, kind, shape, np.frombuffer(data, np.uint8, end - start, base + start))
