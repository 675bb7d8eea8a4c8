"""Models of the Llama shape on the native kernels, held against transformers' own forward pass."""

import json
from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ggml_blocks import random_data
from gguf_files import GGUFWriter, StoredTensor
from llama_shapes import WINDOW, new_module, save, writer
from stepping import Blocks, continue_greedily, new_sequence, segment
from transformers import PreTrainedModel

from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import KernelsUnavailable
from antiphon.engine.loader import load, read
from antiphon.engine.options import LoadOptions
from antiphon.engine.runners.base import Scores
from antiphon.engine.runners.native import NativeRunner

try:
    library.load()
except KernelsUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)

NUM_TOKENS = 50
assert NUM_TOKENS > 2 * WINDOW
#: Largest `difference` to transformers' own scores, unless weights are quantised. Keys and values
#: are kept in half precision.
TOLERANCE = 1e-3
PROMPT = np.random.default_rng(0).integers(0, 256, NUM_TOKENS).tolist()

Native = Callable[..., NativeRunner]


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    """Loads a module natively: from a folder, or from a file if it is a writer of one. The
    self-test, which has tests of its own, is not run."""

    def layers_are_right(self: Any, *_: object) -> str:
        return "nothing was tested"

    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.__enter__", lambda test: test)
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.passed_by", layers_are_right)

    def start(made: PreTrainedModel | GGUFWriter, **options: Any) -> NativeRunner:
        if isinstance(made, GGUFWriter):
            path = made.write(tmp_path / "tiny.gguf")
        else:
            path = save(tmp_path, made)
        options = {"cache_bytes": 2**20, "threads": 2, **options}
        chosen = LoadOptions(cache_dir=tmp_path, engine="native", **options)
        runner = load(read(str(path), lambda *_: None), chosen, lambda *_: None).runner
        assert isinstance(runner, NativeRunner)
        return runner

    return start


def own_scores(module: PreTrainedModel, tokens: list[int] = PROMPT) -> Scores:
    """Of transformers' own eager attention, after each token."""
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        logits = module(torch.tensor([tokens]), use_cache=False).logits[0]
    scores: Scores = logits.float().numpy()
    return scores


def scores_of(runner: NativeRunner, tokens: list[int] = PROMPT) -> Scores:
    """After each token, computed in pieces of several sizes."""
    sequence = new_sequence(tokens, Blocks(8).take(len(tokens)))
    cuts = [0, 18, 19, 20, 41, len(tokens)]
    parts = [
        runner.forward([segment(sequence, start, end)]).copy() for start, end in pairwise(cuts)
    ]
    return np.concatenate(parts)


def difference(scores: Scores, expected: Scores) -> float:
    """How far scores are off, of how far they differ among themselves."""
    return float(np.sqrt(np.mean((scores - expected) ** 2)) / expected.std())


def assert_close(scores: Scores, expected: Scores) -> None:
    assert difference(scores, expected) < TOLERANCE


def divergence(scores: Scores, expected: Scores) -> float:
    """Kullback-Leibler, in nats, the mean over the tokens."""
    p, q = (torch.from_numpy(s).double().log_softmax(-1) for s in (expected, scores))
    return float((p.exp() * (p - q)).sum(-1).mean())


def alike(scores: Scores, expected: Scores) -> float:
    """The cosine of the two, the least over the tokens."""
    products = (scores * expected).sum(1)
    return float(
        (products / np.linalg.norm(scores, axis=1) / np.linalg.norm(expected, axis=1)).min()
    )


