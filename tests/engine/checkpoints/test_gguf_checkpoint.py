"""Models in GGUF files, told in transformers' words."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from gguf_files import GGUFWriter, Typed
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_shapes import new_module, writer
from tiny_models import CHATML, byte_level_tokenizer

from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError
from antiphon.engine.checkpoints.gguf_checkpoint import read_gguf

HUB = byte_level_tokenizer()


def read(tmp_path: Path, written: GGUFWriter) -> Checkpoint:
    return read_gguf(written.write(tmp_path / "tiny.gguf"))


@contextmanager
def refusing(*words: str) -> Iterator[None]:
    """Expects a `LoadError` in which all the words are found."""
    with pytest.raises(LoadError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)


# --- weights and configuration ---


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_weight_is_found_under_its_name_in_transformers(tmp_path, family, tied):
    module = new_module(family, tie_word_embeddings=tied)
    checkpoint = read(tmp_path, writer(module))
    expected = {name: weight.detach().numpy() for name, weight in module.named_parameters()}
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in checkpoint.tensors.items():
        assert tensor.name == name
        np.testing.assert_array_equal(tensor.floats(), expected[name])
    assert checkpoint.config["tie_word_embeddings"] is tied


def test_rows_of_queries_and_keys_are_put_in_order_in_llamas_alone(tmp_path):
    for family, in_order in (("llama", False), ("qwen2", True)):
        module = new_module(family)
        written = writer(module)
        checkpoint = read(tmp_path, written)
        for name, own in (("attn_q", "q_proj"), ("attn_k", "k_proj"), ("attn_v", "v_proj")):
            data = next(t.data for t in written.tensors if t.name == f"blk.1.{name}.weight")
            found = checkpoint.tensors[f"model.layers.1.self_attn.{own}.weight"]
            assert (found.data.tobytes() == data) == (in_order or name == "attn_v")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantised_rows_are_put_in_order_whole(tmp_path, kind):
    module = new_module()
    checkpoint = read(tmp_path, writer(module, kind=kind))
    tensor = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"]
    assert tensor.type.name == kind
    own = module.model.layers[0].self_attn.q_proj.weight.detach().numpy()
    spread = np.abs(own).max()
    assert np.abs(tensor.floats() - own).max() < 0.15 * spread
    other = checkpoint.tensors["model.layers.0.self_attn.o_proj.weight"].floats()
    assert np.abs(other - own).max() > spread


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
        ("llama", {"head_dim": 32}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 24}),
    ],
    ids=str,
)
def test_a_configuration_is_told_as_transformers_tells_it(tmp_path, family, changes):
    module = new_module(family, **changes)
    config = read(tmp_path, writer(module)).config
    own = module.config.to_dict()
    assert config["model_type"] == family
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "hidden_act",
    ):
        assert config[name] == own[name], name
    assert config["head_dim"] == own.get("head_dim", 16)
    assert config["rms_norm_eps"] == pytest.approx(own["rms_norm_eps"])
    assert config["rope_parameters"]["rope_theta"] == own["rope_parameters"]["rope_theta"]
    assert config["rope_parameters"]["rope_type"] == "default"


def test_what_a_file_may_leave_out_has_its_default(tmp_path):
    written = writer(new_module(num_key_value_heads=4), template=None)
    for key in ("bos_token_id", "eos_token_id", "pre"):
        del written.metadata[f"tokenizer.ggml.{key}"]
    for key in ("attention.head_count_kv", "rope.freq_base"):
        del written.metadata[f"llama.{key}"]
    checkpoint = read(tmp_path, written)
    assert checkpoint.config["num_key_value_heads"] == 4
    assert checkpoint.config["rope_parameters"]["rope_theta"] == 10000
    assert checkpoint.template is None
    assert checkpoint.variables == {}
    assert checkpoint.stop_tokens == frozenset()


# --- positions ---


def test_factors_of_the_rotary_embedding_are_kept(tmp_path):
    written = writer(new_module())
    written.add_floats("rope_freqs.weight", np.arange(1.0, 9.0))
    checkpoint = read(tmp_path, written)
    assert checkpoint.config["rope_parameters"]["factors"] == list(range(1, 9))
    assert "rope_freqs.weight" not in checkpoint.tensors


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"type": "none"}, {"rope_type": "default"}),
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ],
    ids=str,
)
def test_a_linear_scaling_is_told_and_none_is_none(tmp_path, scaling, expected):
    metadata = {f"llama.rope.scaling.{name}": value for name, value in scaling.items()}
    checkpoint = read(tmp_path, writer(new_module(), metadata=metadata))
    assert checkpoint.config["rope_parameters"] == {"rope_theta": 10000.0, **expected}


@pytest.mark.parametrize("scaling", ["yarn", "longrope"])
def test_another_scaling_is_named_with_the_way_out(tmp_path, scaling):
    written = writer(new_module(), metadata={"llama.rope.scaling.type": scaling})
    with refusing("tiny.gguf", f"({scaling!r})", "folder of safetensors"):
        read(tmp_path, written)


def test_heads_that_are_rotated_in_part_are_named_with_the_way_out(tmp_path):
    with refusing("rotates 8 of the 16 values", "folder of safetensors"):
        read(tmp_path, writer(new_module(), metadata={"llama.rope.dimension_count": 8}))
    read(tmp_path, writer(new_module(), metadata={"llama.rope.dimension_count": 16}))


# --- what came with it ---


def test_template_variables_and_ends_come_along(tmp_path):
    end = HUB.token_to_id("<|im_end|>")
    metadata = {"tokenizer.ggml.eot_token_id": end, "tokenizer.ggml.eom_token_id": 7}
    checkpoint = read(tmp_path, writer(new_module(), metadata=metadata))
    assert checkpoint.path == tmp_path / "tiny.gguf"
    assert checkpoint.template == CHATML
    assert checkpoint.variables == {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    assert checkpoint.stop_tokens == {HUB.token_to_id("<|endoftext|>"), end, 7}
    assert checkpoint.context_window == 512
    assert (checkpoint.temperature, checkpoint.top_p) == (None, None)


def test_its_size_is_that_of_its_tensors(tmp_path):
    written = writer(new_module(), kind="Q4_0")
    assert read(tmp_path, written).size == sum(len(tensor.data) for tensor in written.tensors)


# --- refusals ---


@pytest.mark.parametrize("architecture", ["gemma3", "bert", None])
def test_another_architecture_is_named_with_the_way_out(tmp_path, architecture):
    written = writer(new_module())
    del written.metadata["general.architecture"]
    if architecture is not None:
        written.metadata["general.architecture"] = architecture
    with refusing(f"architecture {architecture!r}", "llama, qwen2, qwen3", "folder of safetensors"):
        read(tmp_path, written)


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    ],
)
def test_a_value_that_is_missing_is_named(tmp_path, key):
    written = writer(new_module())
    del written.metadata[key]
    with refusing(f"tiny.gguf lacks {key}"):
        read(tmp_path, written)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", "two"),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", [4, 4]),
        ("llama.rope.freq_base", "high"),
        ("tokenizer.ggml.bos_token_id", 10**6),
        ("tokenizer.ggml.tokens", 5),
        ("tokenizer.ggml.token_type", Typed("array:int32", [3] * 5000)),
        ("tokenizer.ggml.merges", ["one two"]),
        ("tokenizer.ggml.merges", ["a b c"]),
        ("tokenizer.ggml.merges", 7),
    ],
    ids=str,
)
def test_a_value_that_makes_no_sense_is_said_to(tmp_path, key, value):
    with refusing("tiny.gguf", "makes no sense"):
        read(tmp_path, writer(new_module(), metadata={key: value}))


def test_a_table_of_tokens_that_is_missing_is_named(tmp_path):
    written = writer(new_module())
    written.tensors = [t for t in written.tensors if t.name != "token_embd.weight"]
    with refusing("tiny.gguf lacks token_embd.weight"):
        read(tmp_path, written)


def test_a_tensor_that_such_a_model_does_not_have_is_named(tmp_path):
    written = writer(new_module())
    written.add_floats("blk.0.ffn_gate_exps.weight", np.zeros((2, 2)))
    with refusing("blk.0.ffn_gate_exps.weight", "not known"):
        read(tmp_path, written)


def test_heads_of_other_numbers_than_the_weights_have_are_refused(tmp_path):
    metadata = {"llama.attention.head_count": 3, "llama.attention.key_length": 16}
    metadata |= {"llama.attention.value_length": 16}
    with refusing("tiny.gguf", "other shapes", "attn_q"):
        read(tmp_path, writer(new_module(), metadata=metadata))


def test_keys_and_values_of_different_sizes_are_refused(tmp_path):
    metadata = {"llama.attention.key_length": 16, "llama.attention.value_length": 8}
    with refusing("tiny.gguf", "different sizes"):
        read(tmp_path, writer(new_module(), metadata=metadata))


def test_a_file_cut_off_is_named(tmp_path):
    path = writer(new_module()).write(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-100])
    with refusing("tiny.gguf is damaged or cut off"):
        read_gguf(path)


def test_a_context_of_no_length_is_refused_when_it_is_asked_for(tmp_path):
    checkpoint = read(tmp_path, writer(new_module(), metadata={"llama.context_length": 0}))
    with refusing("does not say how long a context may be"):
        _ = checkpoint.context_window


WHOLE = writer(new_module(num_hidden_layers=1), kind="Q8_0").to_bytes()
#: Most of a file is weights, which may be anything: what is before them is damaged.
HEADER = WHOLE.index(b"tokenizer.ggml.eos_token_id") + 400


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, HEADER), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_damaged_file_is_read_or_refused_and_nothing_else_is_raised(tmp_path_factory, damage):
    content = bytearray(WHOLE)
    for place, byte in damage:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    try:
        checkpoint = read_gguf(path)
    except LoadError:
        return
    assert checkpoint.tensors


@pytest.mark.parametrize("number", [0, 1, 2**31, 2**63])
def test_a_length_that_is_wrong_is_refused_and_nothing_else_is_raised(tmp_path, number):
    content, path = bytearray(WHOLE), tmp_path / "damaged.gguf"
    for key in (b"tokenizer.ggml.tokens", b"tokenizer.ggml.merges", b"llama.block_count"):
        at = WHOLE.index(key) + len(key) + 4
        content[at : at + 8] = struct.pack("<Q", number)
        path.write_bytes(content)
        with pytest.raises(LoadError):
            read_gguf(path)
