"""From what lies on disk to a model that runs: which way is taken, and why."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_families
import torch
from gguf_files import GGUFWriter
from llama_shapes import new_module, save, writer
from stepping import Blocks, new_sequence, segment
from structlog.testing import capture_logs
from tiny_models import byte_level_tokenizer
from transformers import PreTrainedModel

from antiphon.engine import memory
from antiphon.engine.block_manager import BlockManager
from antiphon.engine.checkpoints.checkpoint import LoadError
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import KernelsUnavailable
from antiphon.engine.loader import LoadedModel, load, read
from antiphon.engine.native.load import default_cache_bytes
from antiphon.engine.options import LoadOptions
from antiphon.engine.snapshots import SnapshotCache

TOKENS = np.random.default_rng(0).integers(0, 256, 30).tolist()
MIB = 2**20
#: Sentences: each begins with a capital and ends with one full stop.
SENTENCES = re.compile(r"[A-Z]((?!\.\.|\. [^A-Z]).)*[^.]\.")


def nothing(*_: object) -> None:
    """Progress that nobody looks at."""


def has_kernels() -> bool:
    try:
        library.load()
    except KernelsUnavailable:
        return False
    return True


needs_kernels = pytest.mark.skipif(not has_kernels(), reason="the kernels were not compiled")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KernelsUnavailable("the kernels are switched off by a test")

    monkeypatch.setattr(library, "load", fail)


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every self-test was passed, which has tests of its own."""
    passed = "the kernels agree with transformers' layers (cosine 0.9999)"
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.__enter__", lambda test: test)
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.passed_by", lambda *_: passed)


@contextmanager
def loaded(source: Path, **options: Any) -> Iterator[LoadedModel]:
    options = {"cache_bytes": MIB, "threads": torch.get_num_threads(), **options}
    chosen = LoadOptions(cache_dir=source.parent / "cache", **options)
    model = load(read(str(source), nothing), chosen, nothing)
    assert SENTENCES.fullmatch(model.runner.reason), model.runner.reason
    try:
        yield model
    finally:
        model.runner.close()


@contextmanager
def refusing(*words: str) -> Iterator[None]:
    """Expects a `LoadError` in which all the words are found."""
    with pytest.raises(LoadError) as caught:
        yield
    for word in words:
        assert word in str(caught.value)


def folder_of(tmp_path: Path, module: PreTrainedModel | None = None) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    return save(folder, module or new_module())


def file_of(tmp_path: Path, written: GGUFWriter | None = None) -> Path:
    return (written or writer(new_module())).write(tmp_path / "tiny.gguf")


def scores_of(model: LoadedModel) -> np.ndarray:
    sequence = new_sequence(TOKENS, Blocks(4).take(30))
    parts = [segment(sequence, 0, 21), segment(sequence, 21, 30)]
    return np.concatenate([model.runner.forward([part]).copy() for part in parts])


def own_scores(module: PreTrainedModel) -> np.ndarray:
    with torch.inference_mode():
        scores: np.ndarray = module(torch.tensor([TOKENS])).logits[0].numpy()
    return scores


# --- finding it ---


@pytest.mark.parametrize(
    "source", ["./missing", "/missing/model", "~/missing", "missing.gguf", "missing", "a/b/c"]
)
def test_a_path_that_does_not_exist_is_named(source):
    with refusing(f"{source} does not exist"):
        read(source, nothing)


def test_a_file_of_a_folder_s_name_is_still_a_path():
    with refusing("models/tiny.gguf does not exist"):
        read("models/tiny.gguf", nothing)


def test_what_lies_here_goes_before_a_hub_s_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone").mkdir()
    folder_of(tmp_path / "someone")
    assert read("someone/model", nothing).path == Path("someone/model")


def test_a_folder_may_be_named_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder_of(tmp_path)
    assert read("~/model", nothing).context_window == 512


def test_a_file_that_is_no_gguf_file_is_named(tmp_path):
    file = tmp_path / "model.bin"
    file.write_text("hello")
    with refusing(f"{file} is no GGUF file"):
        read(str(file), nothing)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("antiphon.engine.checkpoints.gguf.mmap.mmap", fail)
    with refusing("tiny.gguf cannot be read: Cannot allocate memory"):
        read(str(file_of(tmp_path)), nothing)


# --- the way it is run ---


