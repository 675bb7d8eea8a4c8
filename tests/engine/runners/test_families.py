"""Eight families of models, through the engine and through a server, against transformers' own
loop: in the way that each of them must be run."""

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from serving import Served, serve
from structlog.testing import capture_logs
from tiny_families import FAMILIES, STOP_TOKENS, VOCAB_SIZE, greedy, save, tiny_module
from tiny_models import byte_level_tokenizer, run

from antiphon.engine.block_manager import BlockManager
from antiphon.engine.engine import Engine, EngineOptions
from antiphon.engine.runners.choose import choose_runner
from antiphon.engine.runners.paged import PagedRunner
from antiphon.engine.sampler import Sampler
from antiphon.engine.sequence import EngineStream, SequenceRequest
from antiphon.engine.snapshots import SnapshotCache
from antiphon.models.build import build_models
from antiphon.settings import Settings
from antiphon.turn import Sampling

#: As few as a request may ask for.
NUM_TOKENS = 16
#: The longest is of more than two chunks, and the second begins like it.
LENGTHS = {1: 5, 2: 40, 3: 90, 4: 17}


def expected_path(family: str) -> str:
    return "universal" if family == "qwen3_next" else "paged"


# --- the engine ---


def prompts() -> list[list[int]]:
    made = [
        np.random.default_rng(seed).integers(0, 250, length).tolist()
        for seed, length in LENGTHS.items()
    ]
    return [*made, [*made[2][:64], *made[3]]]


async def _say(
    engine: Engine, prompt: list[int], num_tokens: int = NUM_TOKENS
) -> tuple[list[int], int]:
    """What is said, and how many tokens of the prompt were cached."""
    stream: EngineStream = engine.submit(
        SequenceRequest(prompt, Sampling(temperature=0), STOP_TOKENS, num_tokens)
    )
    tokens = [sampled.token async for output in stream for sampled in output.tokens]
    return tokens, stream.cached_tokens


@contextmanager
def started(family: str, *, num_blocks: int | None = None) -> Iterator[Engine]:
    """An engine that runs a family in the way it must."""
    module = copy.deepcopy(tiny_module(family))
    runner = choose_runner(module, cache_bytes=1 << 20)
    assert runner.path == expected_path(family)
    if num_blocks is not None:
        runner.close()
        runner = PagedRunner(module, num_blocks=num_blocks)
    cache = (
        BlockManager(runner.num_blocks) if runner.num_blocks else SnapshotCache(max_bytes=1 << 24)
    )
    options = EngineOptions(max_running=4, max_chunk=32)
    engine = Engine(runner, cache, Sampler(runner.vocab_size, None), options)
    try:
        yield engine
    finally:
        engine.close()


async def _say_together(
    engine: Engine, together: list[list[int]], num_tokens: int = NUM_TOKENS
) -> list[list[int]]:
    said = await asyncio.gather(*(_say(engine, prompt, num_tokens) for prompt in together))
    return [tokens for tokens, _ in said]


def greedily(
    family: str, together: list[list[int]], num_tokens: int = NUM_TOKENS
) -> list[list[int]]:
    return [greedy(family, prompt, num_tokens) for prompt in together]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_says_what_transformers_says(family: str) -> None:
    with started(family) as engine:
        together = run(_say_together(engine, prompts()))
        assert together == greedily(family, prompts())
        # A second turn on the first answer of the longest.
        turn = [*prompts()[2], *together[2], *prompts()[0]]
        tokens, cached = run(_say(engine, turn))
        assert tokens == greedy(family, turn, NUM_TOKENS)
        assert cached >= 80


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_sequences_that_were_preempted_say_the_same(family: str) -> None:
    # They begin in one block and grow to eight, for which there is no room.
    grown = [prompt[:4] for prompt in prompts()[:4]]
    with started(family, num_blocks=12) as engine:
        assert run(_say_together(engine, grown, 110)) == greedily(family, grown, 110)
        assert engine.stats()["preemptions"] > 0


# --- a server ---


@pytest.fixture(scope="module")
def loaded() -> dict[str, str]:
    """The path that the log names for each model."""
    return {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, loaded: dict[str, str]) -> Iterator[Served]:
    """All families in one server. The native kernels are not asked: they have tests of their own,
    and the other paths must be able to run everything."""
    folder: Path = tmp_path_factory.mktemp("families")
    models = {
        family: {
            "path": str(save(folder / family, family)),
            "engine": "paged" if family in ("llama", "mistral", "qwen3") else "auto",
        }
        for family in FAMILIES
    }
    settings = {"threads": 1, "cache_mib": 1, "cache_dir": folder}
    with capture_logs() as logs:
        built = build_models(Settings(models=models, **settings), lambda *_: None)
    paths = [entry["path"] for entry in logs if entry["event"] == "model loaded"]
    loaded.update(zip(models, paths, strict=True))
    with serve(*built) as served:
        yield served


@pytest.mark.parametrize("family", FAMILIES)
def test_a_server_says_what_transformers_says(family: str, server: Served) -> None:
    tokenizer = byte_level_tokenizer()
    prompt = "<|im_start|>user\nhello world, hello<|im_end|>\n<|im_start|>assistant\n"
    said = greedy(family, tokenizer.encode(prompt).ids, NUM_TOKENS)
    assert len(said) > 2
    response = server.create(
        {
            "model": family,
            "input": "hello world, hello",
            "temperature": 0,
            "max_output_tokens": NUM_TOKENS,
            "stream": False,
        }
    )
    assert response["output"][0]["content"][0]["text"] == tokenizer.decode(said)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_log_and_the_status_name_the_path_that_applies(
    family: str, server: Served, loaded: dict[str, str]
) -> None:
    assert loaded[family] == expected_path(family)
    status = {model["id"]: model for model in server.http.get("/v1/status").json()["models"]}
    assert status[family]["engine"]["path"] == expected_path(family)
    assert status[family]["engine"]["reason"]


def test_the_tokenizer_and_the_models_agree() -> None:
    assert all(tiny_module(family).config.vocab_size == VOCAB_SIZE for family in FAMILIES)
