"""The kernels are held against transformers' layers before a model is run on them."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from llama_shapes import new_module, save, writer
from structlog.testing import capture_logs

from antiphon.engine.checkpoints.checkpoint import Tensor
from antiphon.engine.checkpoints.ggml import TYPES_BY_NAME
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import KernelsUnavailable
from antiphon.engine.loader import load, read
from antiphon.engine.native import selftest
from antiphon.engine.native.load import NativeRefused, load_native
from antiphon.engine.native.selftest import LayersProcess, LayersUnavailable, Verdict
from antiphon.engine.native.weights import NativeWeights
from antiphon.engine.options import LoadOptions
from antiphon.engine.torch.modules import first_layers

try:
    library.load()
except KernelsUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)


def nothing(*_: object) -> None:
    """Progress that nobody looks at."""


class LayersHere:
    """transformers' layers in this process, where they are quick to start."""

    def __init__(self, source: Path, vocab_size: int, num_layers: int) -> None:
        self.tokens = selftest.sample_tokens(vocab_size)
        checkpoint = read(str(source), nothing)
        self._hidden = first_layers(
            checkpoint.config, checkpoint.tensors.get, self.tokens, num_layers
        )

    def result(self) -> np.ndarray:
        hidden: np.ndarray = self._hidden.numpy()
        return hidden

    def close(self) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "LayersProcess", LayersHere)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a model."""
    folder = tmp_path / "model"
    folder.mkdir()
    return save(folder, new_module("qwen2"))


def passing(tmp_path: Path, source: Path, **options: Any) -> str:
    """What is said of a model that passed."""
    chosen = LoadOptions(cache_dir=tmp_path / "cache", cache_bytes=2**20, **options)
    runner, _ = load_native(read(str(source), nothing), chosen, nothing)
    return runner.reason


def verdicts(tmp_path: Path) -> list[float]:
    return [
        json.loads(path.read_text())["cosine"]
        for path in (tmp_path / "cache" / "self-tests").glob("*.json")
    ]


# --- a process of its own ---


def test_a_right_model_passes_and_is_not_tested_twice(tmp_path, model, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    made: list[LayersProcess] = []

    class Noted(LayersProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(selftest, "LayersProcess", Noted)
    reason = passing(tmp_path, model)
    (cosine,) = verdicts(tmp_path)
    assert cosine > 0.9999
    assert reason == (
        "It is of the Llama shape, and the kernels agree with transformers' layers "
        f"(cosine {cosine:.4f})."
    )
    (process,) = made
    assert process._process.returncode == 0  # It was waited for.
    assert list(temporary.iterdir()) == []
    assert passing(tmp_path, model) == reason
    assert len(made) == 1


def test_layers_that_cannot_be_run_are_said_so_and_asked_again(tmp_path, model, monkeypatch):
    config = json.loads((model / "config.json").read_text())
    # Of no meaning to the kernels, and not to be had in transformers.
    (model / "config.json").write_text(json.dumps(config | {"initializer_range": "wide"}))
    with capture_logs() as logs:
        reason = passing(tmp_path, model)
    assert reason == (
        "It is of the Llama shape, and the kernels were not held against transformers' layers."
    )
    (log,) = [log for log in logs if log["event"] == "kernels not tested"]
    assert "initializer_range" in log["reason"]
    assert verdicts(tmp_path) == []


def test_layers_that_take_too_long_are_ended(model, monkeypatch):
    monkeypatch.setattr(selftest, "_TIMEOUT_SECONDS", 0.01)
    process = LayersProcess(model, 100, 2)
    with pytest.raises(LayersUnavailable, match="took too long"):
        process.result()
    assert process._process.returncode is not None
    assert not process._result.parent.exists()


def test_layers_that_nobody_waits_for_are_ended(model):
    process = LayersProcess(model, 100, 2)
    process.close()
    process.close()
    assert process._process.returncode is not None
    assert not process._result.parent.exists()
    with pytest.raises(ChildProcessError):
        os.waitpid(process._process.pid, os.WNOHANG)


def test_layers_that_are_killed_are_said_to_have_ended(model):
    process = LayersProcess(model, 100, 2)
    process._process.kill()
    with pytest.raises(LayersUnavailable, match="without a word"):
        process.result()


def test_loading_that_fails_ends_the_layers(tmp_path, model, monkeypatch):
    made: list[LayersProcess] = []

    class Noted(LayersProcess):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(selftest, "LayersProcess", Noted)
    monkeypatch.setattr(NativeWeights, "model", fail)
    with pytest.raises(MemoryError):
        passing(tmp_path, model)
    assert made[0]._process.returncode is not None


# --- what passes ---


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_every_family_passes_as_a_folder(here, tmp_path, family, quantize):
    folder = tmp_path / "model"
    folder.mkdir()
    save(folder, new_module(family, tie_word_embeddings=family == "llama"))
    assert "agree with transformers' layers" in passing(tmp_path, folder, quantize=quantize)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1"])
def test_every_family_passes_as_a_file(here, tmp_path, family, kind):
    module = new_module(family, sliding_window=None) if family == "mistral" else new_module(family)
    path = writer(module, kind=kind).write(tmp_path / "tiny.gguf")
    assert "agree with transformers' layers" in passing(tmp_path, path)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 1},
        {"vocab_size": 70_001, "hidden_size": 32},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}},
        {"attention_bias": True},
        {"head_dim": 32},
    ],
    ids=str,
)
def test_models_of_unusual_sizes_pass(here, tmp_path, changes):
    folder = tmp_path / "model"
    folder.mkdir()
    save(folder, new_module("llama", **changes))
    passing(tmp_path, folder)


def test_factors_of_the_rotary_embedding_pass(here, tmp_path):
    written = writer(new_module())
    written.add_floats("rope_freqs.weight", np.linspace(1, 8, 8))
    passing(tmp_path, written.write(tmp_path / "tiny.gguf"))


def test_the_layers_are_those_of_the_whole_module():
    module = new_module("qwen3", num_hidden_layers=3)
    state = {name: weight.detach().numpy() for name, weight in module.named_parameters()}
    tensors = {
        name: Tensor(name, TYPES_BY_NAME["F32"], values.shape, values.reshape(-1).view(np.uint8))
        for name, values in state.items()
    }
    tokens = [5, 80, 17, 3, 3]
    found = first_layers(module.config.to_dict(), tensors.get, tokens, 2)
    with torch.inference_mode():
        states = module.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(found, states[2][0])


# --- what does not ---


def sabotage(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Have the weights read wrongly in one point."""
    whole = NativeWeights._tensor
    swapped = {"gate_proj": "up_proj", "up_proj": "gate_proj"}

    def tensor(self: NativeWeights, name: str, shape: tuple[int, ...]) -> Tensor:
        part = name.split(".")[-2]
        if wrong == "halves" and part == "q_proj" and name.endswith("weight"):
            order = np.arange(64).reshape(4, 2, 8).swapaxes(1, 2).reshape(-1)
            return whole(self, name, shape).reordered(order)
        if wrong == "gate and up" and part in swapped:
            name = name.replace(part, swapped[part])
        if wrong == "norms" and "input_layernorm" in name:
            name = name.replace("input_layernorm", "post_attention_layernorm")
        return whole(self, name, shape)

    monkeypatch.setattr(NativeWeights, "_tensor", tensor)
    if wrong == "biases":
        monkeypatch.setattr(NativeWeights, "_maybe", lambda *_: None)


