"""Models of the Llama shape, of random weights: saved as folders and GGUF files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gguf_files import GGUFWriter, llama_writer
from tiny_models import CHATML, byte_level_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

_TOKENIZER = byte_level_tokenizer()
VOCAB_SIZE = _TOKENIZER.get_vocab_size()
#: Smaller than the prompts of the tests, so that it matters.
WINDOW = 20

_FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {},
    # Heads that are wider than what they are made of.
    "qwen3": {"head_dim": 48},
    "smollm3": {"num_hidden_layers": 4, "pad_token_id": None},
}
FAMILIES = tuple(_FAMILIES)


def new_module(family: str = "llama", **changes: Any) -> PreTrainedModel:
    """A module of a family, always the same for the same changes."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        # Larger than usual, so that a random model has clear preferences.
        "initializer_range": 0.1,
        "tie_word_embeddings": False,
        "bos_token_id": _TOKENIZER.token_to_id("<|endoftext|>"),
        "eos_token_id": _TOKENIZER.token_to_id("<|endoftext|>"),
        **_FAMILIES[family],
        **changes,
    }
    config = AutoConfig.for_model(family, **values)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, weight in module.named_parameters():
            if "norm" in name or name.endswith("bias"):
                # What starts as ones or zeros would hide that it is left out.
                torch.nn.init.normal_(weight, weight.mean().item(), 0.2)
    return module.eval()


def save(folder: Path, module: PreTrainedModel) -> Path:
    """A module as transformers keeps it, with the tiny byte-level tokenizer."""
    transformers_logging.disable_progress_bar()
    module.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=CHATML,
    )
    tokenizer.save_pretrained(folder)
    return folder


def writer(module: PreTrainedModel, **options: Any) -> GGUFWriter:
    """A module as llama.cpp keeps it."""
    return llama_writer(module, byte_level_tokenizer(), **{"template": CHATML, **options})
