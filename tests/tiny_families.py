"""Models of eight families, each with all that is peculiar to it, of random weights and tiny."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tiny_models import CHATML, byte_level_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

_TOKENIZER = byte_level_tokenizer()
VOCAB_SIZE = _TOKENIZER.get_vocab_size()
_END = _TOKENIZER.token_to_id("<|endoftext|>")
STOP_TOKENS = frozenset({_END, _TOKENIZER.token_to_id("<|im_end|>")})
#: Smaller than the prompts of the tests, so that it matters.
WINDOW = 20

_MIXED = ["sliding_attention", "full_attention"]
_MOE = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
_FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {
        "head_dim": 16,
        "query_pre_attn_scalar": 12,
        "sliding_window": WINDOW,
        "layer_types": _MIXED,
        # Low, so that scores are bent.
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        # What its way to encode positions is made for.
        "max_position_embeddings": 131072,
        "head_dim": 16,
        "sliding_window": WINDOW,
        "layer_types": _MIXED,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "glm4_moe": {"head_dim": 16, "use_qk_norm": True, **_MOE},
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 12,
        **_MOE,
    },
    "qwen3_next": {
        "head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
}

FAMILIES = tuple(_FAMILIES)
#: Those that must be run on the paged path.
PAGED = tuple(name for name in FAMILIES if name != "qwen3_next")


@cache
def tiny_module(family: str, vocab_size: int = VOCAB_SIZE) -> PreTrainedModel:
    """A random model of a family, always the same. Not to be changed."""
    values: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        # Larger than usual, so that a random model has clear preferences.
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
        "bos_token_id": _END,
        "eos_token_id": _END,
        "pad_token_id": _END,
        **_FAMILIES[family],
    }
    config = AutoConfig.for_model(family, **values)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, weight in module.named_parameters():
            if "norm" in name or "sinks" in name:
                # What starts as ones or zeros would hide that it is left out.
                torch.nn.init.normal_(weight, weight.mean().item(), 0.2)
    return module.eval()


def save(folder: Path, family: str) -> Path:
    """The model of a family as transformers keeps it, with the tiny byte-level tokenizer."""
    transformers_logging.disable_progress_bar()
    tiny_module(family).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=CHATML,
    )
    tokenizer.save_pretrained(folder)
    return folder


def greedy(family: str, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers' own loop makes of a prompt, up to a token that ends a text."""
    ids = torch.tensor([prompt])
    made = tiny_module(family).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=sorted(STOP_TOKENS),
        pad_token_id=_END,
    )
    tokens: list[int] = made[0, len(prompt) :].tolist()
    return tokens
