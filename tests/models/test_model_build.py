"""From settings to served models."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_files import llama_writer
from serving import serve
from tiny_models import CHATML, answer, ask, byte_level_tokenizer, run, save, tiny_llama

from antiphon.engine.loader import LoadError
from antiphon.errors import StartError
from antiphon.models import embedded
from antiphon.models.base import Model, ModelDefaults
from antiphon.models.build import build_models, model_name
from antiphon.models.local import LocalModel
from antiphon.models.router import Router
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import Settings
from antiphon.turn import TextDelta

SCRIPTED = {"kind": "scripted", "scenes": [{"steps": [{"text": "Hi"}]}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that asks to be sampled."""
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    path.mkdir()
    return save(path, do_sample=True, temperature=0.7, top_p=0.8, top_k=20)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = llama_writer(tiny_llama(), byte_level_tokenizer(), template=None)
    return writer.write(tmp_path_factory.mktemp("files") / "tiny.q8.gguf")


@contextmanager
def built(**settings: Any) -> Iterator[list[Model]]:
    """Models of settings, closed afterwards."""
    settings = {"threads": torch.get_num_threads(), **settings}
    models = build_models(Settings(**settings), lambda *_: None)
    try:
        yield models
    finally:
        for model in models:
            asyncio.run(model.close())


def names(models: list[Model]) -> list[str]:
    return [model.name for model in models]


# --- names and order ---


def test_models_come_in_the_order_of_the_settings():
    with built(models={"b": SCRIPTED, "a": SCRIPTED, "c": SCRIPTED}) as models:
        assert names(models) == ["b", "a", "c"]
        assert all(isinstance(model, ScriptedModel) for model in models)


def test_the_default_model_comes_first():
    with built(model="c", models={"b": SCRIPTED, "a": SCRIPTED, "c": SCRIPTED}) as models:
        assert names(models) == ["c", "b", "a"]


def test_a_default_model_given_by_its_place_comes_before_the_named_ones(gguf):
    with built(model=str(gguf), models={"a": SCRIPTED}) as models:
        assert names(models) == ["tiny.q8", "a"]
        assert isinstance(models[0], LocalModel)


def test_a_model_given_by_its_folder_is_called_as_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for source in (str(folder), f"{folder}/", ".", f"../{folder.name}"):
        assert model_name(source) == "tiny-llama"


def test_a_model_given_by_its_hub_name_keeps_it():
    assert (
        model_name("HuggingFaceTB/SmolLM2-135M-Instruct") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    )


def test_two_models_of_one_name_stop_the_start(gguf):
    with pytest.raises(StartError, match=r"tiny\.q8"):
        with built(model=str(gguf), models={"tiny.q8": SCRIPTED}):
            pass


def test_aliases_stand_for_models_that_were_built():
    with built(models={"a": SCRIPTED, "b": SCRIPTED}) as models:
        route = Router(models, {"gpt-5": "b"}).find("gpt-5")
        assert (route.name, route.model.name) == ("gpt-5", "b")


def test_a_default_model_that_does_not_exist_stops_the_start():
    with pytest.raises(LoadError, match=r"\./missing does not exist"):
        with built(model="./missing"):
            pass


# --- scripted ---


def test_a_scripted_model_is_made_as_it_is_described():
    described = {**SCRIPTED, "context_window": 9, "temperature": 0.5, "top_p": 0.25}
    with built(models={"a": described, "b": SCRIPTED}) as (first, second):
        assert first.context_window == 9
        assert first.defaults == ModelDefaults(0.5, 0.25)
        assert second.context_window is None
        assert second.defaults == ModelDefaults(1.0, 1.0)
        assert run(answer(second, ask("x")))[0] == TextDelta("Hi")


# --- local ---


def test_a_local_model_has_the_context_and_sampling_it_came_with(folder, gguf):
    models = {"folder": {"path": str(folder)}, "gguf": {"path": str(gguf)}}
    with built(models=models) as (from_folder, from_gguf):
        assert from_folder.context_window == from_gguf.context_window == 512
        assert from_folder.defaults == ModelDefaults(0.7, 0.8)
        assert from_gguf.defaults == ModelDefaults(1.0, 1.0)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 0.0), (1.5, 0.5)])