# --- float32 ---


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_folder_scores_as_in_transformers(native, family, tied):
    module = new_module(family, tie_word_embeddings=tied)
    expected = own_scores(module)
    assert 0.3 < expected.std() < 10
    found = scores_of(native(module))
    assert_close(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 32},
        {"num_attention_heads": 3, "head_dim": 24, "num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"hidden_size": 36, "intermediate_size": 50, "num_attention_heads": 3, "head_dim": 10},
        {"vocab_size": 397},
        {"rms_norm_eps": 1e-2},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}},
        {"attention_bias": True, "mlp_bias": True},
    ],
    ids=str,
)
def test_sizes_of_all_kinds_are_heeded(native, changes):
    if changes.get("num_attention_heads") == 3:
        # Of what transformers checks, only the heads' sizes matter here.
        changes = {"num_key_value_heads": 1, "hidden_size": 63, **changes}
    module = new_module("llama", **changes)
    expected = own_scores(module)
    found = scores_of(native(module))
    assert found.shape == (NUM_TOKENS, module.config.vocab_size)
    assert_close(found, expected)


def test_a_window_shorter_than_the_prompt_matters(native):
    module = new_module("mistral")
    windowed = own_scores(module)
    whole = own_scores(new_module("mistral", sliding_window=None))
    assert difference(windowed, whole) > 20 * TOLERANCE
    found = scores_of(native(module))
    assert_close(found, windowed)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_greedy_tokens_are_transformers_own(native, family):
    module = new_module(family)
    ids = torch.tensor([PROMPT])
    made = module.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=0
    )
    expected = made[0, NUM_TOKENS:].tolist()
    sequence = new_sequence(PROMPT, Blocks(8).take(NUM_TOKENS + 30))
    (tokens,) = continue_greedily(native(module), [sequence], len(expected))
    assert tokens == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_as_float32_of_the_same_values(native, dtype):
    rounded, module = new_module().to(dtype), new_module()
    runner = native(rounded)
    module.load_state_dict(rounded.state_dict())
    expected = own_scores(module)
    assert_close(scores_of(runner), expected)
    assert runner.stats()["weights"].startswith("BF16" if dtype == torch.bfloat16 else "F16")


def test_wanted_scores_come_in_the_order_of_the_segments(native):
    module = new_module()
    runner = native(module)
    blocks = Blocks(12)
    one, two = new_sequence(PROMPT, blocks.take(50)), new_sequence(PROMPT[:9], blocks.take(9))
    both = runner.forward([segment(one, 0, 50, 2), segment(two, 0, 9, 1)])
    expected = own_scores(module)
    assert_close(both, expected[[48, 49, 8]])
    assert runner.forward([segment(two, 0, 4, 0)]).shape == (0, module.config.vocab_size)


def test_a_closed_runner_lets_go_of_its_weights(native):
    runner = native(new_module())
    runner.close()
    assert runner._decoder is None
    runner.close()


# --- GGUF ---


def dequantised(module: PreTrainedModel, path: Path) -> PreTrainedModel:
    """A module with the weights that a file holds."""
    tensors = read(str(path), lambda *_: None).tensors
    state = {name: torch.from_numpy(tensor.floats()) for name, tensor in tensors.items()}
    module.load_state_dict(state, strict=False)
    return module


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_file_of_plain_weights_scores_as_in_transformers(native, tmp_path, family, kind):
    module = new_module(family, sliding_window=None) if family == "mistral" else new_module(family)
    runner = native(writer(module, kind=kind))
    expected = own_scores(dequantised(module, tmp_path / "tiny.gguf"))
    assert_close(scores_of(runner), expected)


KINDS = [
    ("Q8_0", {}),
    ("Q4_0", {}),
    ("Q4_1", {}),
    ("Q4_0", {"token_embd.weight": "Q8_0", "attn_v.weight": "F16", "ffn_down.weight": "Q8_0"}),
    ("Q4_1", {"attn_q.weight": "F32", "ffn_up.weight": "Q4_0", "token_embd.weight": "F16"}),
]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(("kind", "kinds"), KINDS, ids=str)
def test_a_file_of_quantised_weights_says_nearly_what_the_same_weights_do(
    native, tmp_path, family, kind, kinds
):
    module = new_module(family, tie_word_embeddings=True)
    runner = native(writer(module, kind=kind, kinds=kinds))
    expected = own_scores(dequantised(module, tmp_path / "tiny.gguf"))
    found = scores_of(runner)
    # The activations have eight bits.
    assert divergence(found, expected) < 0.001
    assert alike(found, expected) > 0.995


