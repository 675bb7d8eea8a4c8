"""Which models are of the Llama shape, and what the decoder is told of them."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from llama_shapes import FAMILIES, WINDOW, new_module
from transformers import AutoConfig

from antiphon.engine.native.structure import (
    MODEL_TYPES,
    LayerStructure,
    OtherShape,
    Structure,
    structure_of,
)


def described(family: str, **changes: Any) -> tuple[dict[str, Any], set[str]]:
    """A model's configuration as a file has it, and its tensors' names."""
    module = new_module(family, **changes)
    return module.config.to_diff_dict(), {name for name, _ in module.named_parameters()}


def structure(family: str, **changes: Any) -> Structure:
    return structure_of(*described(family, **changes))


def own_frequencies(family: str, **changes: Any) -> tuple[np.ndarray, float]:
    """transformers' own frequencies, and its scale of sines and cosines."""
    rotary = new_module(family, **changes).model.rotary_emb
    return rotary.inv_freq.numpy(), rotary.attention_scaling


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_the_shape_is_told_in_numbers(family):
    module = new_module(family)
    config, found = module.config, structure(family)
    assert (found.vocab_size, found.hidden, found.ffn) == (config.vocab_size, 64, 96)
    assert (found.heads, found.kv_heads) == (4, 2)
    assert found.head_size == found.rotary == (48 if family == "qwen3" else 16)
    assert found.eps == config.rms_norm_eps
    assert found.tied is False
    assert len(found.layers) == config.num_hidden_layers
    assert found.kv_bytes == len(found.layers) * 2 * 2 * found.head_size * 2


def test_these_are_all_the_families_there_are():
    assert set(FAMILIES) == set(MODEL_TYPES)


def test_the_table_may_be_the_head_as_well():
    assert structure("llama", tie_word_embeddings=True).tied is True


# --- which tokens a layer sees, and whether it rotates ---


@pytest.mark.parametrize(
    ("family", "changes", "windows"),
    [
        ("llama", {}, [0, 0]),
        ("mistral", {}, [WINDOW, WINDOW]),
        ("mistral", {"sliding_window": None}, [0, 0]),
        ("qwen2", {}, [0, 0]),
        ("qwen2", {"sliding_window": 8}, [0, 0]),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
            [0, 8],
        ),
        (
            "qwen3",
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            [8, 0],
        ),
        ("smollm3", {}, [0] * 4),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 8}, [0, 0, 0, 8]),
    ],
    ids=str,
)
def test_windows_are_those_of_the_layers_that_have_one(family, changes, windows):
    assert [layer.window for layer in structure(family, **changes).layers] == windows


def test_layers_that_do_not_rotate_are_known():
    def rotating(**changes: Any) -> list[bool]:
        return [layer.rotates for layer in structure("smollm3", **changes).layers]

    assert rotating() == [True, True, True, False]
    assert rotating(no_rope_layers=[1, 0, 1, 0]) == [True, False, True, False]
    assert rotating(no_rope_layer_interval=2) == [True, False, True, False]
    assert all(layer == LayerStructure() for layer in structure("llama").layers)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_configuration_does_not_say_is_as_in_transformers(family):
    names = {name for name, _ in new_module(family).named_parameters()}
    told = {
        "model_type": family,
        "vocab_size": 128_256,
        "hidden_size": 1024,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
    }
    every = {name.replace("layers.0", f"layers.{n}") for name in names for n in range(4)}
    found = asdict(structure_of(told, every))
    expected = asdict(structure_of(AutoConfig.for_model(**told).to_dict(), every))
    np.testing.assert_array_equal(found.pop("inv_freq"), expected.pop("inv_freq"))
    assert found == expected


# --- rotation ---

LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "rope", [None, {"rope_type": "default", "rope_theta": 500.0}, LINEAR, LLAMA3], ids=str
)
def test_frequencies_are_transformers_own(family, rope):
    found = structure(family, rope_parameters=rope)
    expected, scale = own_frequencies(family, rope_parameters=rope)
    assert found.inv_freq.dtype == np.float32
    np.testing.assert_allclose(found.inv_freq, expected, rtol=1e-6)
    assert found.rope_scale == scale == 1.0


