"""transformers' modules from checkpoints. Importing this imports torch and transformers, which
takes seconds."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tokenizers import Tokenizer as HubTokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Progress, Tensor


def pretrained(checkpoint: Checkpoint, dtype: torch.dtype, progress: Progress) -> PreTrainedModel:
    """The whole model as transformers loads it from a folder. Raises `LoadError`."""
    progress("Reading the weights", 0, 0)
    transformers_logging.disable_progress_bar()
    try:
        module, info = AutoModelForCausalLM.from_pretrained(
            str(checkpoint.path), dtype=dtype, output_loading_info=True
        )
    except Exception as error:  # Each model has code of its own to read it.
        raise LoadError(f"{checkpoint.path} cannot be loaded: {error}") from error
    if info["missing_keys"]:  # They would be made up.
        some = ", ".join(sorted(info["missing_keys"])[:3])
        raise LoadError(f"{checkpoint.path} lacks weights: {some}")
    return module.eval()


def pretrained_tokenizer(checkpoint: Checkpoint) -> HubTokenizer:
    """The tokenizer of a folder that keeps it in another form than `tokenizer.json`.

    Raises `LoadError`.
    """
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(checkpoint.path))
    except (OSError, ValueError, ImportError) as error:
        raise LoadError(f"{checkpoint.path} has no tokenizer: {error}") from error
    backend: HubTokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise LoadError(f"{checkpoint.path} has a tokenizer that cannot be used: {type(tokenizer)}")
    return backend


def assembled(checkpoint: Checkpoint, progress: Progress) -> PreTrainedModel:
    """The whole model from a checkpoint's own tensors, as float32. Raises `LoadError`."""
    tensors = checkpoint.tensors
    with torch.device("meta"):
        module: PreTrainedModel = AutoModelForCausalLM.from_config(_config(checkpoint.config))
    state = {}
    for number, (name, tensor) in enumerate(tensors.items(), 1):
        state[name] = torch.from_numpy(tensor.floats())
        progress("Reading the weights", number, len(tensors))
    try:
        module.load_state_dict(state, strict=False, assign=True)
    except RuntimeError as error:
        raise LoadError(
            f"{checkpoint.path} holds weights of other shapes than it says: {error}"
        ) from error
    module.tie_weights()
    _compute_rotary(module.model, checkpoint.config)
    unset = [name for name, weight in module.named_parameters() if weight.is_meta]
    if unset:
        raise LoadError(f"{checkpoint.path} lacks weights: {', '.join(unset[:3])}")
    return module.eval()


def first_layers(
    config: Mapping[str, Any],
    tensor: Callable[[str], Tensor | None],
    tokens: list[int],
    num_layers: int,
) -> torch.Tensor:
    """What transformers' own first layers make of tokens: [tokens, hidden], before the last norm.

    `tensor` gives the weights by name. Only the embeddings of these tokens are read, so that a
    large vocabulary costs nothing.
    """
    shorter = dict(config) | {"num_hidden_layers": num_layers, "vocab_size": 8}
    if shorter.get("layer_types"):
        shorter["layer_types"] = shorter["layer_types"][:num_layers]
    if shorter.get("no_rope_layers"):
        shorter["no_rope_layers"] = shorter["no_rope_layers"][:num_layers]
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        shorter[name] = None
    shorter["tie_word_embeddings"] = True
    own = _config(shorter)
    own._attn_implementation = "eager"
    module: Any = AutoModelForCausalLM.from_config(own, dtype=torch.float32).model.eval()
    state = {}
    for name in module.state_dict():
        found = tensor(f"model.{name}") if name.startswith("layers.") else None
        if found is not None:
            state[name] = torch.from_numpy(found.floats())
    missing = module.load_state_dict(state, strict=False).missing_keys
    unset = [name for name in missing if name.startswith("layers.")]
    assert not unset, unset
    _compute_rotary(module, config)
    module.norm = torch.nn.Identity()
    embedding = tensor("model.embed_tokens.weight")
    assert embedding is not None
    rows = [
        Tensor("", embedding.type, (1, embedding.shape[1]), embedding.rows()[token]).floats()[0]
        for token in tokens
    ]
    inputs = torch.stack([torch.from_numpy(row) for row in rows])[None]
    with torch.inference_mode():
        hidden: torch.Tensor = module(inputs_embeds=inputs, use_cache=False).last_hidden_state[0]
    return hidden


def _config(config: Mapping[str, Any]) -> Any:
    values = {name: value for name, value in config.items() if name != "model_type"}
    rope = values.get("rope_parameters")
    if rope is not None:
        values["rope_parameters"] = {k: v for k, v in rope.items() if k != "factors"}
    try:
        return AutoConfig.for_model(config["model_type"], **values)
    except ValueError as error:
        raise LoadError(f"transformers does not know this model: {error}") from error


def _compute_rotary(inner: Any, config: Mapping[str, Any]) -> None:
    """Work out the rotary embedding: it is not loaded, and on the meta device it was not made."""
    inner.rotary_emb = type(inner.rotary_emb)(config=inner.config)
    factors = (config.get("rope_parameters") or {}).get("factors")
    if factors is not None:
        inner.rotary_emb.inv_freq /= torch.tensor(factors)
