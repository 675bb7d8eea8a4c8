"""Runs any causal model of transformers, one sequence at a time, with a state of its own for each.

The layout that fits every model, the slow way: whatever a model keeps between passes (keys and
values, states of recurrences, convolutions) is a `Cache` that only the model understands.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from antiphon.engine.runners.base import Scores, Segment
from antiphon.engine.runners.survey import vocab_size_of, weights_of

#: What models call the argument and the output that is their cache.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


@dataclass(slots=True)
class SequenceState:
    """What a model keeps of a sequence after its first `num_tokens` tokens; None of some models,
    which compute them all again for each token.

    While a pass changes it, and if that failed, `num_tokens` is None: it is good for nothing then.
    """

    cache: Any
    num_tokens: int | None


class UniversalRunner:
    """Runs a model with its own cache, which is `Sequence.state` (a `SequenceState`).

    A prompt may come in several chunks. Some models take only one token at a time once they have a
    state; `one_by_one` is for those.
    """

    path = "universal"
    rewinds = False
    num_blocks = 0

    def __init__(
        self, module: PreTrainedModel, *, reason: str = "it was asked for", one_by_one: bool = False
    ) -> None:
        self.reason = reason
        self._weights = weights_of(module)
        self.vocab_size = vocab_size_of(module)
        self._module: PreTrainedModel | None = module
        self._one_by_one = one_by_one
        parameters = inspect.signature(module.forward).parameters
        self._chooses_rows = "logits_to_keep" in parameters
        self._cache_name = next((name for name in _CACHE_NAMES if name in parameters), None)

    def forward(self, segments: list[Segment]) -> Scores:
        """See `ModelRunner.forward`."""
        with torch.inference_mode():
            scores = [self._segment(segment) for segment in segments]
        return np.concatenate(scores)

    def stats(self) -> dict[str, Any]:
        """See `ModelRunner.stats`."""
        return {"weights": self._weights}

    def close(self) -> None:
        """See `ModelRunner.close`."""
        self._module = None

    def _segment(self, segment: Segment) -> Scores:
        state = segment.sequence.state
        if segment.start == 0:
            state = segment.sequence.state = SequenceState(None, 0)
        if not isinstance(state, SequenceState) or state.num_tokens != segment.start:
            raise RuntimeError("the state of a sequence is not that before the tokens to compute")
        state.num_tokens = None
        tokens = segment.tokens
        if state.cache is None:
            tokens = np.array([*segment.sequence.tokens[: segment.start], *tokens], np.int32)
        if self._one_by_one and state.cache is not None:
            kept = [self._pass(tokens[i : i + 1], state, 1) for i in range(len(tokens))]
            scores = np.concatenate(kept)[len(kept) - segment.num_scores :]
        else:
            scores = self._pass(tokens, state, segment.num_scores)
        state.num_tokens = segment.start + len(segment.tokens)
        return scores

    def _pass(self, tokens: npt.NDArray[np.int32], state: SequenceState, num_scores: int) -> Scores:
        """One forward pass of some tokens; the last scores."""
        assert self._module is not None, "the runner was closed"
        options: dict[str, Any] = {}
        if self._cache_name is not None:
            options["use_cache"] = True
            # Without a cache the model makes one of the kind it needs.
            if state.cache is not None:
                options[self._cache_name] = state.cache
        if self._chooses_rows:
            # 0 would be all.
            options["logits_to_keep"] = max(num_scores, 1)
        ids = torch.from_numpy(tokens.astype(np.int64))[None].to(self._module.device)
        output = self._module(input_ids=ids, **options)
        if self._cache_name is not None:
            state.cache = getattr(output, self._cache_name, None)
        logits = output.logits[0]
        scores: Scores = (
            logits[len(logits) - num_scores :].to("cpu", torch.float32).contiguous().numpy()
        )
        return scores