@needs_kernels
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_model_of_the_llama_shape_is_run_natively(tested, tmp_path, kind):
    module = new_module()
    source = folder_of(tmp_path, module) if kind == "folder" else file_of(tmp_path, writer(module))
    with capture_logs() as logs, loaded(source) as model:
        assert model.runner.path == "native"
        assert model.runner.reason == (
            "It is of the Llama shape, and the kernels agree with transformers' layers "
            "(cosine 0.9999)."
        )
        assert isinstance(model.cache, BlockManager)
        assert model.runner.num_blocks == model.cache.stats()["total_blocks"]
        # Two layers of keys and values of two heads of 16 values, in half precision.
        assert model.runner.num_blocks == MIB // (2 * 2 * 2 * 16 * 2 * 16)
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=0.02)
    (log,) = [log for log in logs if log["event"] == "model loaded"]
    assert (log["path"], log["reason"]) == ("native", model.runner.reason)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_without_kernels_a_model_is_run_in_blocks_by_transformers(no_kernels, tmp_path, kind):
    module = new_module()
    source = folder_of(tmp_path, module) if kind == "folder" else file_of(tmp_path, writer(module))
    with capture_logs() as logs, loaded(source) as model:
        assert model.runner.path == "paged"
        assert model.runner.reason == (
            "The kernels are switched off by a test. "
            "Its 2 attention layers use transformers' attention interface."
        )
        assert isinstance(model.cache, BlockManager)
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=1e-4)
    (log,) = [log for log in logs if log["event"] == "models run slower"]
    assert log["reason"] == "the kernels are switched off by a test"


def test_kernels_may_be_switched_off_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_NO_KERNELS", "1")
    with loaded(folder_of(tmp_path)) as model:
        assert model.runner.path == "paged"
        assert "switched off by ANTIPHON_NO_KERNELS=1." in model.runner.reason


@needs_kernels
def test_a_model_of_another_shape_is_run_in_blocks_and_said_why(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    with loaded(tiny_families.save(folder, "gemma2")) as model:
        assert model.runner.path == "paged"
        assert model.runner.reason.startswith(
            "Models of type 'gemma2' are not of the Llama shape. Its 2 attention layers"
        )


@needs_kernels
def test_a_model_that_keeps_another_state_is_run_universally_and_said_why(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    with loaded(tiny_families.save(folder, "qwen3_next")) as model:
        assert model.runner.path == "universal"
        assert model.runner.reason.startswith(
            "Models of type 'qwen3_next' are not of the Llama shape. It has layers of another kind"
        )
        assert isinstance(model.cache, SnapshotCache)
        assert model.runner.num_blocks == 0


@needs_kernels
@pytest.mark.parametrize("engine", ["native", "paged", "universal"])
def test_a_way_may_be_asked_for(tested, tmp_path, engine):
    module = new_module()
    with loaded(folder_of(tmp_path, module), engine=engine) as model:
        assert model.runner.path == engine
        if engine != "native":
            assert model.runner.reason.startswith(f"The setting engine says {engine}.")
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=0.02)


def test_a_way_that_cannot_be_had_is_refused(no_kernels, tmp_path):
    folder = folder_of(tmp_path)
    with refusing(f"{folder} cannot be run natively: the kernels are switched off by a test"):
        with loaded(folder, engine="native"):
            pass
    tiny_families.save(folder, "qwen3_next")
    with refusing(f"{folder} cannot be run in blocks", "layers of another kind"):
        with loaded(folder, engine="paged"):
            pass


def test_weights_that_only_torch_reads_are_read_by_it(tmp_path):
    module = new_module()
    folder = folder_of(tmp_path, module)
    (folder / "model.safetensors").unlink()
    torch.save(module.state_dict(), folder / "pytorch_model.bin")
    with loaded(folder) as model:
        assert model.runner.path == "paged"
        if has_kernels():
            assert model.runner.reason.startswith("Its weights are not in safetensors files.")
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=1e-4)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_blocks_are_unpacked_where_torch_runs_them(no_kernels, tmp_path, kind):
    module = new_module(tie_word_embeddings=True)
    source = file_of(tmp_path, writer(module, kind=kind))
    tensors = read(str(source), nothing).tensors
    state = {name: torch.from_numpy(tensor.floats()) for name, tensor in tensors.items()}
    module.load_state_dict(state, strict=False)
    with loaded(source) as model:
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=1e-4)


def test_factors_of_the_rotary_embedding_are_heeded_by_torch(no_kernels, tmp_path):
    module, factors = new_module(), np.linspace(1, 8, 8)
    written = writer(module)
    written.add_floats("rope_freqs.weight", factors)
    module.model.rotary_emb.inv_freq /= torch.tensor(factors, dtype=torch.float32)
    with loaded(file_of(tmp_path, written)) as model:
        np.testing.assert_allclose(scores_of(model), own_scores(module), atol=1e-4)


