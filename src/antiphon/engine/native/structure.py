"""Whether a model is of the Llama shape, and its sizes: what the native decoder needs to know.

The shape: per layer a norm, attention with rotary embedding and grouped heads, a residual, a norm,
a gated feed-forward part and a residual. Llama, Mistral, Qwen2, Qwen3 and SmolLM are of it.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


class OtherShape(Exception):
    """The model is not of the shape. Says in what."""


@dataclass(frozen=True, slots=True)
class LayerStructure:
    """A layer's own: whether it rotates, and how many tokens it sees (0: all)."""

    rotates: bool = True
    window: int = 0


@dataclass(frozen=True, slots=True)
class Structure:
    """Sizes of a model of the Llama shape.

    `rotary` values of a head are rotated, by the angles position * `inv_freq` [rotary / 2];
    `rope_scale` multiplies sines and cosines.
    """

    vocab_size: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int
    inv_freq: npt.NDArray[np.float32]
    rope_scale: float
    eps: float
    tied: bool
    layers: tuple[LayerStructure, ...]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token, in half precision."""
        return len(self.layers) * 2 * self.kv_heads * self.head_size * 2


#: What transformers takes where a configuration is silent, and the types differ.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {
        "head_dim": 128,
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "smollm3": {
        "num_key_value_heads": 4,
        "rope_theta": 2e6,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
}
#: transformers' names of the architectures of this shape.
MODEL_TYPES = tuple(_DEFAULTS)
_LINEAR = (
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
)
_NORMS = ("input_layernorm", "post_attention_layernorm")
_HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_LAYER_TENSOR = re.compile(r"model\.layers\.(\d+)\.(.+)")
_OUTER = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}


def structure_of(config: Mapping[str, Any], tensors: Iterable[str]) -> Structure:
    """The structure of a model by its configuration (transformers') and its tensors' names.

    Raises `OtherShape`.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise OtherShape(f"models of type {kind!r} are not of the Llama shape")
    if config.get("hidden_act", "silu") != "silu":
        raise OtherShape(f"its activation is {config['hidden_act']!r}")
    if config.get("quantization_config"):
        raise OtherShape("its weights are quantised in a way of their own")
    config = {**_DEFAULTS[kind], **config}
    try:
        num_layers = int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        head_size = int(config.get("head_dim") or hidden // heads)
        rotary, inv_freq, rope_scale = _rope(config, head_size)
        structure = Structure(
            vocab_size=int(config["vocab_size"]),
            hidden=hidden,
            ffn=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=head_size,
            rotary=rotary,
            inv_freq=inv_freq,
            rope_scale=rope_scale,
            eps=float(config.get("rms_norm_eps", 1e-6)),
            tied=bool(config.get("tie_word_embeddings", False)),
            layers=tuple(_layer(config, number) for number in range(num_layers)),
        )
    except KeyError as error:
        raise OtherShape(f"its configuration does not say its {error.args[0]}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise OtherShape(f"its configuration makes no sense ({error})") from None
    _check_tensors(structure, kind, set(tensors))
    if head_size > 256 or head_size % 2:
        raise OtherShape(f"its heads are of {head_size} values")
    if structure.heads % structure.kv_heads:
        raise OtherShape(f"{structure.heads} heads do not share {structure.kv_heads} evenly")
    return structure


def _layer(config: Mapping[str, Any], number: int) -> LayerStructure:
    kind, window = config["model_type"], int(config.get("sliding_window") or 0)
    if kind == "llama":
        return LayerStructure()
    if kind == "mistral":
        return LayerStructure(window=window)
    rotates = _rotates(config, number) if kind == "smollm3" else True
    if config.get("layer_types") is not None:
        layer_type = config["layer_types"][number]
        if layer_type not in ("full_attention", "sliding_attention"):
            raise OtherShape(f"it has layers of type {layer_type!r}")
        slides = layer_type == "sliding_attention"
    elif kind == "smollm3":
        slides = not rotates
    else:
        slides = number >= config["max_window_layers"]
    return LayerStructure(rotates, window if slides and config.get("use_sliding_window") else 0)


def _rotates(config: Mapping[str, Any], number: int) -> bool:
    rotating = config.get("no_rope_layers")  # Those that do rotate are 1 in it.
    if rotating is not None:
        return bool(rotating[number])
    return (number + 1) % int(config["no_rope_layer_interval"]) != 0


def _rope(config: Mapping[str, Any], head_size: int) -> tuple[int, npt.NDArray[np.float32], float]:
    """How many values of a head are rotated, how fast, and the scale of sines and cosines.

    After transformers' `modeling_rope_utils.py`.
    """
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(parameters.get("rope_theta") or config.get("rope_theta") or 10000.0)
    part = parameters.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    rotary = int(head_size * part)
    inv_freq = 1.0 / theta ** (np.arange(0, rotary, 2, dtype=np.float64) / rotary)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if "factors" in parameters:
        inv_freq = inv_freq / np.asarray(parameters["factors"], np.float64)
    if kind == "linear":
        inv_freq = inv_freq / float(parameters["factor"])
    elif kind == "llama3":
        inv_freq = _llama3(inv_freq, parameters)
    elif kind != "default":
        raise OtherShape(f"its rotary embedding is scaled by {kind!r}")
    return rotary, inv_freq.astype(np.float32), 1.0


def _llama3(
    inv_freq: npt.NDArray[np.float64], parameters: Mapping[str, Any]
) -> npt.NDArray[np.float64]:
    """Long waves slowed down by a factor, short ones left, those between interpolated."""
    factor = float(parameters["factor"])
    low, high = float(parameters["low_freq_factor"]), float(parameters["high_freq_factor"])
    original = float(parameters["original_max_position_embeddings"])
    waves = 2 * math.pi / inv_freq
    smooth = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    return np.asarray((1 - smooth) * inv_freq / factor + smooth * inv_freq)


def _check_tensors(structure: Structure, kind: str, names: set[str]) -> None:
    """Raise `OtherShape` for a tensor that is missing or not of the shape."""
    if not names:
        raise OtherShape("its weights are not in safetensors files")
    parts = {f"{part}.weight" for part in (*_LINEAR, *_NORMS)}
    if kind == "qwen2":
        parts |= {f"self_attn.{part}_proj.bias" for part in "qkv"}
    elif kind == "qwen3":
        parts |= {f"{part}.weight" for part in _HEAD_NORMS}
    allowed = parts | {f"{part}.bias" for part in _LINEAR}
    for name in names:
        found = _LAYER_TENSOR.fullmatch(name)
        if name not in _OUTER and (found is None or found[2] not in allowed):
            if name.endswith("rotary_emb.inv_freq"):
                continue  # Worked out again.
            raise OtherShape(f"it has a tensor {name}")
    wanted = {"model.embed_tokens.weight", "model.norm.weight"}
    if not structure.tied:
        wanted.add("lm_head.weight")
    for number in range(len(structure.layers)):
        wanted |= {f"model.layers.{number}.{part}" for part in parts}
    missing = sorted(wanted - names)
    if missing:
        raise OtherShape(f"it has no tensor {missing[0]}")