def test_settings_go_before_what_a_local_model_came_with(folder, temperature, top_p):
    described = {
        "path": str(folder),
        "context_window": 64,
        "temperature": temperature,
        "top_p": top_p,
    }
    with built(models={"a": described}) as (model,):
        assert model.context_window == 64
        assert model.defaults == ModelDefaults(temperature, top_p)


def test_use_02_a_request_at_temperature_0_is_greedy_though_the_model_asks_for_sampling(folder):
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    hub = byte_level_tokenizer()
    ids = torch.tensor([hub.encode(prompt).ids])
    made = tiny_llama().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=hub.token_to_id("<|im_end|>"),
        pad_token_id=0,
    )
    expected = hub.decode(made[0, ids.shape[1] :].tolist())
    with built(model=str(folder)) as (model,):
        said = {run(answer(model, ask("hello", temperature=0))).text for _ in range(5)}
    assert said == {expected}


def test_a_local_model_without_a_template_is_shown_names_and_texts(gguf):
    expected = byte_level_tokenizer().encode("User: hello\n\nAssistant:").ids
    with built(model=str(gguf)) as (model,):
        assert run(model.prepare(ask("hello"))).usage.input_tokens == len(expected)


def test_a_template_that_cannot_be_used_stops_the_start(tmp_path):
    writer = llama_writer(tiny_llama(), byte_level_tokenizer(), template="{% nonsense %}")
    with pytest.raises(StartError, match="the chat template cannot be read"):
        with built(model=str(writer.write(tmp_path / "broken.gguf"))):
            pass


def test_torch_uses_as_many_threads_as_the_settings_say(gguf):
    before = torch.get_num_threads()
    try:
        with built(model=str(gguf), threads=1):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_progress_is_told_from_the_start(gguf):
    told: list[str] = []
    settings = Settings(model=str(gguf), threads=torch.get_num_threads())
    models = build_models(settings, lambda text, done, size: told.append(text))
    asyncio.run(models[0].close())
    assert list(dict.fromkeys(told)) == [
        "Starting torch",
        "Reading the tokenizer",
        "Reading the weights",
    ]


def test_a_built_model_is_served(gguf):
    # The server closes what it serves.
    models = build_models(
        Settings(model=str(gguf), threads=torch.get_num_threads()), lambda *_: None
    )
    with serve(*models) as served:
        response = served.create({"input": "hello", "temperature": 0, "max_output_tokens": 16})
        assert response["model"] == "tiny.q8"
        assert response["usage"]["output_tokens"] == 16


# --- the embedded model ---


def test_without_any_model_the_embedded_one_is_fetched_and_answers_greedily(tmp_path, monkeypatch):
    writer = llama_writer(tiny_llama(), byte_level_tokenizer(), template=CHATML)
    path = writer.write(tmp_path / "fetched.gguf")
    told: list[tuple[str, int, int]] = []

    def fetch(cache_dir: Path, progress: embedded.FetchProgress) -> Path:
        assert cache_dir == tmp_path / "cache"
        progress(3, 4)
        return path

    monkeypatch.setattr(embedded, "fetch", fetch)
    settings = Settings(cache_dir=tmp_path / "cache", threads=torch.get_num_threads())
    (model,) = build_models(settings, lambda *stage: told.append(stage))
    asyncio.run(model.close())
    assert model.name == "smollm2-135m-instruct"
    assert model.defaults == ModelDefaults(temperature=0.0)
    assert told[0] == ("Fetching the model", 3, 4)


def test_a_served_model_leaves_the_embedded_one_alone(monkeypatch):
    def fetch(*_: object) -> Path:
        raise AssertionError("fetched")

    monkeypatch.setattr(embedded, "fetch", fetch)
    with built(models={"a": SCRIPTED}) as models:
        assert names(models) == ["a"]
