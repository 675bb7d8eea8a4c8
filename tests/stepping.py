"""Sequences taken step by step through a runner, without an engine."""

import asyncio
from array import array
from collections.abc import Sequence as Tokens
from dataclasses import replace
from typing import Any

import numpy as np

from antiphon.engine.runners.base import BLOCK_SIZE, ModelRunner, Segment
from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest
from antiphon.turn import Sampling

_REQUEST = SequenceRequest(
    tokens=[0], sampling=Sampling(temperature=0.0), stop_tokens=frozenset(), max_tokens=1000
)


def new_sequence(tokens: Tokens[int], blocks: Tokens[int] = (), **request: Any) -> Sequence:
    """A sequence that nobody reads, with these blocks."""
    loop = asyncio.new_event_loop()
    loop.close()
    sequence = Sequence(replace(_REQUEST, tokens=tokens, **request), EngineStream(loop))
    sequence.blocks = array("i", blocks)
    return sequence


class Blocks:
    """Hands out blocks in an order that is not theirs."""

    def __init__(self, num_blocks: int, seed: int = 3) -> None:
        self.free = np.random.default_rng(seed).permutation(num_blocks).tolist()

    def take(self, num_tokens: int) -> list[int]:
        """Blocks for so many tokens."""
        return [self.free.pop() for _ in range(-(-num_tokens // BLOCK_SIZE))]


def segment(sequence: Sequence, start: int, end: int, num_scores: int | None = None) -> Segment:
    """Tokens of a sequence, by default with scores after each."""
    tokens = np.array(sequence.tokens[start:end], np.int32)
    return Segment(sequence, start, tokens, len(tokens) if num_scores is None else num_scores)


def continue_greedily(
    runner: ModelRunner, sequences: Tokens[Sequence], num_tokens: int
) -> list[list[int]]:
    """The likeliest next tokens of all sequences, in steps of them all; prompts in one piece."""
    for _ in range(num_tokens):
        steps = [segment(s, s.num_computed, len(s.tokens), 1) for s in sequences]
        for sequence, scores in zip(sequences, runner.forward(steps), strict=True):
            sequence.num_computed = len(sequence.tokens)
            sequence.append(int(scores.argmax()))
    return [list(s.tokens[s.num_prompt :]) for s in sequences]
