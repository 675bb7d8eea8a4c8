"""Loads a model: from a GGUF file, a folder or a hub name.

A GGUF file is read by our own reader and put into transformers' own layers; folders and hub names
go through transformers. Importing this module imports torch and transformers, which takes seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HubTokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    PreTrainedModel,
)

from antiphon.engine.gguf import GGUFError, GGUFFile, Tensor
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.errors import StartError

#: Told how far loading is: what is being done, steps done, steps in all (0: unknown).
Progress = Callable[[str, int, int], None]


class LoadError(StartError):
    """The model cannot be loaded."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what came with it.

    `stop_tokens` end an answer; `template` is its chat template, `variables` what that may use.
    `temperature` and `top_p` are the sampling it was made for, None where it does not say.
    """

    module: PreTrainedModel
    tokenizer: PromptTokenizer
    template: str | None
    variables: Mapping[str, str]
    context_window: int
    stop_tokens: frozenset[int]
    temperature: float | None
    top_p: float | None


def load(source: str, progress: Progress) -> LoadedModel:
    """Load the model at `source`. Raises `LoadError`."""
    path = Path(source).expanduser()
    try:
        if path.is_file():
            return _load_gguf(path, progress)
        if path.is_dir():
            if not (path / "config.json").is_file():
                raise LoadError(f"{path} holds no model: there is no config.json in it")
            return _load_pretrained(str(path), progress)
        if _looks_like_path(source):
            raise LoadError(f"{source} does not exist")
        return _load_pretrained(source, progress)
    except GGUFError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"{source} cannot be read: {error.strerror}") from error


def _looks_like_path(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.count("/") != 1 or source.endswith(".gguf")


# --- folders and hub names ---


def _load_pretrained(source: str, progress: Progress) -> LoadedModel:
    try:
        progress("Reading the tokenizer", 0, 0)
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
        progress("Reading the weights", 0, 0)
        module = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise LoadError(f"{source} cannot be loaded: {error}") from error
    generation = _generation_config(source)
    text_config = config.get_text_config()
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()))
    stops = [tokenizer.eos_token_id, text_config.eos_token_id, generation.eos_token_id]
    sampled = bool(generation.do_sample)
    return LoadedModel(
        module.eval(),
        PromptTokenizer(tokenizer.backend_tokenizer),
        template,
        {name: str(value) for name, value in tokenizer.special_tokens_map.items()},
        int(text_config.max_position_embeddings),
        frozenset(_flat(stops)),
        generation.temperature if sampled else None,
        generation.top_p if sampled else None,
    )


def _generation_config(source: str) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:
        return GenerationConfig()


def _flat(values: list[Any]) -> list[int]:
    """Ids out of a list of ids, lists of ids and nothing."""
    flat: list[int] = []
    for value in values:
        if value is not None:
            flat += value if isinstance(value, list) else [value]
    return flat


# --- GGUF ---

#: How pre-tokenizers named in GGUF files cut a text (llama.cpp's `llama-vocab.cpp`). None stands
#: for GPT-2's own rule, which `ByteLevel` has built in.
_PRE_TOKENIZERS: Mapping[str, pre_tokenizers.PreTokenizer | None] = {
    "gpt-2": None,
    "smollm": pre_tokenizers.Digits(individual_digits=True),
    "llama-bpe": pre_tokenizers.Split(
        Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        "isolated",
    ),
}
_CONTROL, _USER_DEFINED = 3, 4  # Token types.


class _Named(dict[str, Any]):
    """What a file holds under names. One that is missing is a `LoadError`."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self._path = path

    def __missing__(self, name: str) -> NoReturn:
        raise LoadError(f"{self._path} lacks {name}")


