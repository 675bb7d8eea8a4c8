"""The compiled kernels, from Python: numpy arrays in and out.

Calls let other threads of Python run meanwhile, and run one after the other on the kernels' own
threads. Arrays must be C-contiguous; nothing is copied.
"""

import ctypes as c
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.engine.checkpoints.ggml import TENSOR_TYPES
from antiphon.engine.kernels.compile import LIBRARY
from antiphon.engine.kernels.decoder import (
    ACTIVATIONS,
    Activation,
    Decoder,
    DecoderShape,
    DecoderWeights,
    Integers,
    KernelError,
)
from antiphon.engine.kernels.structs import ABI, BF16, F16, F32, AkAttention, AkCache
from antiphon.engine.kernels.weight import Arena, Array, Floats, Weight, address

#: Where the package's build puts the library.
PATH = Path(__file__).with_name(LIBRARY)

_POINTER, _INT, _INT64, _FLOAT = c.c_void_p, c.c_int32, c.c_int64, c.c_float
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ak_abi": (_INT, ()),
    "ak_num_isas": (_INT, ()),
    "ak_isa_name": (c.c_char_p, (_INT,)),
    "ak_isa_usable": (_INT, (_INT,)),
    "ak_use_isa": (_INT, (c.c_char_p,)),
    "ak_isa": (c.c_char_p, ()),
    "ak_set_threads": (_INT, (_INT,)),
    "ak_packed_format": (_INT, (_INT,)),
    "ak_packed_bytes": (c.c_size_t, (_INT, _INT64, _INT64)),
    "ak_pack": (_INT, (_INT, _POINTER, _INT64, _INT64, _POINTER)),
    "ak_quantize": (_INT, (_INT, _POINTER, _INT64, _INT64, _POINTER)),
    "ak_unpack_row": (_INT, (_POINTER, _INT64, _POINTER)),
    "ak_linear": (_INT, (_POINTER, _POINTER, _INT64, _POINTER)),
    "ak_embed": (_INT, (_POINTER, _POINTER, _INT64, _POINTER)),
    "ak_rms_norm": (_INT, (_POINTER, _POINTER, _INT64, _INT64, _FLOAT, _POINTER)),
    "ak_rope": (_INT, (_POINTER, _POINTER, *(_INT64,) * 4, _POINTER, _FLOAT)),
    "ak_gated": (_INT, (_POINTER, _INT64, _INT64, _INT, _POINTER)),
    "ak_write_cache": (_INT, (_POINTER, _POINTER, _INT64, _POINTER, _INT64, _POINTER, _INT)),
    "ak_attend": (
        _INT,
        (_POINTER, _POINTER, _POINTER, _INT64, _POINTER, _INT, _POINTER, _INT64),
    ),
    "ak_forward": (_INT, (_POINTER,) * 4),
    "ak_sample": (_INT, (_POINTER, _INT64, _POINTER, _POINTER, _POINTER, _POINTER)),
    "ak_sample_rows": (_INT, (_POINTER, _INT64, _INT, *(_POINTER,) * 5, _INT)),
}


class KernelsUnavailable(Exception):
    """There are no kernels to be used. Says why, in one sentence."""


def load(path: Path = PATH) -> "Kernels":
    """Load the library that the package's build has made. Raises `KernelsUnavailable`."""
    if os.environ.get("ANTIPHON_NO_KERNELS") == "1":
        raise KernelsUnavailable("the kernels are switched off by ANTIPHON_NO_KERNELS=1")
    if not path.exists():
        raise KernelsUnavailable(
            "the kernels were not compiled: there was no C++ compiler when the package was built"
        )
    try:
        library = c.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise KernelsUnavailable(f"the kernels cannot be loaded: {error}") from error
    abi = library.ak_abi()
    if abi != ABI:
        raise KernelsUnavailable(
            f"the kernels have interface {abi} instead of {ABI}: the package must be built again"
        )
    return Kernels(library)


