"""Finds out how a model attends: by running it once and looking at what its attention is given."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from antiphon.engine.runners.attention import AttentionLayer, Reach, refuse_unknown, weigh

#: Tokens of the run. What matters does not depend on them.
_NUM_TOKENS = 4
#: Longer than any window that matters.
_FAR = (1 << 20) + 7
_PAGED_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
#: Layers that do not attend, and so keep nothing.
_EMPTY_LAYERS = {"moe", "mlp"}


class NotPageable(Exception):
    """A model's keys and values cannot be kept in blocks. Says why, after "because"."""


def survey(module: PreTrainedModel) -> list[AttentionLayer]:
    """The calls of the attention function in one forward pass, in their order.

    Masks are made by transformers out of a function of two positions. That function is examined, so
    that windows are known for certain, however long. Raises `NotPageable`.
    """
    _check_structure(module)
    name = "antiphon-survey"
    surveyor = _Surveyor()
    ALL_ATTENTION_FUNCTIONS[name] = surveyor.attend
    AttentionMaskInterface.register(name, _examined_mask)
    before = module.config._attn_implementation
    try:
        module.set_attn_implementation(name)
        with torch.inference_mode():
            tokens = torch.arange(_NUM_TOKENS, device=module.device)[None]
            module(input_ids=tokens, position_ids=tokens, use_cache=False)
    except ValueError as error:
        raise NotPageable(str(error)) from error
    finally:
        module.set_attn_implementation(before)
        del ALL_ATTENTION_FUNCTIONS[name]
    if not surveyor.layers:
        raise NotPageable("it does not attend through transformers' attention interface")
    return surveyor.layers


def vocab_size_of(module: PreTrainedModel) -> int:
    """How many scores a model gives; some have room for more tokens than they know."""
    head: Any = module.get_output_embeddings()
    weight = getattr(head, "weight", None)
    return int(module.config.get_text_config().vocab_size if weight is None else weight.shape[0])


def weights_of(module: PreTrainedModel) -> str:
    """How a model's weights are kept and by what they are computed, in words."""
    kind = str(module.dtype).removeprefix("torch.")
    return f"{kind}, computed by torch on {module.device.type}"


def _check_structure(module: PreTrainedModel) -> None:
    config: Any = module.config.get_text_config()
    if module.config.is_encoder_decoder:
        raise NotPageable("it has an encoder")
    kinds = set(getattr(config, "layer_types", None) or ()) - _EMPTY_LAYERS - _PAGED_LAYERS
    if kinds:
        raise NotPageable(f"it has layers of another kind ({', '.join(sorted(kinds))})")
    if getattr(module, "_is_stateful", False):
        raise NotPageable("it keeps a state that is not made of keys and values")
    if not module._can_set_attn_implementation():
        raise NotPageable("it does not attend through transformers' attention interface")
    if "position_ids" not in inspect.signature(module.forward).parameters:
        raise NotPageable("it takes no positions")
    for submodule in module.modules():
        rotations = getattr(submodule, "rope_type", None)
        for rotation in rotations.values() if isinstance(rotations, dict) else [rotations]:
            if rotation is not None and ("dynamic" in rotation or rotation == "longrope"):
                raise NotPageable(
                    f"its positions are encoded in a way that depends on the length of the text "
                    f"({rotation})"
                )
    if "mrope_section" in (getattr(config, "rope_parameters", None) or {}):
        raise NotPageable("its positions have several axes")


class _Surveyor:
    """Attends as a model expects, and notes how."""

    def __init__(self) -> None:
        self.layers: list[AttentionLayer] = []

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        """An attention function: [1, heads, T, size] in, [1, T, heads, size] out."""
        refuse_unknown(options)
        if is_causal is False or getattr(module, "is_causal", True) is False:
            raise ValueError("its attention is not causal")
        reach = getattr(attention_mask, "reach", None)
        if attention_mask is None or reach is None:
            raise ValueError("its attention has no mask, or one of its own making")
        if not (query.shape[2] == key.shape[2] == value.shape[2] == _NUM_TOKENS):
            raise ValueError("it attends to other tokens than its own")
        num_kv_heads = key.shape[1]
        num_grouped = query.shape[1] // num_kv_heads
        self.layers.append(
            AttentionLayer(
                query.shape[1],
                num_kv_heads,
                key.shape[3],
                value.shape[3],
                reach,
                has_sinks=s_aux is not None,
            )
        )
        seen = weigh(
            query,
            key.repeat_interleave(num_grouped, 1),
            value.repeat_interleave(num_grouped, 1),
            attention_mask,
            scaling=query.shape[3] ** -0.5 if scaling is None else scaling,
            softcap=softcap,
            sinks=None if s_aux is None else s_aux.view(1, -1, 1, 1),
        )
        return seen.transpose(1, 2).contiguous(), None


def _examined_mask(
    *,
    mask_function: Callable[..., torch.Tensor],
    local_size: int | None = None,
    **options: Any,
) -> torch.Tensor | None:
    """An ordinary mask that says, as `reach`, what it lets tokens look at; None if unknown."""
    mask: Any = eager_mask(mask_function=mask_function, **options)
    if mask is None:  # Everything may be looked at.
        return None
    mask.reach = _reach(mask_function, local_size)
    examined: torch.Tensor = mask
    return examined


def _reach(mask_function: Callable[..., torch.Tensor], local_size: int | None) -> Reach | None:
    reaches = [Reach()]
    if local_size is not None:
        reaches += [Reach(window=local_size), Reach(chunk=local_size)]
    sizes = [1, 2, 3, local_size or 16]
    queries = sorted(
        {_FAR, *(size * times + off for size in sizes for times in (1, 3) for off in (-1, 0, 1))}
    )
    for reach in reaches:
        if all(_lets_see(mask_function, query, reach) for query in queries):
            return reach
    return None


def _lets_see(mask_function: Callable[..., torch.Tensor], query: int, reach: Reach) -> bool:
    """Whether a token sees what it sees with `reach`, and no more."""
    zero = torch.tensor(0)
    keys = torch.arange(query + 3)
    try:
        seen = mask_function(zero, zero, torch.tensor(query), keys)
    except (IndexError, RuntimeError):  # It looks positions up, in something shorter.
        return False
    lowest = int(reach.lowest(torch.tensor([query]).numpy())[0])
    return bool(torch.equal(seen.expand(keys.shape), (keys >= lowest) & (keys <= query)))
