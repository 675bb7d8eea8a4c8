"""Reads a model from a GGUF file, and tells it in transformers' words."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Tensor, flat
from antiphon.engine.checkpoints.gguf import GGUFError, GGUFFile
from antiphon.engine.checkpoints.gguf_tokenizer import gguf_tokenizer

#: transformers' names for a layer's tensors, by GGUF's.
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
#: Architectures that have these tensors.
_ARCHITECTURES = ("llama", "qwen2", "qwen3")


class _Named(dict[str, Any]):
    """What a file holds under names. One that is missing is a `LoadError`."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self._path = path

    def __missing__(self, name: str) -> NoReturn:
        raise LoadError(f"{self._path} lacks {name}")


def read_gguf(path: Path) -> Checkpoint:
    """The model in a file. Raises `LoadError`."""
    try:
        file = GGUFFile(path)
    except GGUFError as error:
        raise LoadError(str(error)) from error
    try:
        return _checkpoint(path, file)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise LoadError(f"{path} says of itself what makes no sense: {error}") from error


def _checkpoint(path: Path, file: GGUFFile) -> Checkpoint:
    meta = _Named(path, file.metadata)
    architecture = meta.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise LoadError(
            f"{path} holds a model of architecture {architecture!r}; of GGUF files those of "
            f"{', '.join(_ARCHITECTURES)} are supported. Use its folder of safetensors instead."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    variables = {
        f"{name}_token": tokens[meta[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in meta
    }
    config = _config(path, meta, _Named(path, file.tensors))
    return Checkpoint(
        path=path,
        config=config,
        tensors=_tensors(path, config, file.tensors),
        tokenizer=gguf_tokenizer(path, meta),
        template=meta.get("tokenizer.chat_template"),
        variables=variables,
        stop_tokens=flat(
            [meta.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
        ),
    )


def _config(path: Path, meta: _Named, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    architecture = meta["general.architecture"]

    def of(name: str) -> Any:
        return meta[f"{architecture}.{name}"]

    def maybe(name: str, default: Any) -> Any:
        return meta.get(f"{architecture}.{name}", default)

    heads = int(of("attention.head_count"))
    hidden_size = int(of("embedding_length"))
    head_size = int(maybe("attention.key_length", hidden_size // heads))
    if maybe("attention.value_length", head_size) != head_size:
        raise LoadError(f"{path} has keys and values of different sizes")
    biased = "blk.0.attn_q.bias" in tensors
    return {
        "model_type": architecture,
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": int(of("feed_forward_length")),
        "num_hidden_layers": int(of("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(maybe("attention.head_count_kv", heads)),
        "head_dim": head_size,
        "hidden_act": "silu",
        "max_position_embeddings": int(of("context_length")),
        "rms_norm_eps": float(of("attention.layer_norm_rms_epsilon")),
        "rope_parameters": _rope(path, maybe, head_size, tensors),
        "sliding_window": None,
        "use_sliding_window": False,
        "attention_bias": biased and architecture != "qwen2",
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in tensors,
    }


def _rope(path: Path, maybe: Any, head_size: int, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": float(maybe("rope.freq_base", 10000.0)),
    }
    rotary = int(maybe("rope.dimension_count", head_size))
    if rotary != head_size:
        raise LoadError(
            f"{path} rotates {rotary} of the {head_size} values of a head, which is not supported "
            "yet. Use its folder of safetensors instead."
        )
    if "rope_freqs.weight" in tensors:
        # What each frequency is divided by, worked out when the file was made.
        parameters["factors"] = tensors["rope_freqs.weight"].floats().tolist()
    kind = maybe("rope.scaling.type", "none")
    if kind == "linear":
        parameters |= {"rope_type": "linear", "factor": float(maybe("rope.scaling.factor", 1.0))}
    elif kind != "none":
        raise LoadError(
            f"{path} scales its rotary embedding in a way ({kind!r}) that is not supported yet. "
            "Use its folder of safetensors instead."
        )
    return parameters


def _tensors(
    path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors under transformers' names, and their rows in its order."""
    named = {}
    for name, tensor in tensors.items():
        if name == "rope_freqs.weight":
            continue
        if config["model_type"] == "llama":
            if ".attn_q." in name:
                tensor = tensor.reordered(
                    _halves_first(path, tensor, "num_attention_heads", config)
                )
            elif ".attn_k." in name:
                tensor = tensor.reordered(
                    _halves_first(path, tensor, "num_key_value_heads", config)
                )
        own = _name(path, name)
        named[own] = Tensor(own, tensor.type, tensor.shape, tensor.data)
    return named


def _name(path: Path, name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{suffix}"
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if found is None or found[2] not in _LAYER:
        raise LoadError(f"{path} holds a tensor {name}, which is not known of such a model")
    return f"model.layers.{found[1]}.{_LAYER[found[2]]}.{suffix}"


def _halves_first(
    path: Path, tensor: Tensor, heads_name: str, config: Mapping[str, Any]
) -> npt.NDArray[np.intp]:
    """The order of rows that transformers has: GGUF interleaves the halves of a head that rotary
    embedding pairs."""
    rows, heads = tensor.shape[0], config[heads_name]
    if rows % (2 * heads):
        raise LoadError(f"{path} holds weights of other shapes than it says: {tensor.name}")
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)
