import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from stepping import continue_greedily, new_sequence, segment
from tiny_families import FAMILIES, tiny_module
from transformers import AutoConfig, AutoModelForCausalLM

from antiphon.engine.runners.base import Scores
from antiphon.engine.runners.choose import choose_runner
from antiphon.engine.runners.universal import UniversalRunner

TOLERANCE = 1e-4


def random_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, num_tokens).tolist()


def own_scores(family: str, tokens: list[int]) -> Scores:
    """Of transformers' own forward pass without a cache, after each token."""
    with torch.inference_mode():
        output = tiny_module(family)(input_ids=torch.tensor([tokens]), use_cache=False)
    scores: Scores = output.logits[0].numpy()
    return scores


def assert_close(scores: Scores, expected: Scores) -> None:
    assert 0.5 < expected.std() < 2
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("family", ["qwen3_next", "llama", "gpt_oss"])
def test_chunks_and_single_tokens_score_as_in_transformers(family: str, one_by_one: bool) -> None:
    tokens = random_tokens(70)
    runner = UniversalRunner(tiny_module(family), one_by_one=one_by_one)
    sequence = new_sequence(tokens)
    bounds = [0, 33, 64, 68, 69, 70]
    scores = [runner.forward([segment(sequence, start, end)]) for start, end in pairwise(bounds)]
    assert_close(np.concatenate(scores), own_scores(family, tokens))


def test_sequences_do_not_mix() -> None:
    prompts = [random_tokens(length, length) for length in (40, 3, 21)]
    runner = UniversalRunner(tiny_module("qwen3_next"))
    alone = [text for p in prompts for text in continue_greedily(runner, [new_sequence(p)], 8)]
    together = [new_sequence(tokens) for tokens in prompts]
    assert continue_greedily(runner, together, 8) == alone


def test_scores_come_only_after_the_tokens_that_want_them() -> None:
    tokens = random_tokens(40)
    runner = UniversalRunner(tiny_module("qwen3_next"))
    first, second = new_sequence(tokens), new_sequence(tokens)
    scores = runner.forward([segment(first, 0, 40, 2), segment(second, 0, 30, 0)])
    assert_close(scores, own_scores("qwen3_next", tokens)[-2:])
    assert runner.forward([segment(second, 30, 35, 0)]).shape == (0, runner.vocab_size)


def test_a_state_that_a_failed_pass_left_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = copy.deepcopy(tiny_module("qwen3_next"))
    runner = UniversalRunner(module)
    sequence = new_sequence(random_tokens(20))
    runner.forward([segment(sequence, 0, 10)])
    with monkeypatch.context() as broken:
        broken.setattr(module.lm_head, "forward", lambda hidden: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runner.forward([segment(sequence, 10, 15)])
    with pytest.raises(RuntimeError, match="the state of a sequence"):
        runner.forward([segment(sequence, 10, 15)])


# --- the choice ---


@pytest.mark.parametrize("family", FAMILIES)
def test_the_paged_path_is_taken_where_it_applies(family: str) -> None:
    runner = choose_runner(copy.deepcopy(tiny_module(family)), cache_bytes=1 << 20)
    assert runner.path == ("universal" if family == "qwen3_next" else "paged")
    assert runner.rewinds == (runner.path == "paged")
    runner.close()


def test_a_paged_runner_gets_the_blocks_that_fit() -> None:
    # Two layers of keys and values, two heads of 8 numbers of 4 bytes, 16 tokens.
    bytes_per_block = 2 * 2 * 2 * 8 * 4 * 16
    runner = choose_runner(copy.deepcopy(tiny_module("llama")), cache_bytes=10 * bytes_per_block)
    assert runner.num_blocks == 10
    assert runner.stats() == {"weights": "float32, computed by torch on cpu"}
    runner.close()


def test_a_model_whose_scores_come_out_wrong_in_blocks_is_run_the_universal_way() -> None:
    module = copy.deepcopy(tiny_module("llama"))
    own = module.model.forward

    def forward(*args: object, **options: object) -> object:
        """Depends on where tokens lie in a row, which no packed row can respect."""
        output = own(*args, **options)
        output.last_hidden_state = output.last_hidden_state.cumsum(1)
        return output

    module.model.forward = forward
    runner = choose_runner(module, cache_bytes=1 << 20)
    assert runner.path == "universal"
    assert "came out wrong in blocks" in runner.reason


def test_a_model_that_cannot_go_on_in_chunks_is_taken_on_token_by_token() -> None:
    module = copy.deepcopy(tiny_module("qwen3_next"))
    own = module.model.forward

    def forward(*args: object, cache: object = None, **options: object) -> object:
        """Forgets its state before chunks, as some models do."""
        chunk = options["input_ids"].shape[1] > 1  # type: ignore[attr-defined]
        return own(*args, cache=None if chunk else cache, **options)

    module.model.forward = forward
    runner = choose_runner(module, cache_bytes=1 << 20)
    tokens = random_tokens(30)
    sequence = new_sequence(tokens)
    first, rest = segment(sequence, 0, 20), segment(sequence, 20, 30)
    scores = np.concatenate([runner.forward([first]), runner.forward([rest])])
    assert_close(scores, own_scores("qwen3_next", tokens))


def test_a_model_with_an_encoder_is_refused() -> None:
    module = copy.deepcopy(tiny_module("llama"))
    module.config.is_encoder_decoder = True
    with pytest.raises(ValueError, match="has an encoder"):
        choose_runner(module, cache_bytes=1 << 20)


def test_a_model_without_a_cache_computes_all_tokens_again() -> None:
    config = AutoConfig.for_model("openai-gpt", vocab_size=300, n_embd=32, n_layer=2, n_head=4)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        module = AutoModelForCausalLM.from_config(config).eval()
    runner = choose_runner(module, cache_bytes=1 << 20)
    assert runner.path == "universal"
    tokens = random_tokens(30)
    sequence = new_sequence(tokens)
    bounds = [0, 12, 28, 29, 30]
    scores = [runner.forward([segment(sequence, start, end)]) for start, end in pairwise(bounds)]
    with torch.inference_mode():
        expected = module(torch.tensor([tokens])).logits[0, -2:].numpy()
    np.testing.assert_allclose(np.concatenate(scores)[-2:], expected, rtol=0, atol=TOLERANCE)
