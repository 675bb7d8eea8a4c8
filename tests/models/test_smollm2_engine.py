"""The embedded model on the native kernels: how close to full precision, and the same whatever runs
beside it."""

import asyncio
from array import array
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tiny_models import Said, answer, run

from antiphon.engine.checkpoints.gguf_checkpoint import read_gguf
from antiphon.engine.kernels import library
from antiphon.engine.kernels.decoder import segments_of
from antiphon.engine.native import selftest
from antiphon.engine.native.structure import structure_of
from antiphon.engine.native.weights import NativeWeights
from antiphon.engine.torch.modules import assembled, first_layers
from antiphon.models import embedded
from antiphon.models.build import build_models
from antiphon.models.local import LocalModel
from antiphon.settings import Settings
from antiphon.turn import Message, Sampling, Turn

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not embedded.is_fetched(Settings().cache_dir),
        reason="the embedded model is not in the user's cache; `antiphon models pull` fetches it",
    ),
    pytest.mark.skipif(not library.PATH.exists(), reason="the kernels are not built here"),
]

TEXT = """\
<|im_start|>user
Why is the sky blue?<|im_end|>
<|im_start|>assistant
The light of the sun is made of all colours. The air scatters blue light more than red light,
because its waves are shorter, and so blue reaches our eyes from every side.<|im_end|>
<|im_start|>user
Thank you. Write three sentences about the sea.<|im_end|>
<|im_start|>assistant
The sea covers most of the earth. It is deep, cold and salty, and most of it has never been seen by
anybody. In 1872 a ship called Challenger set out to measure it with a rope and a weight."""


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    (built,) = build_models(Settings(speculate=False), lambda *_: None)
    assert isinstance(built, LocalModel)
    yield built
    asyncio.run(built.close())


def test_eight_bit_activations_cost_little_of_the_quality():
    """Against the same weights in float32: the bar is a mean divergence of 0.006 nats, a cosine of
    0.998 and the same likeliest token at nine places of ten."""
    checkpoint = read_gguf(embedded.fetch(Settings().cache_dir, lambda *_: None))
    assert checkpoint.tokenizer is not None
    ids = checkpoint.tokenizer.encode(TEXT, add_special_tokens=False).ids
    module = assembled(checkpoint, lambda *_: None)
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()
    structure = structure_of(checkpoint.config, checkpoint.tensors)
    kernels = library.load()
    native = NativeWeights(kernels, checkpoint, "none").model(structure, lambda *_: None)
    decoder = native.decoder(kernels, len(ids) // 16 + 1)
    scores = np.empty((len(ids), structure.vocab_size), np.float32)
    blocks = array("i", range(decoder.num_blocks))
    rows = np.arange(len(ids), dtype=np.int32)
    decoder.forward(np.array(ids, np.int32), segments_of([(len(ids), 0, blocks)]), rows, scores)

    wanted, got = (torch.from_numpy(s).log_softmax(-1) for s in (expected, scores))
    divergence = (wanted.exp() * (wanted - got)).sum(-1).mean()
    cosine = torch.nn.functional.cosine_similarity(
        torch.from_numpy(expected), torch.from_numpy(scores)
    ).mean()
    same = (expected.argmax(-1) == scores.argmax(-1)).mean()
    assert divergence < 0.006
    assert cosine > 0.998
    assert same > 0.9


def test_the_recorded_layers_are_transformers_own():
    checkpoint = read_gguf(embedded.fetch(Settings().cache_dir, lambda *_: None))
    tokens = selftest.sample_tokens(checkpoint.config["vocab_size"])
    layers = first_layers(
        checkpoint.config, checkpoint.tensors.get, tokens, selftest.NUM_LAYERS
    ).numpy()
    recorded = np.load(embedded.RECORDED_LAYERS)
    assert np.abs(layers - recorded).max() <= 1e-3 * np.abs(layers).max()


def turn(text: str, *history: str) -> Turn:
    roles = ("user", "assistant")
    messages = [Message(roles[i % 2], said) for i, said in enumerate((*history, text))]
    return Turn(tuple(messages), sampling=Sampling(temperature=0), max_output_tokens=24)


def together(model: LocalModel, *turns: Turn) -> list[Said]:
    async def all_of_them() -> list[Said]:
        return await asyncio.gather(*(answer(model, one) for one in turns))

    return run(all_of_them())


def test_greedy_text_is_the_same_alone_and_among_fifteen_others(model):
    asked = turn("Name a river and say where it flows.")
    alone = run(answer(model, asked)).text
    others = [turn(f"Tell me about the number {n}. " * (n + 1)) for n in range(15)]
    assert together(model, *others[:8], asked, *others[8:])[8].text == alone


def test_greedy_text_is_the_same_with_a_cached_prefix_and_without(model):
    history = ("Here is a list: " + ", ".join(f"item {n}" for n in range(80)), "I see.")
    asked = turn("What was the first of them?", *history)
    first = run(answer(model, asked))
    again = run(answer(model, asked))
    assert first.usage.cached_tokens < 100
    assert again.usage.cached_tokens >= first.usage.input_tokens - 17
    assert again.text == first.text


def test_greedy_text_is_the_same_preempted_and_speculated_or_not(model):
    turns = [turn(f"Count from {n} upwards, one number after the other.") for n in range(6)]
    expected = [said.text for said in together(model, *turns)]
    # Room for two and a half of them, so that some have to start again.
    (small,) = build_models(Settings(cache_mib=3, max_running=8, speculate=True), lambda *_: None)
    assert isinstance(small, LocalModel)
    try:
        assert [said.text for said in together(small, *turns)] == expected
    finally:
        asyncio.run(small.close())
