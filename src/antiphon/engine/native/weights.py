"""Puts a checkpoint's weights into the form that the native kernels compute with."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import structlog

from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Progress, Tensor
from antiphon.engine.kernels import structs
from antiphon.engine.kernels.decoder import (
    Decoder,
    DecoderLayer,
    DecoderShape,
    DecoderWeights,
    KernelError,
)
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.weight import Floats, Weight
from antiphon.engine.native.structure import Structure

_logger = structlog.get_logger("antiphon.engine")

Quantize = Literal["none", "int8", "int4"]
#: ggml's types that are no blocks, and may be quantised while they are loaded.
_PLAIN = {"F32", "F16", "BF16"}
_LINEAR = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class NativeModel:
    """A model's structure and its weights, packed. `kinds` says how they are stored, in words."""

    structure: Structure
    weights: DecoderWeights
    kinds: str

    def decoder(self, kernels: Kernels, num_blocks: int, num_layers: int | None = None) -> Decoder:
        """A decoder of the first `num_layers`, None for all, with a cache of its own."""
        structure, weights = self.structure, self.weights
        if num_layers is not None:
            weights = DecoderWeights(
                weights.layers[:num_layers], weights.embedding, weights.head, weights.norm
            )
        shape = DecoderShape(
            hidden=structure.hidden,
            ffn=structure.ffn,
            heads=structure.heads,
            kv_heads=structure.kv_heads,
            head_size=structure.head_size,
            inv_freq=structure.inv_freq,
            eps=structure.eps,
            scale=structure.head_size**-0.5,
            rope_scale=structure.rope_scale,
        )
        return kernels.decoder(shape, weights, num_blocks)


class NativeWeights:
    """Packs tensors, one after the other, and remembers how they were stored."""

    def __init__(self, kernels: Kernels, checkpoint: Checkpoint, quantize: Quantize) -> None:
        self._kernels = kernels
        self._tensors = checkpoint.tensors
        self._path = checkpoint.path
        self._quantize = quantize
        self._kinds: Counter[str] = Counter()
        self._unpacked: Counter[str] = Counter()

    def model(self, structure: Structure, progress: Progress) -> NativeModel:
        """The whole model. Raises `LoadError` for tensors of other shapes than they should be."""
        layers = []
        for number, own in enumerate(structure.layers):
            progress("Reading the weights", number, len(structure.layers))
            prefix = f"model.layers.{number}"
            linear: dict[str, Weight] = {
                name: self._linear(f"{prefix}.{part}", *_shape(structure, name))
                for name, part in _LINEAR.items()
            }
            hidden, head_size = structure.hidden, structure.head_size
            layers.append(
                DecoderLayer(
                    **linear,
                    attention_norm=self._vector(f"{prefix}.input_layernorm.weight", hidden),
                    ffn_norm=self._vector(f"{prefix}.post_attention_layernorm.weight", hidden),
                    q_norm=self._maybe(f"{prefix}.self_attn.q_norm.weight", head_size),
                    k_norm=self._maybe(f"{prefix}.self_attn.k_norm.weight", head_size),
                    rotates=own.rotates,
                    window=own.window,
                )
            )
        table = (structure.vocab_size, structure.hidden)
        # A quantised embedding costs more of the quality than it saves.
        embedding = self._matrix("model.embed_tokens.weight", *table, most="int8")
        head = embedding
        if "lm_head.weight" in self._tensors:
            head = self._matrix("lm_head.weight", *table, most="int8")
        norm = self._vector("model.norm.weight", structure.hidden)
        if self._unpacked:
            _logger.warning(
                "weights are not used as they lie in the file",
                reason="the kernels have no form for them, so they are kept as float16",
                types=dict(self._unpacked),
            )
        weights = DecoderWeights(layers, embedding, head, norm)
        return NativeModel(
            structure, weights, " and ".join(n for n, _ in self._kinds.most_common())
        )

    def _linear(self, name: str, rows: int, cols: int) -> Weight:
        weight = self._matrix(f"{name}.weight", rows, cols, most="int4")
        return weight.with_bias(self._maybe(f"{name}.bias", rows))

    def _matrix(self, name: str, rows: int, cols: int, *, most: Quantize) -> Weight:
        tensor = self._tensor(name, (rows, cols))
        kernels, kind = self._kernels, tensor.type
        try:
            if kind.name in _PLAIN and self._quantize != "none" and cols % 32 == 0:
                eighths = self._quantize == "int8" or most == "int8"
                self._kinds["int8" if eighths else "int4"] += 1
                return kernels.quantize(structs.P8 if eighths else structs.P4, tensor.floats())
            self._kinds[kind.name] += 1
            if kind.name not in _PLAIN:
                if kernels.packed_format(kind.number) is not None and cols % 32 == 0:
                    return kernels.pack(kind.number, tensor.data, rows, cols)
                self._unpacked[kind.name] += 1
                return kernels.plain(tensor.floats().astype(np.float16))
            stored = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[kind.name]
            # A copy, so that reading it does not go through the file any more.
            values = tensor.data.copy().view(stored).reshape(rows, cols)
            return kernels.plain(values, bfloat16=kind.name == "BF16")
        except KernelError as error:
            raise LoadError(f"{self._path}: {name} cannot be used: {error}") from error

    def _vector(self, name: str, size: int) -> Floats:
        return self._tensor(name, (size,)).floats()

    def _maybe(self, name: str, size: int) -> Floats | None:
        return self._vector(name, size) if name in self._tensors else None

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LoadError(f"{self._path} lacks {name}")
        if tensor.shape != shape:
            raise LoadError(
                f"{self._path} holds weights of other shapes than it says: "
                f"{name} is {tensor.shape}, not {shape}"
            )
        return tensor


def _shape(structure: Structure, name: str) -> tuple[int, int]:
    """Rows and columns of a layer's weight."""
    queries = structure.heads * structure.head_size
    keys = structure.kv_heads * structure.head_size
    shapes: Mapping[str, tuple[int, int]] = {
        "q": (queries, structure.hidden),
        "k": (keys, structure.hidden),
        "v": (keys, structure.hidden),
        "o": (structure.hidden, queries),
        "gate": (structure.ffn, structure.hidden),
        "up": (structure.ffn, structure.hidden),
        "down": (structure.hidden, structure.ffn),
    }
    return shapes[name]
