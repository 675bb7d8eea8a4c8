"""Runs a transformers model for many sequences, one forward pass for each.

The layout that fits every model: each sequence has a `Cache` of its own.
"""

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from antiphon.engine.sampler import Sampler
from antiphon.engine.sequence import SampledToken, Sequence


class _State:
    """What a sequence keeps between passes."""

    def __init__(self, model: PreTrainedModel, sequence: Sequence) -> None:
        self.cache: Any = DynamicCache(config=model.config)
        self.sampler = Sampler(sequence.request.sampling)


class ModelRunner:
    """Computes prompts in chunks and tokens one by one. Used by the engine's thread alone.

    `max_chunk` is how many prompt tokens one pass computes at most.
    """

    def __init__(self, model: PreTrainedModel, *, max_chunk: int = 256) -> None:
        self._model = model
        self._max_chunk = max_chunk

    def run(self, sequence: Sequence) -> SampledToken | None:
        """Take a sequence one pass further; its next token, None while its prompt is computed."""
        if sequence.state is None:
            sequence.state = _State(self._model, sequence)
        state = sequence.state
        assert isinstance(state, _State)
        with torch.inference_mode():
            if sequence.prefilled:
                logits = self._forward(sequence.generated[-1:], state)
            else:
                start = sequence.num_computed
                chunk = sequence.request.tokens[start : start + self._max_chunk]
                logits = self._forward(chunk, state)
                sequence.num_computed += len(chunk)
                if sequence.num_computed < len(sequence.request.tokens):
                    return None
            return state.sampler.sample(logits, sequence)

    def _forward(self, tokens: list[int], state: _State) -> torch.Tensor:
        """Scores after the last of `tokens`: [V], float32."""
        output = self._model(
            input_ids=torch.tensor([tokens]),
            cache=state.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[0, -1].float()
        return logits