class Kernels:
    """The operations. `library` has the C functions themselves, with their types set.

    They raise `KernelError` for what a kernel cannot take, and `ValueError` for arrays of the wrong
    kind or size.
    """

    def __init__(self, library: c.CDLL) -> None:
        self.library = library
        self._memory = Arena()

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return str(self.library.ak_isa().decode())

    def isas(self) -> list[str]:
        """The instruction sets that this processor can use, best first."""
        library = self.library
        usable = [i for i in range(library.ak_num_isas()) if library.ak_isa_usable(i)]
        return [library.ak_isa_name(i).decode() for i in usable]

    def use_isa(self, name: str) -> None:
        """Use another instruction set than the best one."""
        _check(self.library.ak_use_isa(name.encode()), f"instruction set {name}")

    def set_threads(self, threads: int) -> None:
        """How many threads share the work, the caller's own included. While nothing runs."""
        _check(self.library.ak_set_threads(threads), f"{threads} threads")

    def packed_format(self, ggml_type: int) -> int | None:
        """The format that GGUF blocks of a type are packed to; None if they cannot be."""
        packed = int(self.library.ak_packed_format(ggml_type))
        return packed if packed >= 0 else None

    def pack(self, ggml_type: int, data: npt.NDArray[np.uint8], rows: int, cols: int) -> Weight:
        """Pack a tensor's blocks as they lie in a GGUF file."""
        packed = self.packed_format(ggml_type)
        if packed is None:
            raise KernelError(f"blocks of type {ggml_type} cannot be packed")
        kind = TENSOR_TYPES[ggml_type]
        if cols % kind.block or data.nbytes != rows * cols // kind.block * kind.size:
            raise ValueError(f"{data.nbytes} bytes are no {rows} rows of {cols} {kind.name}")
        target = self._packed(packed, rows, cols)
        code = self.library.ak_pack(ggml_type, address(data), rows, cols, address(target))
        _check(code, f"{rows} rows of {cols} columns of type {ggml_type}")
        return Weight(packed, rows, cols, target)

    def quantize(self, packed: int, values: Floats) -> Weight:
        """Quantise a matrix to `structs.P8` or `structs.P4`. Columns must be a multiple of 32."""
        rows, cols = values.shape
        target = self._packed(packed, rows, cols)
        code = self.library.ak_quantize(packed, _floats(values), rows, cols, address(target))
        _check(code, f"a matrix {rows} by {cols} in format {packed}")
        return Weight(packed, rows, cols, target)

    def _packed(self, packed: int, rows: int, cols: int) -> npt.NDArray[np.uint8]:
        size = self.library.ak_packed_bytes(packed, rows, cols)
        if size == 0:
            raise KernelError(f"a matrix {rows} by {cols} cannot be packed in format {packed}")
        return self._memory.take(size)

    def plain(self, values: Array, *, bfloat16: bool = False) -> Weight:
        """Use a matrix of float32 or float16 as it is, or one of uint16 that are bfloat16's bits.

        The array is kept, not copied.
        """
        formats = {np.dtype(np.float32): F32, np.dtype(np.float16): F16}
        kind = BF16 if bfloat16 and values.dtype == np.uint16 else formats.get(values.dtype)
        if kind is None:
            raise ValueError(f"weights of {values.dtype} are of no plain format")
        return Weight(kind, values.shape[0], values.shape[1], values)

    def unpack_rows(self, weight: Weight, rows: range) -> Floats:
        """Rows of a weight as float32."""
        values = np.empty((len(rows), weight.cols), np.float32)
        for i, row in enumerate(rows):
            code = self.library.ak_unpack_row(c.byref(weight.struct), row, address(values[i]))
            _check(code, f"row {row}")
        return values

    def linear(self, weight: Weight, x: Floats) -> Floats:
        """x [m, cols] times the weight's transpose, plus its bias: [m, rows]."""
        if x.ndim != 2 or x.shape[1] != weight.cols:
            raise ValueError(f"inputs of {weight.cols} columns are needed")
        y = np.empty((len(x), weight.rows), np.float32)
        code = self.library.ak_linear(c.byref(weight.struct), _floats(x), len(x), address(y))
        _check(code, f"a weight in format {weight.format}")
        return y

    def embed(self, weight: Weight, tokens: Integers) -> Floats:
        """The rows of a table: [len(tokens), cols]."""
        y = np.empty((len(tokens), weight.cols), np.float32)
        code = self.library.ak_embed(
            c.byref(weight.struct), address(tokens), len(tokens), address(y)
        )
        _check(code, "a token outside the table")
        return y

    def rms_norm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        """Each row of x [m, n] divided by its root mean square, times the weight [n]."""
        m, n = x.shape
        y = np.empty_like(x)
        _check(self.library.ak_rms_norm(_floats(x), _floats(weight), m, n, eps, address(y)), "x")
        return y

    def rope(self, x: Floats, positions: Integers, inv_freq: Floats, scale: float = 1.0) -> None:
        """Rotate x [m, heads, size] in place: pairs (i, i + n / 2) of each head's first n values,
        n being twice the length of `inv_freq`."""
        m, heads, size = x.shape
        rotary = 2 * len(inv_freq)
        pointers = _floats(x), address(positions), _floats(inv_freq)
        code = self.library.ak_rope(*pointers[:2], m, heads, size, rotary, pointers[2], scale)
        _check(code, f"heads of {size} with {rotary} values rotated")

    def gated(self, x: Floats, activation: Activation) -> Floats:
        """act(x[:, :n]) * x[:, n:] of x [m, 2 n]."""
        m, n = x.shape[0], x.shape[1] // 2
        y = np.empty((m, n), np.float32)
        code = self.library.ak_gated(_floats(x), m, n, ACTIVATIONS[activation], address(y))
        _check(code, "x")
        return y

    def write_cache(self, cache: AkCache, keys: Floats, values: Floats, segments: Any) -> None:
        """Write keys and values [m, kv_heads, size] of a batch into the blocks of its segments."""
        code = self.library.ak_write_cache(
            c.byref(cache),
            _floats(keys),
            keys.shape[1] * keys.shape[2],
            _floats(values),
            values.shape[1] * values.shape[2],
            segments,
            len(segments),
        )
        _check(code, "the segments or the cache")

    def attend(
        self, cache: AkCache, attention: AkAttention, queries: Floats, segments: Any
    ) -> Floats:
        """Causal attention of queries [m, heads, key_size]: [m, heads, value_size]."""
        m, heads, key_size = queries.shape
        out = np.empty((m, heads, cache.value_size), np.float32)
        code = self.library.ak_attend(
            c.byref(cache),
            c.byref(attention),
            _floats(queries),
            heads * key_size,
            segments,
            len(segments),
            address(out),
            heads * cache.value_size,
        )
        _check(code, "the segments or the cache")
        return out

    def decoder(self, shape: DecoderShape, weights: DecoderWeights, num_blocks: int) -> Decoder:
        """A decoder with a cache of its own."""
        return Decoder(self.library, shape, weights, num_blocks)


def _floats(values: Floats) -> int | None:
    if values.dtype != np.float32:
        raise ValueError(f"float32 is needed, not {values.dtype}")
    return address(values)


def _check(code: int, what: str) -> None:
    if code != 0:
        raise KernelError(f"the kernels cannot take this: {what} (error {code})")
