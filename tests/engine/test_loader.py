"""Models loaded from folders and GGUF files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_files import GGUFWriter, StoredTensor, Typed, llama_writer
from tiny_models import CHATML, byte_level_tokenizer, llama_config, new_llama, save, tiny_llama

from antiphon.engine.loader import LoadedModel, LoadError, load

TEXT = "hello world, é😀 user\n\n  end"
PROMPT = [5, 280, 17, 3, 3, 250, 66, 67, 68, 12]


def nothing(*_: object) -> None:
    """Progress that nobody looks at."""


def logits(module: Any, prompt: list[int] = PROMPT) -> torch.Tensor:
    with torch.no_grad():
        scores: torch.Tensor = module(torch.tensor([prompt])).logits[0]
    return scores


def gguf(tmp_path: Path, module: Any = None, **options: Any) -> GGUFWriter:
    options = {"template": CHATML, **options}
    return llama_writer(
        module or tiny_llama(), options.pop("tokenizer", byte_level_tokenizer()), **options
    )


def loaded(tmp_path: Path, writer: GGUFWriter) -> LoadedModel:
    return load(str(writer.write(tmp_path / "tiny.gguf")), nothing)


@contextmanager
def refusing(*words: str) -> Iterator[None]:
    """Expects a `LoadError` in which all the words are found."""
    with pytest.raises(LoadError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)


# --- folders ---


def test_a_folder_is_loaded_with_all_that_came_with_it(tmp_path):
    model = load(str(save(tmp_path)), nothing)
    assert torch.equal(logits(model.module), logits(tiny_llama()))
    assert not model.module.training
    assert model.template == CHATML
    assert model.variables["bos_token"] == "<|endoftext|>"
    assert model.variables["eos_token"] == "<|im_end|>"
    assert model.context_window == 512
    assert model.tokenizer.encode([TEXT]) == byte_level_tokenizer().encode(TEXT).ids
    assert set(model.tokenizer.controls.values()) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def test_txt_02_every_end_that_tokenizer_config_and_generation_config_name_is_a_stop_token(
    tmp_path,
):
    model = load(str(save(tmp_path, eos_token_id=[7, 8])), nothing)
    hub = byte_level_tokenizer()
    assert model.stop_tokens == {
        hub.token_to_id("<|endoftext|>"),  # the config's
        hub.token_to_id("<|im_end|>"),  # the tokenizer's
        7,
        8,
    }


def test_use_02_the_sampling_that_a_generation_config_asks_for_is_kept_apart(tmp_path):
    model = load(str(save(tmp_path, do_sample=True, temperature=0.7, top_p=0.8, top_k=20)), nothing)
    assert (model.temperature, model.top_p) == (0.7, 0.8)


@pytest.mark.parametrize("generation", [{}, {"do_sample": False, "temperature": 0.7}])
def test_a_model_that_does_not_ask_for_sampling_has_none_of_its_own(tmp_path, generation):
    model = load(str(save(tmp_path, **generation)), nothing)
    assert (model.temperature, model.top_p) == (None, None)


def test_a_folder_without_template_or_generation_config_is_loaded(tmp_path):
    folder = save(tmp_path, template=None)
    (folder / "generation_config.json").unlink()
    model = load(str(folder), nothing)
    assert model.template is None
    assert (model.temperature, model.top_p) == (None, None)


def test_a_folder_may_be_named_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    save(tmp_path / "models")
    assert load("~/models", nothing).context_window == 512


def test_progress_is_told_of_every_stage(tmp_path):
    told: list[tuple[str, int, int]] = []
    load(str(save(tmp_path)), lambda *stage: told.append(stage))
    assert [text for text, _, _ in told] == ["Reading the tokenizer", "Reading the weights"]


# --- GGUF ---


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 1},
        {"num_attention_heads": 2, "num_key_value_heads": 2},
        {"head_dim": 16},
        {"rms_norm_eps": 1e-3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
    ids=str,
)
def test_a_gguf_file_scores_as_the_module_it_was_made_of(tmp_path, changes):
    module = new_llama(llama_config(**changes))
    metadata = {"llama.attention.key_length": 16} if "head_dim" in changes else {}
    model = loaded(tmp_path, gguf(tmp_path, module, metadata=metadata))
    torch.testing.assert_close(logits(model.module), logits(module), atol=1e-5, rtol=1e-5)
    assert not model.module.training


def test_a_gguf_file_is_loaded_with_all_that_came_with_it(tmp_path):
    hub = byte_level_tokenizer()
    writer = gguf(tmp_path, metadata={"tokenizer.ggml.eot_token_id": hub.token_to_id("<|im_end|>")})
    model = loaded(tmp_path, writer)
    assert model.template == CHATML
    assert model.variables == {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    assert model.context_window == 512
    assert model.stop_tokens == {hub.token_to_id("<|endoftext|>"), hub.token_to_id("<|im_end|>")}
    assert (model.temperature, model.top_p) == (None, None)


def test_a_gguf_file_without_template_and_optional_values_is_loaded(tmp_path):
    writer = gguf(tmp_path, new_llama(llama_config(num_key_value_heads=4)), template=None)
    for key in ("bos_token_id", "eos_token_id", "pre"):
        del writer.metadata[f"tokenizer.ggml.{key}"]
    del writer.metadata["llama.attention.head_count_kv"]
    del writer.metadata["llama.rope.freq_base"]
    model = loaded(tmp_path, writer)
    assert model.template is None
    assert model.variables == {}
    assert model.stop_tokens == frozenset()


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe"])
def test_a_gguf_file_s_tokenizer_makes_the_tokens_it_was_made_of(tmp_path, pre):
    hub = byte_level_tokenizer()
    model = loaded(tmp_path, gguf(tmp_path, metadata={"tokenizer.ggml.pre": pre}))
    for text in (TEXT, "user<|im_end|>\n<|im_start|>assistant\n", "é日本\u00a0 \t", "'s it's"):
        assert model.tokenizer.encode([text]) == hub.encode(text).ids
        for control in model.tokenizer.controls.values():
            text = text.replace(control, "")
        tokens = model.tokenizer.encode([text])
        assert b"".join(map(model.tokenizer.bytes_of, tokens)) == text.encode()
    assert set(model.tokenizer.controls.values()) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["a", " 123", "45", "!?", "\n"]),
        ("smollm", ["a", " ", "1", "2", "3", "4", "5", "!?", "\n"]),
        ("llama-bpe", ["a", " ", "123", "45", "!?\n"]),
    ],
)
def test_digits_and_line_breaks_are_cut_as_the_named_rule_has_it(tmp_path, pre, words):
    # Every cut that a rule may make is a word of the vocabulary, so tokens show the cuts.
    written = ["Ġ123", "45", "123", "12345", "Ġ12345", "!?", "!?Ċ"]
    hub = byte_level_tokenizer()
    state = json.loads(hub.to_str())
    base = len(state["model"]["vocab"])
    merges = ["1 2", "12 3", "Ġ 123", "4 5", "123 45", "Ġ123 45", "! ?", "!? Ċ"]
    new = ["".join(merge.split(" ")) for merge in merges]
    assert set(written) <= set(new)
    tokens = sorted(state["model"]["vocab"], key=state["model"]["vocab"].get) + new
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    module = new_llama(llama_config(vocab_size=base + len(new) + len(controls)))
    writer = gguf(tmp_path, module)
    writer.metadata |= {
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + controls,
        "tokenizer.ggml.token_type": Typed("array:int32", [1] * len(tokens) + [3] * len(controls)),
        "tokenizer.ggml.merges": [*writer.metadata["tokenizer.ggml.merges"], *merges],
    }
    tokenizer = loaded(tmp_path, writer).tokenizer
    shown = [tokenizer.bytes_of(token) for token in tokenizer.encode(["a 12345!?\n"])]
    # GPT-2's rule takes all digits at once, with the space before them.
    expected = ["a", " 12345", "!?", "\n"] if pre == "gpt-2" else words
    assert shown == [word.encode() for word in expected]


def test_llama_3_s_vocabulary_is_asked_for_whole_words_before_merges(tmp_path):
    hub = byte_level_tokenizer("Ġzebra")
    module = new_llama(llama_config(vocab_size=hub.get_vocab_size()))
    for pre, number in [("llama-bpe", 1), ("smollm", 6)]:
        writer = gguf(tmp_path, module, tokenizer=hub, metadata={"tokenizer.ggml.pre": pre})
        assert len(loaded(tmp_path, writer).tokenizer.encode([" zebra"])) == number


def test_a_user_defined_token_is_one_token_and_no_control(tmp_path):
    hub = byte_level_tokenizer()
    hub.add_tokens(["<tool_call>"])
    module = new_llama(llama_config(vocab_size=hub.get_vocab_size()))
    tokenizer = loaded(tmp_path, gguf(tmp_path, module, tokenizer=hub)).tokenizer
    number = hub.token_to_id("<tool_call>")
    assert tokenizer.encode(["<tool_call>"]) == [number]
    assert number not in tokenizer.controls
    assert tokenizer.bytes_of(number) == b"<tool_call>"


def test_quantised_weights_are_loaded_as_the_values_they_stand_for(tmp_path):
    writer = gguf(tmp_path)
    place = next(n for n, t in enumerate(writer.tensors) if t.name == "blk.0.ffn_up.weight")
    tensor = writer.tensors[place]
    values = np.frombuffer(tensor.data, "<f4").reshape(-1, 32)
    scales = (np.abs(values).max(1) / 127).astype("<f2")
    rounded = np.round(values / scales[:, None].astype("f4")).clip(-127, 127).astype("i1")
    data = b"".join(
        scale.tobytes() + row.tobytes() for scale, row in zip(scales, rounded, strict=True)
    )
    writer.tensors[place] = StoredTensor(tensor.name, "Q8_0", tensor.shape, data)
    weight = loaded(tmp_path, writer).module.model.layers[0].mlp.up_proj.weight
    expected = (scales[:, None].astype("f4") * rounded).reshape(tensor.shape)
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-6)


def test_progress_counts_the_tensors(tmp_path):
    told: list[tuple[str, int, int]] = []
    writer = gguf(tmp_path)
    load(str(writer.write(tmp_path / "tiny.gguf")), lambda *stage: told.append(stage))
    number = len(writer.tensors)
    assert told[0] == ("Reading the tokenizer", 0, 0)
    assert told[1:] == [("Reading the weights", n, number) for n in range(1, number + 1)]


# --- refusals ---


@pytest.mark.parametrize(
    "source", ["./missing", "/missing/model", "~/missing", "missing.gguf", "missing", "a/b/c"]
)
def test_a_path_that_does_not_exist_is_named(source):
    with refusing(f"{source} does not exist"):
        load(source, nothing)


def test_an_empty_folder_is_said_to_hold_no_model(tmp_path):
    with refusing(f"{tmp_path} holds no model", "config.json"):
        load(str(tmp_path), nothing)


@pytest.mark.parametrize(
    "config", ["{", "{}", '{"model_type": "nothing-like-it"}', '{"model_type": "llama"}']
)
def test_a_folder_that_cannot_be_loaded_is_named(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with refusing(f"{tmp_path} cannot be loaded: "):
        load(str(tmp_path), nothing)


def test_a_folder_without_weights_is_named(tmp_path):
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with refusing(f"{tmp_path} cannot be loaded: ", "safetensors"):
        load(str(tmp_path), nothing)


def test_a_folder_with_weights_cut_off_is_named(tmp_path):
    weights = save(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with refusing(f"{tmp_path} cannot be loaded: "):
        load(str(tmp_path), nothing)


def test_a_file_that_is_no_gguf_file_is_named(tmp_path):
    file = tmp_path / "model.bin"
    file.write_text("hello")
    with refusing(f"{file} is no GGUF file"):
        load(str(file), nothing)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("antiphon.engine.checkpoints.gguf.mmap.mmap", fail)
    with refusing("tiny.gguf cannot be read: Cannot allocate memory"):
        loaded(tmp_path, gguf(tmp_path))


def test_another_architecture_is_named_with_the_way_out(tmp_path):
    writer = gguf(tmp_path, metadata={"general.architecture": "qwen2"})
    with refusing("architecture 'qwen2'", "'llama'", "folder of safetensors"):
        loaded(tmp_path, writer)


@pytest.mark.parametrize(
    ("kind", "pre"), [("llama", "default"), ("gpt2", "qwen2"), ("bert", "gpt-2")]
)
def test_an_unknown_tokenizer_is_named_with_the_way_out(tmp_path, kind, pre):
    writer = gguf(tmp_path, metadata={"tokenizer.ggml.model": kind, "tokenizer.ggml.pre": pre})
    with refusing(f"tokenizer ('{kind}', '{pre}')", "not supported", "folder of safetensors"):
        loaded(tmp_path, writer)


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
    writer = gguf(tmp_path)
    del writer.metadata[key]
    with refusing("tiny.gguf lacks", key):
        loaded(tmp_path, writer)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight", "output_norm.weight"])
def test_a_weight_that_is_missing_is_named(tmp_path, name):
    writer = gguf(tmp_path)
    writer.tensors = [tensor for tensor in writer.tensors if tensor.name != name]
    words = {"blk.1.attn_k.weight": "layers.1.self_attn.k_proj", "output_norm.weight": "model.norm"}
    with refusing("tiny.gguf lacks", words.get(name, name)):
        loaded(tmp_path, writer)


def test_a_tensor_that_a_llama_does_not_have_is_named(tmp_path):
    writer = gguf(tmp_path)
    writer.add_floats("blk.0.ffn_gate_exps.weight", np.zeros((2, 2)))
    with refusing("blk.0.ffn_gate_exps.weight", "a Llama does not have"):
        loaded(tmp_path, writer)


def test_weights_of_another_shape_than_the_file_says_are_refused(tmp_path):
    writer = gguf(tmp_path, metadata={"llama.feed_forward_length": 96})
    with refusing("tiny.gguf", "shape"):
        loaded(tmp_path, writer)


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_a_scaled_rotary_embedding_is_refused(tmp_path, scaling):
    with refusing("scales its rotary embedding"):
        loaded(tmp_path, gguf(tmp_path, metadata={"llama.rope.scaling.type": scaling}))


def test_rotary_frequencies_are_refused(tmp_path):
    writer = gguf(tmp_path)
    writer.add_floats("rope_freqs.weight", np.ones(4))
    with refusing("scales its rotary embedding"):
        loaded(tmp_path, writer)


def test_a_rotary_embedding_said_to_be_unscaled_is_loaded(tmp_path):
    loaded(tmp_path, gguf(tmp_path, metadata={"llama.rope.scaling.type": "none"}))
