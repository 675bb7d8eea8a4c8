"""The embedded model's weights as a folder that transformers loads without converting anything."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from antiphon.engine.checkpoints.gguf import GGUFFile

_CONTROL = 3  # A token type of GGUF.
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def float32_folder(gguf: Path, cache_dir: Path) -> Path:
    """A folder with the weights of SmolLM2's GGUF file as float32; written once (540 MB)."""
    folder = cache_dir / "benchmarks" / f"{gguf.stem}-float32"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = GGUFFile(gguf)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".weights-") as scratch:
        made = Path(scratch, "folder")
        made.mkdir()
        write_tokenizer(file.metadata, made)
        _write_json(made / "config.json", _config(file.metadata))
        heads = int(file.metadata["llama.attention.head_count"])
        kv_heads = int(file.metadata["llama.attention.head_count_kv"])
        state = {}
        for name, tensor in file.tensors.items():
            values = tensor.floats()
            if ".attn_q." in name or ".attn_k." in name:
                values = _unpermuted(values, heads if ".attn_q." in name else kv_heads)
            state[_name(name)] = np.ascontiguousarray(values)
        save_file(state, made / "model.safetensors", {"format": "pt"})
        # Renamed as a whole: a run that was broken off leaves no half of a model.
        made.rename(folder)
    return folder


def write_tokenizer(meta: Mapping[str, Any], folder: Path) -> None:
    """Write the tokenizer and chat template of SmolLM2's GGUF file into a folder."""
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: n for n, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokens[meta["tokenizer.ggml.eos_token_id"]]
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": meta["tokenizer.chat_template"],
            "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
            "eos_token": end,
            "pad_token": end,
            "model_max_length": meta["llama.context_length"],
            "clean_up_tokenization_spaces": False,
        },
    )
    _write_json(
        folder / "generation_config.json", {"eos_token_id": meta["tokenizer.ggml.eos_token_id"]}
    )


def _config(meta: Mapping[str, Any]) -> dict[str, Any]:
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
    }


def _name(name: str) -> str:
    """transformers' name for a tensor of GGUF's."""
    stem, _, suffix = name.rpartition(".")
    if stem in _OUTER:
        return f"{_OUTER[stem]}.{suffix}"
    block, _, part = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{_LAYER[part]}.{suffix}"


def _unpermuted(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows in transformers' order: GGUF interleaves the halves that rotary embedding pairs."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
