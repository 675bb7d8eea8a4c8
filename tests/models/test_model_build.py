"""From settings to served models."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_files import llama_writer
from serving import serve
from tiny_models import CHATML, answer, ask, byte_level_tokenizer, run, save, tiny_llama

from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.engine import EngineOptions
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import KernelsUnavailable
from antiphon.errors import StartError
from antiphon.models import embedded
from antiphon.models.base import Model, ModelDefaults
from antiphon.models.build import build_models, model_name
from antiphon.models.local import LocalModel, LocalOptions
from antiphon.models.on_demand import OnDemandModel
from antiphon.models.router import Router
from antiphon.models.scripted import ScriptedModel
from antiphon.settings import Settings
from antiphon.turn import TextDelta

SCRIPTED = {"kind": "scripted", "scenes": [{"steps": [{"text": "Hi"}]}]}


def has_kernels() -> bool:
    try:
        library.load()
    except KernelsUnavailable:
        return False
    return True


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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every self-test was passed, which has tests of its own, and as if there was no GPU."""
    passed = "the kernels agree with transformers' layers"
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.__enter__", lambda test: test)
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.passed_by", lambda *_: passed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_NO_KERNELS", "1")


def new_settings(**values: Any) -> Settings:
    return Settings(**{"threads": torch.get_num_threads(), "cache_mib": 1, **values})


@contextmanager
def built(**settings: Any) -> Iterator[list[Model]]:
    """Models of settings, closed afterwards."""
    models = build_models(new_settings(**settings), lambda *_: None)
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


@pytest.mark.skipif(not has_kernels(), reason="the kernels were not compiled")
def test_a_local_model_is_run_natively_where_it_can_be(folder):
    with built(model=str(folder), threads=1) as (model,):
        run(answer(model, ask("hello")))
        engine = model.status()["engine"]
    assert engine["path"] == "native"
    assert engine["reason"].startswith("It is of the Llama shape, and the kernels agree")
    assert engine["weights"].startswith("F32, computed by")
    assert engine["weights"].endswith("on 1 thread")
    # Of 1 MiB: two layers of keys and values of two heads of eight values, in half precision.
    assert engine["cache"]["total_blocks"] == 2**20 // (2 * 2 * 2 * 8 * 2 * 16)
    assert engine["healthy"] and engine["steps"] > 0


def test_a_way_to_run_a_model_may_be_set(folder):
    for way in ("paged", "universal"):
        with built(models={"a": {"path": str(folder), "engine": way}}) as (model,):
            assert model.status()["engine"]["path"] == way
            assert model.status()["engine"]["reason"].startswith(f"The setting engine says {way}.")


@pytest.mark.skipif(not has_kernels(), reason="the kernels were not compiled")
def test_weights_may_be_quantised_by_the_settings(folder):
    with built(models={"a": {"path": str(folder), "quantize": "int8"}}) as (model,):
        assert model.status()["engine"]["weights"].startswith("int8")
        run(answer(model, ask("hello")))


def test_settings_of_the_engine_reach_it(folder):
    described = {"path": str(folder), "top_k": 7, "min_p": 0.25}
    settings = {
        "max_running": 3,
        "max_waiting": 5,
        "speculate": False,
        "step_timeout_seconds": 9.0,
        "generation_timeout_seconds": 11.0,
        "cache_idle_seconds": 13.0,
        "isolate_cache_keys": True,
    }
    with built(models={"a": described}, **settings) as (model,):
        assert isinstance(model, LocalModel)
        assert model._options == LocalOptions(7, 0.25, 11.0, 13.0, True, "llama")
        assert model._engine._options == EngineOptions(
            max_running=3, max_waiting=5, speculate=False, step_timeout_seconds=9
        )


# --- loaded later, and let go ---


def test_a_model_may_be_loaded_when_it_is_first_asked(folder):
    described = {"path": str(folder), "load": "first_use"}
    with built(models={"a": described}) as (model,):
        assert isinstance(model, OnDemandModel)
        assert model.status() == {"id": "a", "state": "unloaded", "engine": None}
        assert model.family == "llama"
        assert (model.context_window, model.defaults) == (512, ModelDefaults(0.7, 0.8))
        said = run(answer(model, ask("hello", temperature=0)))
        assert model.status()["state"] == "loaded"
    with built(models={"a": {"path": str(folder)}}) as (other,):
        assert run(answer(other, ask("hello", temperature=0))).text == said.text


def test_a_model_that_is_not_there_stops_the_start_though_it_would_be_loaded_later(tmp_path):
    with pytest.raises(LoadError, match="does not exist"):
        with built(models={"a": {"path": str(tmp_path / "none.gguf"), "load": "first_use"}}):
            pass


def test_a_model_that_cannot_be_loaded_later_is_a_server_error_until_it_can(folder, tmp_path):
    path = tmp_path / "tiny.gguf"
    content = llama_writer(tiny_llama(), byte_level_tokenizer(), template=None).to_bytes()
    path.write_bytes(content)
    with built(models={"a": {"path": str(path), "load": "first_use"}}) as models:
        path.write_bytes(content[:-500])
        with serve(*models) as served:
            body = {"input": "hello", "max_output_tokens": 16}
            error = served.error(body, 500)
            assert error["message"] == "The model 'a' cannot be loaded."
            assert error["type"] == "server_error"
            assert served.http.get("/v1/status").json()["models"][0]["state"] == "unloaded"
            path.write_bytes(content)
            assert served.create(body)["usage"]["output_tokens"] == 16
            assert served.http.get("/v1/status").json()["models"][0]["state"] == "loaded"


@pytest.mark.parametrize("load", ["start", "first_use"])
def test_an_idle_model_is_let_go_and_comes_back(folder, load, monkeypatch):
    described = {"path": str(folder), "load": load, "unload_after_seconds": 0.05}
    closed = asyncio.Event()
    own_close = LocalModel.close

    async def close(self: LocalModel) -> None:
        await own_close(self)
        closed.set()

    async def scenario(model: OnDemandModel) -> None:
        assert model.status()["state"] == ("loaded" if load == "start" else "unloaded")
        for _ in range(2):
            await answer(model, ask("hello"))
            await closed.wait()
            closed.clear()
            assert model.status() == {"id": "a", "state": "unloaded", "engine": None}
            assert "engine" not in {thread.name for thread in threading.enumerate()}

    monkeypatch.setattr(LocalModel, "close", close)
    with built(models={"a": described}) as (model,):
        assert isinstance(model, OnDemandModel)
        run(scenario(model))


def test_torch_uses_as_many_threads_as_the_settings_say(no_kernels, gguf):
    before = torch.get_num_threads()
    try:
        with built(model=str(gguf), threads=1):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_progress_is_told_from_the_start(no_kernels, gguf):
    told: list[str] = []
    models = build_models(new_settings(model=str(gguf)), lambda text, *_: told.append(text))
    asyncio.run(models[0].close())
    assert list(dict.fromkeys(told)) == [
        "Reading the file",
        "Starting torch",
        "Reading the weights",
        "Testing the model",
    ]


def test_a_built_model_is_served(gguf):
    # The server closes what it serves.
    models = build_models(new_settings(model=str(gguf)), lambda *_: None)
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
    settings = new_settings(cache_dir=tmp_path / "cache")
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
