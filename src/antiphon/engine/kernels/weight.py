"""Weights as the kernels read them, and memory for them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.engine.kernels.structs import AkWeight

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


def aligned(num_bytes: int, alignment: int = 64) -> npt.NDArray[np.uint8]:
    """Zeroed bytes that begin at a multiple of `alignment`. Memory is taken as it is written to."""
    memory = np.zeros(num_bytes + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + num_bytes]


class Arena:
    """Memory for many small things that are read one after the other.

    They share large pieces, which the system backs with large pages: in small ones a pass over the
    weights would wait for the tables of pages as long as for the weights.
    """

    _PIECE_BYTES = 32 << 20

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def take(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Zeroed bytes that begin at a multiple of 64. They are kept for as long as any of their
        piece are."""
        size = -(-num_bytes // 64) * 64
        if size > self._PIECE_BYTES // 4:
            return aligned(num_bytes)
        if size > len(self._left):
            self._left = aligned(self._PIECE_BYTES, 1 << 21)
        taken, self._left = self._left[:num_bytes], self._left[size:]
        return taken


def address(array: Array | None) -> int | None:
    """Where the data of an array lie; it must be C-contiguous. None for None."""
    if array is None:
        return None
    if not array.flags.c_contiguous:
        raise ValueError("the kernels take C-contiguous arrays only")
    return int(array.ctypes.data)


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A weight [rows, cols] in one of the formats of `structs`, with a bias [rows] or None.

    `struct` points to the arrays, so it is good only for as long as the weight is kept. Raises
    `ValueError` for a bias that does not fit.
    """

    format: int
    rows: int
    cols: int
    data: Array
    bias: Floats | None = None
    struct: AkWeight = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bias = self.bias
        if bias is not None and (bias.shape != (self.rows,) or bias.dtype != np.float32):
            raise ValueError(f"a bias of {self.rows} float32 is needed")
        struct = AkWeight(self.format, self.rows, self.cols, address(self.data), address(bias))
        object.__setattr__(self, "struct", struct)

    @property
    def num_bytes(self) -> int:
        """Bytes that a pass over the weight reads."""
        return int(self.data.nbytes)

    def with_bias(self, bias: Floats | None) -> "Weight":
        """The same weight with another bias."""
        return replace(self, bias=bias)
