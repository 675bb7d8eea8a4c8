"""Models in folders, as hubs keep them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from llama_shapes import new_module, save
from tiny_models import CHATML, byte_level_tokenizer

from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.checkpoints.folder import read_folder

HUB = byte_level_tokenizer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path, new_module())


def write(folder: Path, name: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


def change(folder: Path, name: str, **changes: Any) -> None:
    write(folder, name, json.loads((folder / name).read_text(encoding="utf-8")) | changes)


@contextmanager
def refusing(*words: str) -> Iterator[None]:
    """Expects a `LoadError` in which all the words are found."""
    with pytest.raises(LoadError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)


# --- weights ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_weights_are_read_as_they_were_saved(tmp_path, dtype):
    module = new_module().to(dtype)
    checkpoint = read_folder(save(tmp_path, module))
    expected = dict(module.named_parameters())
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.floats(), expected[name].detach().float().numpy())
    size = sum(weight.numel() * weight.element_size() for weight in module.parameters())
    assert checkpoint.size == size


def test_weights_may_be_in_several_files_that_an_index_names(tmp_path):
    module = new_module()
    save(tmp_path, module)
    (tmp_path / "model.safetensors").unlink()
    module.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert set(read_folder(tmp_path).tensors) == {name for name, _ in module.named_parameters()}


def test_a_file_that_the_index_names_and_is_missing_is_named(tmp_path):
    module = new_module()
    save(tmp_path, module)
    module.save_pretrained(tmp_path, max_shard_size="60KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with refusing(f"{tmp_path} lacks {shard.name}", "its index names"):
        read_folder(tmp_path)


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 5}}], ids=str)
def test_an_index_that_names_no_files_is_refused(folder, index):
    write(folder, "model.safetensors.index.json", index)
    with refusing("model.safetensors.index.json names no files"):
        read_folder(folder)


def test_weights_kept_in_another_way_are_left_to_transformers(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert read_folder(folder).tensors == {}


def test_weights_cut_off_are_named(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with refusing(str(weights), "damaged or cut off"):
        read_folder(folder)


# --- what came with it ---


def test_a_folder_is_read_with_all_that_came_with_it(folder):
    checkpoint = read_folder(folder)
    assert checkpoint.path == folder
    assert checkpoint.model_type == "llama"
    assert checkpoint.context_window == 512
    assert checkpoint.template == CHATML
    assert checkpoint.variables["bos_token"] == "<|endoftext|>"
    assert checkpoint.variables["eos_token"] == "<|im_end|>"
    text = "hello world, é😀 user\n\n  end"
    assert checkpoint.tokenizer.encode(text).ids == HUB.encode(text).ids


def test_only_a_configuration_is_needed(tmp_path):
    write(tmp_path, "config.json", {"model_type": "llama"})
    checkpoint = read_folder(tmp_path)
    assert checkpoint.tensors == {}
    assert checkpoint.tokenizer is None
    assert checkpoint.template is None
    assert checkpoint.variables == {}
    assert checkpoint.stop_tokens == frozenset()


def test_txt_02_every_end_that_configuration_tokenizer_and_generation_name_is_a_stop(folder):
    change(folder, "config.json", eos_token_id=3, text_config={"eos_token_id": [4]})
    write(folder, "generation_config.json", {"eos_token_id": [7, 8]})
    stops = read_folder(folder).stop_tokens
    assert stops == {3, 4, 7, 8, HUB.token_to_id("<|im_end|>")}


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}, (0.7, 0.8)),
        ({"do_sample": True, "temperature": 0.7}, (0.7, None)),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.8}, (None, None)),
        ({"temperature": 0.7}, (None, None)),
        ({}, (None, None)),
    ],
    ids=str,
)
def test_use_02_the_sampling_is_a_generation_config_s_if_it_asks_for_sampling(
    folder, generation, expected
):
    write(folder, "generation_config.json", generation)
    checkpoint = read_folder(folder)
    assert (checkpoint.temperature, checkpoint.top_p) == expected


@pytest.mark.parametrize("token", ["<x>", {"content": "<x>", "lstrip": False}], ids=str)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_special_tokens_may_be_texts_or_objects(folder, token, name):
    (folder / "tokenizer_config.json").unlink()
    write(folder, name, {"unk_token": token, "eos_token": None, "additional": ["<y>"]})
    assert read_folder(folder).variables == {"unk_token": "<x>"}


def test_a_tokenizer_config_goes_before_a_map_of_special_tokens(folder):
    change(folder, "tokenizer_config.json", bos_token="<a>", eos_token=None)
    write(folder, "special_tokens_map.json", {"bos_token": "<b>", "eos_token": "<c>"})
    variables = read_folder(folder).variables
    assert (variables["bos_token"], variables["eos_token"]) == ("<a>", "<c>")


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ("plain", "plain"),
        (None, None),
        ([], None),
        ([{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tools", "template": "t"}, {"name": "rag", "template": "r"}], "t"),
        ([{"template": "t"}, 7], "t"),
        ({"default": "d"}, None),
    ],
    ids=str,
)
def test_a_template_may_be_one_or_several_by_name(folder, described, expected):
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    change(folder, "tokenizer_config.json", chat_template=described)
    assert read_folder(folder).template == expected


def test_a_template_in_a_file_of_its_own_goes_first(folder):
    change(folder, "tokenizer_config.json", chat_template="other")
    write(folder, "chat_template.jinja", "own é")
    assert read_folder(folder).template == "own é"


# --- refusals ---


def test_an_empty_folder_is_said_to_hold_no_model(tmp_path):
    with refusing(f"{tmp_path} holds no model", "config.json"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(("content", "why"), [("{", "is no JSON"), ("[]", "holds no object")])
def test_a_file_that_is_no_object_of_json_is_named(folder, name, content, why):
    write(folder, name, content)
    with refusing(f"{folder / name} {why}"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_a_file_that_is_no_text_is_named(folder, name):
    (folder / name).write_bytes(b"\xff\xfe{}")
    with refusing(str(folder / name)):
        read_folder(folder)


def test_a_tokenizer_that_cannot_be_read_is_named(folder):
    write(folder, "tokenizer.json", {"model": {"type": "Unheard"}})
    with refusing(f"{folder / 'tokenizer.json'} cannot be read"):
        read_folder(folder)


@pytest.mark.parametrize("window", [None, 0, "long", 8.5])
def test_a_context_of_no_length_is_refused_when_it_is_asked_for(folder, window):
    change(folder, "config.json", max_position_embeddings=window)
    with refusing(f"{folder} does not say how long a context may be"):
        _ = read_folder(folder).context_window


def test_the_part_about_text_tells_the_context_of_a_model_of_several_kinds(folder):
    change(folder, "config.json", text_config={"max_position_embeddings": 77})
    assert read_folder(folder).context_window == 77