def test_weights_are_said_to_be_what_they_are(native):
    module = new_module()
    runner = native(writer(module, kind="Q4_0", kinds={"token_embd.weight": "Q8_0"}), threads=1)
    said = runner.stats()["weights"]
    assert said == f"Q4_0 and Q8_0, computed by {library.load().isa} kernels on 1 thread"


def test_blocks_that_the_kernels_do_not_know_are_kept_as_half_precision(native, tmp_path):
    module = new_module(hidden_size=256, num_attention_heads=4)
    written = writer(module)

    place = next(n for n, t in enumerate(written.tensors) if t.name == "blk.0.ffn_up.weight")
    shape = written.tensors[place].shape
    data = random_data("Q2_K", shape[0] * shape[1])
    written.tensors[place] = StoredTensor("blk.0.ffn_up.weight", "Q2_K", shape, data)
    runner = native(written)
    expected = own_scores(dequantised(module, tmp_path / "tiny.gguf"))
    found = scores_of(runner)
    assert alike(found, expected) > 0.999


def test_factors_of_the_rotary_embedding_are_heeded(native, tmp_path):
    module = new_module()
    plain = own_scores(module)
    factors = np.linspace(1, 8, 8)
    written = writer(module)
    written.add_floats("rope_freqs.weight", factors)
    found = scores_of(native(written))
    module.model.rotary_emb.inv_freq /= torch.tensor(factors, dtype=torch.float32)
    expected = own_scores(module)
    assert difference(expected, plain) > 20 * TOLERANCE
    assert_close(found, expected)


# --- quantised when they are loaded ---


@pytest.mark.parametrize(("quantize", "most"), [("int8", 0.002), ("int4", 0.05)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_plain_weights_may_be_quantised_when_they_are_loaded(native, quantize, most, dtype):
    rounded, module = new_module().to(dtype), new_module()
    runner = native(rounded, quantize=quantize)
    module.load_state_dict(rounded.state_dict())
    expected = own_scores(module)
    found = scores_of(runner)
    assert divergence(found, expected) < most
    assert alike(found, expected) > (0.99 if quantize == "int8" else 0.9)
    kinds = {"int8": "int8", "int4": "int4 and int8"}[quantize]
    assert runner.stats()["weights"].startswith(f"{kinds}, computed by")


def test_rows_that_fill_no_block_stay_as_they_are(native):
    module = new_module(hidden_size=40, num_attention_heads=4, intermediate_size=64)
    runner = native(module, quantize="int8")
    expected = own_scores(module)
    assert divergence(scores_of(runner), expected) < 0.002
    assert runner.stats()["weights"].startswith("F32 and int8")


def test_a_file_keeps_its_own_blocks_whatever_is_asked(native):
    runner = native(writer(new_module(), kind="Q8_0"), quantize="int4")
    assert runner.stats()["weights"].startswith("Q8_0,")


# --- refusals ---


def test_weights_of_another_shape_than_the_configuration_says_are_named(native, tmp_path):
    save(tmp_path, new_module())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 128}))
    options = LoadOptions(cache_dir=tmp_path, engine="native", cache_bytes=2**20)
    with pytest.raises(LoadError, match=r"mlp\.gate_proj\.weight is \(96, 64\), not \(128, 64\)"):
        load(read(str(tmp_path), lambda *_: None), options, lambda *_: None)


def test_a_block_table_must_not_name_blocks_that_are_not_there(native):
    runner = native(new_module())
    sequence = new_sequence(PROMPT, [0, 1, 2, 3])
    sequence.blocks = array("i", [0, 1, 2, runner.num_blocks])
    with pytest.raises(Exception, match="malformed"):
        runner.forward([segment(sequence, 0, NUM_TOKENS)])