def _load_gguf(path: Path, progress: Progress) -> LoadedModel:
    file = GGUFFile(path)
    meta = _Named(path, file.metadata)
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise LoadError(
            f"{path} holds a model of architecture {architecture!r}; of GGUF files only those of "
            "architecture 'llama' are supported yet. Use its folder of safetensors instead."
        )
    progress("Reading the tokenizer", 0, 0)
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    tokenizer = PromptTokenizer(_gguf_tokenizer(path, meta))
    module = _gguf_llama(path, meta, _Named(path, file.tensors), progress)
    stops = [meta.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    variables = {
        f"{name}_token": tokens[meta[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in meta
    }
    return LoadedModel(
        module,
        tokenizer,
        meta.get("tokenizer.chat_template"),
        variables,
        int(meta["llama.context_length"]),
        frozenset(_flat(stops)),
        None,
        None,
    )


def _gguf_tokenizer(path: Path, meta: Mapping[str, Any]) -> HubTokenizer:
    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise LoadError(
            f"{path} has a tokenizer ({kind!r}, {pre!r}) that is not supported yet. "
            "Use its folder of safetensors instead."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # Llama 3's vocabulary has words that no merges lead to.
    whole_words = pre == "llama-bpe"
    tokenizer = HubTokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    first = _PRE_TOKENIZERS[pre]
    own_rule = first is None or pre == "smollm"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_rule)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [first, byte_level] if first else [byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for number, token_type in enumerate(meta["tokenizer.ggml.token_type"]):
        if token_type == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(tokens[number], special=True)])
        elif token_type == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(tokens[number])])
    return tokenizer


#: transformers' names for a Llama layer's tensors, by GGUF's.
_LLAMA_LAYER = {
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
_LLAMA_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def _gguf_llama(
    path: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor], progress: Progress
) -> PreTrainedModel:
    if "rope_freqs.weight" in tensors or meta.get("llama.rope.scaling.type", "none") != "none":
        raise LoadError(f"{path} scales its rotary embedding, which is not supported yet")
    hidden_size = int(meta["llama.embedding_length"])
    heads = int(meta["llama.attention.head_count"])
    kv_heads = int(meta.get("llama.attention.head_count_kv", heads))
    config = LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=hidden_size,
        intermediate_size=int(meta["llama.feed_forward_length"]),
        num_hidden_layers=int(meta["llama.block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=int(meta.get("llama.attention.key_length", hidden_size // heads)),
        max_position_embeddings=int(meta["llama.context_length"]),
        rms_norm_eps=float(meta["llama.attention.layer_norm_rms_epsilon"]),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(meta.get("llama.rope.freq_base", 10000.0)),
        },
        tie_word_embeddings="output.weight" not in tensors,
        dtype="float32",
    )
    state: dict[str, torch.Tensor] = {}
    for number, (name, tensor) in enumerate(tensors.items(), 1):
        weight = torch.from_numpy(tensor.floats())
        if ".attn_q." in name:
            weight = _unpermuted(weight, heads)
        elif ".attn_k." in name:
            weight = _unpermuted(weight, kv_heads)
        state[_llama_name(path, name)] = weight
        progress("Reading the weights", number, len(tensors))
    with torch.device("meta"):
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    try:
        module.load_state_dict(state, strict=False, assign=True)
    except RuntimeError as error:
        raise LoadError(f"{path} holds weights of other shapes than it says: {error}") from error
    module.tie_weights()
    inner: Any = module.model
    # Computed, not loaded; on the meta device it was not.
    inner.rotary_emb = type(inner.rotary_emb)(config=config)
    unset = [name for name, weight in module.named_parameters() if weight.is_meta]
    if unset:
        raise LoadError(f"{path} lacks weights: {', '.join(unset[:3])}")
    return module.eval()


def _llama_name(path: Path, name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _LLAMA_OUTER:
        return f"{_LLAMA_OUTER[stem]}.{suffix}"
    block, _, part = stem.removeprefix("blk.").partition(".")
    if part not in _LLAMA_LAYER:
        raise LoadError(f"{path} holds a tensor {name} that a Llama does not have")
    return f"model.layers.{block}.{_LLAMA_LAYER[part]}.{suffix}"


def _unpermuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows in transformers' order: GGUF interleaves the halves that rotary embedding pairs."""
    rows = weight.shape[0]
    paired = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return paired.swapaxes(1, 2).reshape(weight.shape).contiguous()
