"""Writes small GGUF files, after ggml's `docs/gguf.md` and llama.cpp's conversion."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_SCALARS = {
    "uint8": (0, "<B"),
    "int8": (1, "<b"),
    "uint16": (2, "<H"),
    "int16": (3, "<h"),
    "uint32": (4, "<I"),
    "int32": (5, "<i"),
    "float32": (6, "<f"),
    "bool": (7, "<?"),
    "uint64": (10, "<Q"),
    "int64": (11, "<q"),
    "float64": (12, "<d"),
}
TENSOR_CODES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "IQ2_XXS": 16,
    "IQ4_NL": 20,
    "BF16": 30,
}


@dataclass(frozen=True)
class Typed:
    """A metadata value of a kind that Python's own types do not tell: `uint8`, `array:int16`."""

    kind: str
    value: Any


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's raw data. `shape` is row-major, outermost first; a file has it reversed."""

    name: str
    kind: str
    shape: Sequence[int]
    data: bytes


@dataclass
class GGUFWriter:
    """Everything of a file; fields may be set to what no file should hold."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[StoredTensor] = field(default_factory=list)
    version: int = 3
    magic: bytes = b"GGUF"
    alignment: int = 32

    def add_floats(self, name: str, values: Any, kind: str = "F32") -> None:
        """A tensor from a numpy array, stored in one of the ways that `encoded` knows."""
        self.tensors.append(StoredTensor(name, kind, values.shape, encoded(values, kind)))

    def to_bytes(self) -> bytes:
        header = self.magic + struct.pack(
            "<IQQ", self.version, len(self.tensors), len(self.metadata)
        )
        header += b"".join(_string(key) + _value(value) for key, value in self.metadata.items())
        data = b""
        for tensor in self.tensors:
            data += b"\0" * (-len(data) % self.alignment)
            header += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
            header += b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
            code = TENSOR_CODES.get(tensor.kind)
            header += struct.pack("<IQ", int(tensor.kind) if code is None else code, len(data))
            data += tensor.data
        return header + b"\0" * (-len(header) % self.alignment) + data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.to_bytes())
        return path


def encoded(values: Any, kind: str) -> bytes:
    """Values in one of ggml's formats, quantised as its `ggml-quants.c` does."""
    floats = np.ascontiguousarray(values, np.float32)
    if kind == "F32":
        return floats.tobytes()
    if kind == "F16":
        return floats.astype("<f2").tobytes()
    if kind == "BF16":
        return (floats.view(np.uint32) >> 16).astype("<u2").tobytes()
    blocks = floats.reshape(-1, 32)
    if kind == "Q8_0":
        scales = (np.abs(blocks).max(axis=1) / 127).astype("<f2")[:, None]
        return _joined(scales, _steps(blocks, scales, -127, 127).astype(np.int8))
    if kind == "Q4_0":
        largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
        scales = (largest / -8).astype("<f2")
        return _joined(scales, _nibbles(_steps(blocks, scales, -8, 7) + 8))
    if kind == "Q4_1":
        least = blocks.min(axis=1, keepdims=True)
        scales = ((blocks.max(axis=1, keepdims=True) - least) / 15).astype("<f2")
        steps = _steps(blocks - least, scales, 0, 15)
        return _joined(scales, least.astype("<f2"), _nibbles(steps))
    raise ValueError(f"{kind} cannot be written here")


def _steps(
    blocks: npt.NDArray[Any], scales: npt.NDArray[Any], least: int, most: int
) -> npt.NDArray[Any]:
    wide = scales.astype(np.float32)
    return np.rint(blocks / np.where(wide == 0, 1, wide)).clip(least, most)


def _nibbles(steps: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    numbers = steps.astype(np.uint8)
    return numbers[:, :16] | numbers[:, 16:] << 4


def _joined(*columns: npt.NDArray[Any]) -> bytes:
    """The parts of each block, side by side."""
    parts = [np.ascontiguousarray(column).view(np.uint8) for column in columns]
    return np.concatenate(parts, axis=1).tobytes()


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    kind = value.kind if isinstance(value, Typed) else _natural_kind(value)
    return struct.pack("<I", _code(kind)) + _content(
        kind, value.value if isinstance(value, Typed) else value
    )


def _natural_kind(value: Any) -> str:
    if isinstance(value, list):
        return f"array:{_natural_kind(value[0]) if value else 'uint32'}"
    return {str: "string", bool: "bool", int: "uint32", float: "float32"}[type(value)]


def _code(kind: str) -> int:
    if kind.startswith("array:"):
        return 9
    if kind.isdigit():
        return int(kind)
    return 8 if kind == "string" else _SCALARS[kind][0]


def _content(kind: str, value: Any) -> bytes:
    if kind == "string":
        return _string(value)
    if kind.startswith("array:"):
        element = kind.removeprefix("array:")
        content = b"".join(_content(element, each) for each in value)
        return struct.pack("<IQ", _code(element), len(value)) + content
    return b"" if kind.isdigit() else struct.pack(_SCALARS[kind][1], value)


def llama_writer(
    module: Any,
    tokenizer: Any,
    *,
    template: str | None,
    metadata: Mapping[str, Any] | None = None,
    kind: str = "F32",
    kinds: Mapping[str, str] | None = None,
) -> GGUFWriter:
    """A model of transformers (Llama, Mistral, Qwen2 or Qwen3) and a byte-level BPE tokenizer, as
    llama.cpp converts them.

    Matrices are stored as `kind`, or as `kinds` has it for those whose names end so.
    """
    config = module.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    architecture = config.model_type if config.model_type.startswith("qwen") else "llama"
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    added = tokenizer.get_added_tokens_decoder()
    about = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
    }
    if head_size * heads != config.hidden_size:
        about |= {"attention.key_length": head_size, "attention.value_length": head_size}
    writer = GGUFWriter(
        {
            "general.architecture": architecture,
            **{f"{architecture}.{key}": value for key, value in about.items()},
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": Typed(
                "array:int32", [_token_type(added.get(number)) for number in range(len(tokens))]
            ),
            "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
            "tokenizer.ggml.bos_token_id": config.bos_token_id,
            "tokenizer.ggml.eos_token_id": config.eos_token_id,
            **({"tokenizer.chat_template": template} if template is not None else {}),
            **(metadata or {}),
        }
    )
    for name, weight in _named_weights(module):
        values = weight.detach().numpy()
        if architecture == "llama" and ".attn_q." in name:
            values = _permuted(values, heads)
        elif architecture == "llama" and ".attn_k." in name:
            values = _permuted(values, kv_heads)
        own = next((k for end, k in (kinds or {}).items() if name.endswith(end)), kind)
        writer.add_floats(name, values, own if values.ndim == 2 else "F32")
    return writer


def _token_type(added: Any) -> int:
    if added is None:
        return 1
    return 3 if added.special else 4


#: llama.cpp's names by transformers'.
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _named_weights(module: Any) -> Iterable[tuple[str, Any]]:
    for name, weight in module.named_parameters():  # What is tied comes once, as the embedding.
        part, _, suffix = name.rpartition(".")
        if part.startswith("model.layers."):
            number, _, part = part.removeprefix("model.layers.").partition(".")
            yield f"blk.{number}.{_NAMES[part]}.{suffix}", weight
        else:
            yield f"{_NAMES[part]}.{suffix}", weight


def _permuted(values: Any, heads: int) -> Any:
    """llama.cpp's `LlamaModel.permute`, which undoes what transformers did to Meta's weights."""
    rows = values.shape[0]
    halves = values.reshape(heads, 2, rows // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
