import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from stepping import Blocks, continue_greedily, new_sequence, segment
from tiny_families import PAGED, WINDOW, tiny_module
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from antiphon.engine.runners.attention import Reach
from antiphon.engine.runners.base import Scores
from antiphon.engine.runners.paged import PagedRunner
from antiphon.engine.runners.survey import NotPageable, survey

#: Largest difference to transformers' own scores, which are around 1.
TOLERANCE = 1e-4
NUM_BLOCKS = 48


@contextmanager
def paged(family: str = "llama", **options: Any) -> Iterator[PagedRunner]:
    runner = PagedRunner(copy.deepcopy(tiny_module(family)), num_blocks=NUM_BLOCKS, **options)
    try:
        yield runner
    finally:
        runner.close()


def random_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, num_tokens).tolist()


def own_scores(family: str, tokens: list[int]) -> Scores:
    """Of transformers' own eager attention, after each token."""
    module = copy.deepcopy(tiny_module(family))
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        scores: Scores = module(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    return scores


def assert_close(scores: Scores, expected: Scores) -> None:
    assert 0.5 < expected.std() < 2
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)


# --- the same scores as transformers' own ---


@pytest.mark.parametrize("family", PAGED)
def test_a_whole_prompt_scores_as_in_transformers(family: str) -> None:
    tokens = random_tokens(70)
    assert len(tokens) > 3 * WINDOW
    sequence = new_sequence(tokens, Blocks(NUM_BLOCKS).take(70))
    with paged(family) as runner:
        assert_close(runner.forward([segment(sequence, 0, 70)]), own_scores(family, tokens))


@pytest.mark.parametrize("family", PAGED)
def test_chunks_and_single_tokens_score_as_in_transformers(family: str) -> None:
    tokens = random_tokens(70)
    sequence = new_sequence(tokens, Blocks(NUM_BLOCKS).take(70))
    bounds = [0, 1, 17, 40, 64, 65, 66, 67, 68, 69, 70]
    with paged(family) as runner:
        scores = [
            runner.forward([segment(sequence, start, end)]) for start, end in pairwise(bounds)
        ]
        assert_close(np.concatenate(scores), own_scores(family, tokens))


@pytest.mark.parametrize("family", PAGED)
def test_a_batch_of_prompts_guesses_and_single_tokens_scores_as_in_transformers(
    family: str,
) -> None:
    lengths = [70, 3, 37, 52, 21, 33, 60]
    #: Tokens of the second step: prompts go on, some say one more token, some guess three.
    last = [1, 1, 20, 1, 3, 1, 3]
    prompts = [random_tokens(length, seed) for seed, length in enumerate(lengths)]
    blocks = Blocks(NUM_BLOCKS)
    sequences = [new_sequence(tokens, blocks.take(len(tokens))) for tokens in prompts]
    with paged(family) as runner:
        first = [segment(s, 0, len(s.tokens) - n) for s, n in zip(sequences, last, strict=True)]
        starts = runner.forward(first).copy()
        second = [
            segment(s, len(s.tokens) - n, len(s.tokens))
            for s, n in zip(sequences, last, strict=True)
        ]
        ends = runner.forward(second)
    done_starts, done_ends = 0, 0
    for tokens, n in zip(prompts, last, strict=True):
        num_first = len(tokens) - n
        scores = np.concatenate(
            [starts[done_starts : done_starts + num_first], ends[done_ends : done_ends + n]]
        )
        assert_close(scores, own_scores(family, tokens))
        done_starts, done_ends = done_starts + num_first, done_ends + n


def test_scores_come_only_after_the_tokens_that_want_them() -> None:
    tokens, others = random_tokens(40), random_tokens(30, 1)
    blocks = Blocks(NUM_BLOCKS)
    sequence, other = new_sequence(tokens, blocks.take(40)), new_sequence(others, blocks.take(30))
    with paged() as runner:
        scores = runner.forward([segment(sequence, 0, 40, 2), segment(other, 0, 30, 0)])
        assert scores.shape == (2, runner.vocab_size) and scores.dtype == np.float32
        assert_close(scores, own_scores("llama", tokens)[-2:])
        assert runner.forward([segment(other, 0, 30, 0)]).shape == (0, runner.vocab_size)


