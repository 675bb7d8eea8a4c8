"""Chooses how to run a model in torch, and checks that it then computes what it should."""

import asyncio
from array import array
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from antiphon.engine.runners.attention import AttentionLayer
from antiphon.engine.runners.base import BLOCK_SIZE, ModelRunner, Scores, Segment
from antiphon.engine.runners.paged import PagedRunner, bytes_per_block
from antiphon.engine.runners.survey import NotPageable, survey
from antiphon.engine.runners.universal import UniversalRunner
from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest
from antiphon.turn import Sampling

#: Tokens of the prompt of the check: more than a block.
_NUM_TOKENS = BLOCK_SIZE + 6
_CUT = BLOCK_SIZE - 4
_BLOCKS = ((3, 0), (1, 2))
#: Largest error, of the scores' own size, that is rounding. In half precision experts may be chosen
#: differently, so that it says less.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 5e-2


def choose_runner(
    module: PreTrainedModel,
    *,
    cache_bytes: int,
    path: Literal["auto", "paged", "universal"] = "auto",
) -> ModelRunner:
    """The best way to run a model: paged where it can be, else universal. `path` asks for one.

    A paged runner gets as many blocks as `cache_bytes` are worth. Both are tried on a short prompt
    first; a paged one whose scores are not transformers' own is not taken. The runner's `reason`
    tells. Raises `ValueError` for a model that is no causal language model, and `NotPageable` if
    the paged path was asked for and cannot be had.
    """
    if module.config.is_encoder_decoder:
        raise ValueError(f"{type(module).__name__} has an encoder: it does not continue texts")
    expected = _own_scores(module)
    if path == "universal":
        return _universal(module, "it was asked for", expected)
    try:
        return _paged(module, survey(module), cache_bytes, expected)
    except NotPageable as error:
        refused = error
    except Exception as error:  # A model of unusual code is better run slowly than not at all.
        refused = NotPageable(f"it cannot be run in blocks ({error})")
    if path == "paged":
        raise refused
    return _universal(module, str(refused), expected)


def _paged(
    module: PreTrainedModel, layers: list[AttentionLayer], cache_bytes: int, expected: Scores
) -> PagedRunner:
    """A paged runner. Raises `NotPageable` if it computes something else than the model."""
    num_blocks = max(cache_bytes // bytes_per_block(layers, module.dtype), len(_BLOCKS) * 2)
    runner = PagedRunner(module, num_blocks=num_blocks, layers=layers)
    try:
        error = _error(_paged_scores(runner), np.concatenate([expected, expected]))
        if not error <= _tolerance(module):  # It may be no number.
            raise NotPageable(f"its scores came out wrong in blocks (by {error:.1%})")
    except BaseException:
        runner.close()
        raise
    return runner


def _universal(module: PreTrainedModel, reason: str, expected: Scores) -> UniversalRunner:
    """A universal runner: one that takes prompts in chunks if the model can."""
    for one_by_one in (False, True):
        runner = UniversalRunner(module, reason=reason, one_by_one=one_by_one)
        (sequence,) = _sequences(runner, 1)
        try:
            scores = [
                runner.forward([_segment(sequence, 0, _CUT)]),
                runner.forward([_segment(sequence, _CUT, _NUM_TOKENS)]),
            ]
        except (ValueError, RuntimeError, NotImplementedError, TypeError):
            if one_by_one:
                raise
            continue
        if _error(np.concatenate(scores), expected) <= _tolerance(module):
            return runner
    runner.reason = f"{reason}, and its scores depend on how the text before is cut"
    return runner


def _own_scores(module: PreTrainedModel) -> Scores:
    """transformers' own, with its plainest attention where there is a choice."""
    before = module.config._attn_implementation
    if module._can_set_attn_implementation():
        module.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            tokens = torch.from_numpy(
                _tokens(module.config.get_text_config().vocab_size).astype(np.int64)
            )[None].to(module.device)
            logits = module(input_ids=tokens, use_cache=False).logits[0]
    finally:
        if module._can_set_attn_implementation():
            module.set_attn_implementation(before)
    scores: Scores = logits.to("cpu", torch.float32).numpy()
    return scores


def _paged_scores(runner: PagedRunner) -> Scores:
    """The scores after each token of the prompt, twice: computed in pieces, and in one beside the
    second of them."""
    pieces, whole = _sequences(runner, 2)
    for sequence, blocks in zip((pieces, whole), _BLOCKS, strict=True):
        sequence.blocks = array("i", blocks)
    first = runner.forward([_segment(pieces, 0, _CUT)])
    second = runner.forward(
        [_segment(pieces, _CUT, _NUM_TOKENS - 1), _segment(whole, 0, _NUM_TOKENS)]
    )
    last = runner.forward([_segment(pieces, _NUM_TOKENS - 1, _NUM_TOKENS)])
    middle = _NUM_TOKENS - 1 - _CUT
    return np.concatenate([first, second[:middle], last, second[middle:]])


def _sequences(runner: ModelRunner, count: int) -> list[Sequence]:
    """Sequences of the prompt that nobody reads."""
    loop = asyncio.new_event_loop()
    loop.close()
    request = SequenceRequest(
        tokens=_tokens(runner.vocab_size).tolist(),
        sampling=Sampling(),
        stop_tokens=frozenset(),
        max_tokens=1,
    )
    return [Sequence(request, EngineStream(loop)) for _ in range(count)]


def _segment(sequence: Sequence, start: int, end: int) -> Segment:
    tokens = np.array(sequence.tokens[start:end], np.int32)
    return Segment(sequence, start, tokens, len(tokens))


def _tokens(vocab_size: int) -> npt.NDArray[np.int32]:
    """Any prompt, always the same."""
    return np.random.default_rng(0).integers(0, vocab_size, _NUM_TOKENS, np.int32)


def _error(scores: Scores, expected: Scores) -> float:
    """How far scores are off, of how far they differ among themselves."""
    return float(np.sqrt(np.mean((scores - expected) ** 2)) / expected.std())


def _tolerance(module: PreTrainedModel) -> float:
    return _TOLERANCE if module.dtype == torch.float32 else _HALF_TOLERANCE