def test_torch_uses_as_many_threads_as_it_is_told(no_kernels, tmp_path):
    before = torch.get_num_threads()
    try:
        with loaded(folder_of(tmp_path), threads=1):
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


# --- what comes with it ---


def test_a_tokenizer_is_that_of_the_model(no_kernels, tmp_path):
    text = "hello world, é😀 user\n\n  end"
    with loaded(folder_of(tmp_path)) as model:
        assert model.tokenizer.encode([text]) == byte_level_tokenizer().encode(text).ids
        controls = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
        assert set(model.tokenizer.controls.values()) == controls


def test_a_tokenizer_kept_in_another_form_is_read_by_transformers(no_kernels, tmp_path):
    folder = folder_of(tmp_path)
    # GPT-2's way to keep it.
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    byte_level_tokenizer().model.save(str(folder))
    with loaded(folder) as model:
        tokens = model.tokenizer.encode(["hello"])
        assert b"".join(map(model.tokenizer.bytes_of, tokens)) == b"hello"


def test_a_model_without_a_tokenizer_is_refused(no_kernels, tmp_path):
    folder = folder_of(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with refusing(f"{folder} has no tokenizer"):
        with loaded(folder):
            pass


def test_progress_is_told_of_every_stage(no_kernels, tmp_path):
    told: list[str] = []

    def progress(text: str, done: int, size: int) -> None:
        told.append(text)

    checkpoint = read(str(folder_of(tmp_path)), progress)
    options = LoadOptions(cache_dir=tmp_path, threads=torch.get_num_threads(), cache_bytes=MIB)
    load(checkpoint, options, progress).runner.close()
    assert told == [
        "Reading the files",
        "Starting torch",
        "Reading the weights",
        "Testing the model",
    ]


# --- room ---


@pytest.mark.parametrize("way", ["native", "torch"])
def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    tested, tmp_path, monkeypatch, way
):
    if way == "torch":
        monkeypatch.setenv("ANTIPHON_NO_KERNELS", "1")
    elif not has_kernels():
        pytest.skip("the kernels were not compiled")
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    folder = folder_of(tmp_path)
    with refusing(f"{folder} needs about 1 MiB of memory, and 0 MiB are free"):
        with loaded(folder):
            pass


@pytest.mark.parametrize(
    ("context_bytes", "available", "expected"),
    [
        (MIB, None, 256 * MIB),
        (400 * MIB, None, 800 * MIB),
        (400 * MIB, 2000 * MIB, 500 * MIB),
        (MIB, 10_000 * MIB, 256 * MIB),
    ],
)
def test_the_cache_takes_what_suits_where_nothing_is_said(context_bytes, available, expected):
    assert default_cache_bytes(context_bytes, available) == expected


@needs_kernels
def test_a_cache_has_room_for_something_however_little_it_is_given(tested, tmp_path):
    with loaded(folder_of(tmp_path), cache_bytes=1) as model:
        assert model.runner.num_blocks == 1


# --- refusals ---


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('{"model_type": "nothing-like-it"}', "nothing-like-it"),
        ("{}", "model_type"),
        ('{"model_type": "llama"}', ""),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_named(tmp_path, config, why):
    folder = folder_of(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(config)
    with refusing(f"{folder} cannot be loaded: ", why):
        with loaded(folder):
            pass


def test_weights_that_are_missing_are_not_made_up(no_kernels, tmp_path):
    module = new_module()
    folder = folder_of(tmp_path, module)
    (folder / "model.safetensors").unlink()
    state = {n: w for n, w in module.state_dict().items() if "layers.1.mlp.up" not in n}
    torch.save(state, folder / "pytorch_model.bin")
    with refusing(f"{folder} lacks weights: model.layers.1.mlp.up_proj.weight"):
        with loaded(folder):
            pass


def test_weights_that_a_file_lacks_are_named(tmp_path):
    written = writer(new_module())
    written.tensors = [tensor for tensor in written.tensors if tensor.name != "blk.1.attn_k.weight"]
    with refusing("tiny.gguf lacks weights: model.layers.1.self_attn.k_proj.weight"):
        with loaded(file_of(tmp_path, written)):
            pass


def test_weights_of_another_shape_than_a_file_says_are_refused(no_kernels, tmp_path):
    written = writer(new_module(), metadata={"llama.feed_forward_length": 128})
    with refusing("tiny.gguf holds weights of other shapes than it says"):
        with loaded(file_of(tmp_path, written)):
            pass


def test_weights_of_another_shape_than_a_folder_says_are_refused(no_kernels, tmp_path):
    folder = folder_of(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"intermediate_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    with refusing(f"{folder} cannot be loaded"):
        with loaded(folder):
            pass
