"""Writes small GGUF files, after ggml's `docs/gguf.md` and llama.cpp's conversion."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
TENSOR_CODES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "BF16": 30}


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

    def add_floats(self, name: str, values: Any) -> None:
        """A float32 tensor from a numpy array."""
        self.tensors.append(
            StoredTensor(name, "F32", values.shape, values.astype("<f4").tobytes(order="C"))
        )

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
    module: Any, tokenizer: Any, *, template: str | None, metadata: Mapping[str, Any] | None = None
) -> GGUFWriter:
    """A Llama of transformers and a byte-level BPE tokenizer, as llama.cpp converts them."""
    config = module.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    added = tokenizer.get_added_tokens_decoder()
    writer = GGUFWriter(
        {
            "general.architecture": "llama",
            "llama.block_count": config.num_hidden_layers,
            "llama.context_length": config.max_position_embeddings,
            "llama.embedding_length": config.hidden_size,
            "llama.feed_forward_length": config.intermediate_size,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv_heads,
            "llama.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
            "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
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
        if ".attn_q." in name:
            values = _permuted(values, heads)
        elif ".attn_k." in name:
            values = _permuted(values, kv_heads)
        writer.add_floats(name, values)
    return writer


def _token_type(added: Any) -> int:
    if added is None:
        return 1
    return 3 if added.special else 4


def _named_weights(module: Any) -> Iterable[tuple[str, Any]]:
    yield "token_embd.weight", module.model.embed_tokens.weight
    yield "output_norm.weight", module.model.norm.weight
    if not module.config.tie_word_embeddings:
        yield "output.weight", module.lm_head.weight
    for number, layer in enumerate(module.model.layers):
        block = f"blk.{number}"
        yield f"{block}.attn_norm.weight", layer.input_layernorm.weight
        yield f"{block}.ffn_norm.weight", layer.post_attention_layernorm.weight
        yield f"{block}.attn_q.weight", layer.self_attn.q_proj.weight
        yield f"{block}.attn_k.weight", layer.self_attn.k_proj.weight
        yield f"{block}.attn_v.weight", layer.self_attn.v_proj.weight
        yield f"{block}.attn_output.weight", layer.self_attn.o_proj.weight
        yield f"{block}.ffn_gate.weight", layer.mlp.gate_proj.weight
        yield f"{block}.ffn_up.weight", layer.mlp.up_proj.weight
        yield f"{block}.ffn_down.weight", layer.mlp.down_proj.weight


def _permuted(values: Any, heads: int) -> Any:
    """llama.cpp's `LlamaModel.permute`, which undoes what transformers did to Meta's weights."""
    rows = values.shape[0]
    halves = values.reshape(heads, 2, rows // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