def test_every_part_of_a_llama_3_rotation_is_used():
    plain, _ = own_frequencies("llama")
    ratios = plain / structure("llama", rope_parameters=LLAMA3).inv_freq
    assert ratios[0] == pytest.approx(1) and ratios[-1] == pytest.approx(8)
    assert np.any((ratios > 1.01) & (ratios < 7.9))


def test_older_configurations_say_it_in_other_words():
    config, names = described("llama", rope_parameters=LINEAR)
    del config["rope_parameters"]
    config |= {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    expected, _ = own_frequencies("llama", rope_parameters=LINEAR)
    np.testing.assert_allclose(structure_of(config, names).inv_freq, expected, rtol=1e-6)


def test_factors_of_a_file_divide_the_frequencies():
    config, names = described("llama")
    config["rope_parameters"] = {**config["rope_parameters"], "factors": list(range(1, 9))}
    plain, _ = own_frequencies("llama")
    expected = plain / torch.arange(1, 9).numpy()
    np.testing.assert_allclose(structure_of(config, names).inv_freq, expected, rtol=1e-6)


# --- refusals ---


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "gemma2"}, "models of type 'gemma2' are not of the Llama shape"),
        ({"hidden_act": "gelu"}, "its activation is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantised in a way of their own"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "its rotary embedding is scaled by 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "does not say its factor"),
        ({"rope_parameters": {"factors": [1.0, 2.0]}}, "makes no sense"),
        ({"num_attention_heads": 0, "head_dim": None}, "makes no sense"),
        ({"hidden_size": "wide"}, "makes no sense"),
        ({"head_dim": 512}, "its heads are of 512 values"),
        ({"head_dim": 15}, "its heads are of 15 values"),
        ({"num_key_value_heads": 3}, "4 heads do not share 3 evenly"),
    ],
    ids=str,
)
def test_another_shape_is_refused_with_what_is_different(changes, why):
    config, names = described("llama")
    with pytest.raises(OtherShape) as caught:
        structure_of(config | changes, names)
    assert why in str(caught.value)


@pytest.mark.parametrize("name", ["vocab_size", "intermediate_size", "num_hidden_layers"])
def test_a_size_that_is_not_said_is_named(name):
    config, names = described("llama")
    del config[name]
    with pytest.raises(OtherShape, match=f"does not say its {name}"):
        structure_of(config, names)


@pytest.mark.parametrize("value", [["chunked_attention"] * 2, ["full_attention"]], ids=str)
def test_layers_of_another_kind_are_refused(value):
    config, names = described("qwen3")
    with pytest.raises(OtherShape):
        structure_of(config | {"layer_types": value}, names)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "model.layers.1.mlp.up_proj.weight"),
        ("llama", "lm_head.weight"),
        ("qwen2", "model.layers.0.self_attn.k_proj.bias"),
        ("qwen3", "model.layers.1.self_attn.q_norm.weight"),
    ],
)
def test_a_tensor_that_is_missing_is_named(family, name):
    config, names = described(family)
    with pytest.raises(OtherShape, match=f"it has no tensor {name}"):
        structure_of(config, names - {name})


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.sinks",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "vision.weight",
    ],
)
def test_a_tensor_that_is_not_of_the_shape_is_named(name):
    config, names = described("llama")
    with pytest.raises(OtherShape, match=f"it has a tensor {name}"):
        structure_of(config, names | {name})


def test_frequencies_in_a_file_are_worked_out_again():
    config, names = described("llama")
    structure_of(config, names | {"model.layers.0.self_attn.rotary_emb.inv_freq"})


def test_a_table_that_is_the_head_needs_no_head():
    config, names = described("llama", tie_word_embeddings=True)
    assert "lm_head.weight" not in names
    structure_of(config, names)