def test_a_text_that_is_cut_into_chunks_scores_as_in_transformers() -> None:
    config = AutoConfig.for_model(
        "llama4_text",
        vocab_size=256,
        hidden_size=32,
        intermediate_size=32,
        intermediate_size_mlp=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=2,
        attention_chunk_size=WINDOW,
        layer_types=["chunked_attention", "full_attention"],
        initializer_range=0.2,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tokens = random_tokens(70)
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    runner = PagedRunner(module, num_blocks=NUM_BLOCKS)
    assert [layer.reach for layer in runner.layers] == [Reach(chunk=WINDOW), Reach()]
    sequence = new_sequence(tokens, Blocks(NUM_BLOCKS).take(70))
    bounds = [0, 30, 64, 65, 66, 70]
    scores = [runner.forward([segment(sequence, a, b)]) for a, b in pairwise(bounds)]
    runner.close()
    assert_close(np.concatenate(scores), expected)


# --- the cache ---


def test_tokens_of_a_block_in_use_by_two_are_computed_once() -> None:
    tokens = random_tokens(48)
    blocks = Blocks(NUM_BLOCKS)
    first = new_sequence(tokens, blocks.take(48))
    with paged() as runner:
        runner.forward([segment(first, 0, 32, 0)])
        other = [*tokens[:32], *random_tokens(20, 5)]
        second = new_sequence(other, [*first.blocks[:2], *blocks.take(20)])
        assert_close(runner.forward([segment(second, 32, 52)]), own_scores("llama", other)[32:])


@pytest.mark.parametrize("family", ["mistral", "deepseek_v3"])
def test_blocks_that_were_another_sequences_are_as_good_as_new(family: str) -> None:
    blocks = Blocks(NUM_BLOCKS).take(70)
    tokens = random_tokens(35, 1)
    with paged(family) as runner:
        runner.forward([segment(new_sequence(random_tokens(70), blocks), 0, 70, 0)])
        sequence = new_sequence(tokens, blocks[::-1])
        assert_close(runner.forward([segment(sequence, 0, 35)]), own_scores(family, tokens))


def test_numbers_that_overflow_do_not_reach_the_next_owner_of_a_block() -> None:
    tokens = random_tokens(5)
    module = copy.deepcopy(tiny_module("llama"))
    # A token whose numbers are none.
    module.model.embed_tokens.weight.data[290] = torch.nan
    runner = PagedRunner(module, num_blocks=2)
    spoiled = runner.forward([segment(new_sequence([290] * 16, [1]), 0, 16)])
    assert np.isnan(spoiled).all()
    scores = runner.forward([segment(new_sequence(tokens, [1]), 0, 5)])
    runner.close()
    assert_close(scores, own_scores("llama", tokens))


def test_guesses_that_were_wrong_are_overwritten() -> None:
    tokens = random_tokens(40)
    sequence = new_sequence([*tokens[:30], *random_tokens(5, 9)], Blocks(NUM_BLOCKS).take(48))
    with paged() as runner:
        runner.forward([segment(sequence, 0, 35)])
        right = new_sequence(tokens, sequence.blocks)
        assert_close(runner.forward([segment(right, 30, 40)]), own_scores("llama", tokens)[30:])


# --- the same text, whatever else is computed ---


def test_a_sequence_says_the_same_alone_among_others_and_after_a_cached_prefix() -> None:
    prompts = [random_tokens(5 + 4 * number, number) for number in range(8)]
    with paged() as runner:
        alone = []
        for tokens in prompts:
            sequence = new_sequence(tokens, Blocks(NUM_BLOCKS).take(60))
            alone += continue_greedily(runner, [sequence], 12)
        blocks = Blocks(NUM_BLOCKS, seed=8)
        together = [new_sequence(tokens, blocks.take(len(tokens) + 12)) for tokens in prompts]
        assert continue_greedily(runner, together, 12) == alone
        blocks = Blocks(NUM_BLOCKS, seed=9)
        longest = new_sequence(prompts[-1], blocks.take(50))
        runner.forward([segment(longest, 0, 16, 0)])
        longest.num_computed = 16
        assert continue_greedily(runner, [longest], 12) == alone[-1:]
    assert len({tuple(text) for text in alone}) == len(alone)


# --- what is found out about a model, and refused ---


@pytest.mark.parametrize(
    ("family", "reaches"),
    [
        ("llama", [Reach(), Reach()]),
        ("mistral", [Reach(window=WINDOW)] * 2),
        ("gemma2", [Reach(window=WINDOW), Reach()]),
    ],
)
def test_windows_are_those_of_the_models_masks(family: str, reaches: list[Reach]) -> None:
    assert [layer.reach for layer in survey(tiny_module(family))] == reaches


def test_a_window_of_any_length_is_found() -> None:
    layers = survey(_changed("mistral", sliding_window=131072))
    assert [layer.reach for layer in layers] == [Reach(window=131072)] * 2


def test_keys_and_values_may_be_of_different_sizes() -> None:
    layer = survey(tiny_module("deepseek_v3"))[0]
    assert (layer.key_size, layer.value_size) == (24, 12)
    assert layer.elements_per_block == 16 * 4 * (24 + 12)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: tiny_module("qwen3_next"), "layers of another kind (linear_attention)"),
        (
            lambda: _changed(
                "llama",
                rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
            ),
            "depends on the length of the text (dynamic)",
        ),
        (lambda: _changed("llama", is_causal=False), "not causal"),
        (lambda: _of("bloom"), "attention interface"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_the_reason(module: Any, reason: str) -> None:
    with pytest.raises(NotPageable) as raised:
        PagedRunner(module(), num_blocks=4)
    assert reason in str(raised.value)


def test_an_option_of_attention_that_is_not_known_is_refused_by_its_name() -> None:
    module = copy.deepcopy(tiny_module("llama"))
    attention = module.model.layers[1].self_attn
    own = attention.forward
    attention.forward = lambda *args, **options: own(*args, position_bias=torch.ones(1), **options)
    with pytest.raises(NotPageable, match="'position_bias'"):
        survey(module)


def _changed(family: str, **changes: Any) -> PreTrainedModel:
    config = copy.deepcopy(tiny_module(family).config)
    for name, value in changes.items():
        setattr(config, name, value)
    module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return module.eval()


def _of(kind: str) -> PreTrainedModel:
    config = AutoConfig.for_model(kind, vocab_size=300, hidden_size=32, n_layer=1, n_head=2)
    module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return module.eval()


# --- its place in the process ---


def test_two_models_are_run_beside_each_other() -> None:
    tokens = random_tokens(20)
    with paged("llama") as llama, paged("qwen3") as qwen:
        for _ in range(2):
            for family, runner in (("llama", llama), ("qwen3", qwen)):
                sequence = new_sequence(tokens, [5, 2])
                scores = runner.forward([segment(sequence, 0, 20)])
                assert_close(scores, own_scores(family, tokens))


def test_a_closed_runner_leaves_the_model_and_transformers_as_they_were() -> None:
    module = copy.deepcopy(tiny_module("llama"))
    names, before = set(ALL_ATTENTION_FUNCTIONS), module.config._attn_implementation
    runner = PagedRunner(module, num_blocks=4)
    assert set(ALL_ATTENTION_FUNCTIONS) != names
    runner.close()
    runner.close()
    assert set(ALL_ATTENTION_FUNCTIONS) == names
    assert module.config._attn_implementation == before
