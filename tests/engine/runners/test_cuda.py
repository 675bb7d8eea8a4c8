"""What is meant for NVIDIA's processors, with stand-ins for what runs on them alone."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from stepping import Blocks, continue_greedily, new_sequence, segment
from tiny_families import tiny_module

from antiphon.engine.runners import cuda
from antiphon.engine.runners.attention import Batch
from antiphon.engine.runners.cuda import DecodeGraphs, FlashAttention, Tables
from antiphon.engine.runners.paged import PagedRunner

NUM_BLOCKS = 48


def flash_stand_in(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor,
    page_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_q: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
    attention_chunk: int,
    softcap: float,
) -> torch.Tensor:
    """As FlashAttention 3 documents its function, one sequence after the other."""
    assert causal and attention_chunk == 0
    assert all(t.dtype == torch.int32 for t in (cache_seqlens, page_table, cu_seqlens_q))
    assert keys.stride(-1) == values.stride(-1) == 1
    seen = torch.empty(len(query), query.shape[1], values.shape[3])
    bounds = zip(cu_seqlens_q[:-1].tolist(), cu_seqlens_q[1:].tolist(), strict=True)
    for row, (start, end) in enumerate(bounds):
        length = int(cache_seqlens[row])
        assert end - start <= max_seqlen_q
        pages = page_table[row].long()
        own_keys = keys[pages].flatten(0, 1)[:length].repeat_interleave(2, 1)
        own_values = values[pages].flatten(0, 1)[:length].repeat_interleave(2, 1)
        scores = torch.einsum("qhd,khd->hqk", query[start:end], own_keys) * softmax_scale
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        places = torch.arange(end - start)[:, None] + length - (end - start)
        others = torch.arange(length)
        hidden = others > places
        if window_size != (-1, -1):
            hidden |= (others < places - window_size[0]) | (others > places + window_size[1])
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        seen[start:end] = torch.einsum("hqk,khd->qhd", weights, own_values)
    return seen


def flashing(family: str, monkeypatch: pytest.MonkeyPatch) -> PagedRunner:
    """A runner that has the stand-in."""
    runner = PagedRunner(copy.deepcopy(tiny_module(family)), num_blocks=NUM_BLOCKS)
    monkeypatch.setattr(runner, "_attention", FlashAttention(flash_stand_in))
    return runner


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3"])
def test_flash_attention_gives_the_scores_that_gathering_gives(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    blocks = Blocks(NUM_BLOCKS)
    sequences = [
        new_sequence(generator.integers(0, 256, n).tolist(), blocks.take(n)) for n in (70, 20, 45)
    ]
    steps = [
        [segment(sequences[0], 0, 60), segment(sequences[1], 0, 20)],
        [segment(sequences[0], 60, 61), segment(sequences[2], 0, 40)],
        [segment(sequences[2], 40, 45), segment(sequences[0], 61, 62)],
    ]
    gathering = PagedRunner(copy.deepcopy(tiny_module(family)), num_blocks=NUM_BLOCKS)
    flash = flashing(family, monkeypatch)
    for step in steps:
        scores, expected = flash.forward(step), gathering.forward(step)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-4)
    gathering.close()
    flash.close()


def test_recorded_passes_are_filled_up_and_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [np.random.default_rng(n).integers(0, 256, 5 + 9 * n).tolist() for n in range(5)]
    gathering = PagedRunner(copy.deepcopy(tiny_module("llama")), num_blocks=NUM_BLOCKS)
    alone = [
        text
        for prompt in prompts
        for text in continue_greedily(
            gathering, [new_sequence(prompt, Blocks(NUM_BLOCKS).take(60))], 8
        )
    ]
    gathering.close()
    runner = flashing("llama", monkeypatch)
    attention = runner._attention
    assert isinstance(attention, FlashAttention)
    sizes = []

    def record(graphs: DecodeGraphs, batch: Batch, tables: Tables) -> Any:
        """Computes on replay what is then in the tensors, as a graph does."""
        sizes.append(len(tables.lengths))
        logits = torch.zeros(len(tables.lengths), runner.vocab_size)

        class Graph:
            def replay(self) -> None:
                attention.prepare(batch, tables)
                logits.copy_(runner._run(batch))

        return cuda._Recorded(Graph(), batch, tables, logits)

    monkeypatch.setattr(DecodeGraphs, "_record", record)
    graphs = DecodeGraphs(
        runner._run, attention, torch.zeros(1), scratch_block=NUM_BLOCKS - 1, max_blocks=8
    )
    monkeypatch.setattr(runner, "_graphs", graphs)
    blocks = Blocks(NUM_BLOCKS - 1)
    together = [new_sequence(prompt, blocks.take(len(prompt) + 8)) for prompt in prompts]
    assert continue_greedily(runner, together, 8) == alone
    assert sizes == [8]
    more = [new_sequence(prompts[0], blocks.take(13)) for _ in range(3)]
    assert continue_greedily(runner, more, 8) == alone[:1] * 3
    assert sizes == [8, 4]
    runner.close()


def test_a_model_that_cannot_be_recorded_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*args: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(DecodeGraphs, "_record", record)
    runner = flashing("llama", monkeypatch)
    attention = runner._attention
    assert isinstance(attention, FlashAttention)
    graphs = DecodeGraphs(runner._run, attention, torch.zeros(1), scratch_block=9, max_blocks=8)
    sequence = new_sequence([1, 2], [3])
    assert graphs.run([segment(sequence, 0, 1)]) is None
    assert graphs.run([segment(sequence, 0, 1)]) is None
    runner.close()


def test_there_is_no_flash_attention_without_its_package() -> None:
    assert cuda.flash_function() is None