@pytest.mark.parametrize("wrong", ["halves", "gate and up", "norms", "biases"])
def test_weights_that_are_read_wrongly_are_found(here, tmp_path, model, monkeypatch, wrong):
    sabotage(monkeypatch, wrong)
    with pytest.raises(NativeRefused, match="disagree with transformers' layers"):
        passing(tmp_path, model)
    (cosine,) = verdicts(tmp_path)
    assert cosine < 0.99


def test_a_model_that_failed_is_run_by_transformers_and_said_why(
    here, tmp_path, model, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sabotage(monkeypatch, "halves")
    options = LoadOptions(cache_dir=tmp_path / "cache", threads=torch.get_num_threads())
    runner = load(read(str(model), nothing), options, nothing).runner
    (cosine,) = verdicts(tmp_path)
    assert runner.path == "paged"
    assert runner.reason.startswith(
        f"The kernels disagree with transformers' layers (cosine {cosine:.4f}). Its 2 attention"
    )
    runner.close()


def test_a_model_that_failed_is_not_tested_again(tmp_path, model, monkeypatch):
    monkeypatch.setattr(selftest, "remembered", lambda *_: Verdict(0.5))
    with pytest.raises(NativeRefused, match=r"cosine 0\.5000"):
        passing(tmp_path, model)


def test_scores_that_are_no_numbers_do_not_pass(tmp_path, model, monkeypatch):
    monkeypatch.setattr(selftest, "remembered", lambda *_: Verdict(float("nan")))
    with pytest.raises(NativeRefused):
        passing(tmp_path, model)


# --- what is remembered ---


def test_a_verdict_is_remembered_by_what_it_depends_on(tmp_path, model):
    kernels = tmp_path / "kernels.so"
    kernels.write_bytes(b"one")
    key = selftest.key_of(kernels, "avx2", model, "none")
    assert selftest.key_of(kernels, "avx2", model, "none") == key
    others = {
        selftest.key_of(kernels, "portable", model, "none"),
        selftest.key_of(kernels, "avx2", model, "int8"),
        selftest.key_of(kernels, "avx2", model / "model.safetensors", "none"),
    }
    kernels.write_bytes(b"two")
    others.add(selftest.key_of(kernels, "avx2", model, "none"))
    kernels.write_bytes(b"one")
    os.utime(model / "config.json", ns=(1, 1))
    others.add(selftest.key_of(kernels, "avx2", model, "none"))
    assert len(others - {key}) == 5


def test_another_version_of_the_package_tests_again(tmp_path, model, monkeypatch):
    kernels = tmp_path / "kernels.so"
    kernels.touch()
    key = selftest.key_of(kernels, "avx2", model, "none")
    monkeypatch.setattr(selftest, "__version__", "0.0.0")
    assert selftest.key_of(kernels, "avx2", model, "none") != key


def test_a_folder_may_hold_folders_and_links_that_lead_nowhere(tmp_path, model):
    (model / "folder").mkdir()
    (model / "link").symlink_to(tmp_path / "nowhere")
    assert selftest.key_of(library.PATH, "avx2", model, "none")


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"cosine": "high"}'])
def test_what_is_damaged_is_not_remembered(tmp_path, content):
    if content is not None:
        (tmp_path / "key.json").write_text(content)
    assert selftest.remembered(tmp_path, "key") is None


def test_what_is_remembered_is_found(tmp_path):
    selftest.remember(tmp_path / "new" / "folder", "key", Verdict(0.75))
    assert selftest.remembered(tmp_path / "new" / "folder", "key") == Verdict(0.75)


def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path):
    (tmp_path / "file").touch()
    selftest.remember(tmp_path / "file", "key", Verdict(0.75))
    assert selftest.remembered(tmp_path / "file", "key") is None


def test_the_same_tokens_are_taken_every_time():
    assert selftest.sample_tokens(100) == selftest.sample_tokens(100)
    assert max(selftest.sample_tokens(7)) < 7
