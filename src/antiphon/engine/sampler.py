"""Draws the next token from a model's scores."""

import secrets

import torch

from antiphon.engine.sequence import SampledToken, Sequence
from antiphon.turn import Sampling

#: Below this temperature the likeliest token always wins by so much that drawing is pointless.
_GREEDY = 1e-4


class Sampler:
    """The drawing of one sequence. The same seed draws the same, whatever else is running."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator()
        seed = secrets.randbits(32) if sampling.seed is None else sampling.seed % 2**64
        # torch's generator looks at the low 32 bits only.
        self._generator.manual_seed((seed ^ (seed >> 32) * 0x9E3779B1) % 2**32)

    def sample(self, logits: torch.Tensor, sequence: Sequence) -> SampledToken:
        """The next token. `logits`: [V], float32, not changed."""
        scores = self._penalised(logits, sequence.counts)
        if self._sampling.temperature < _GREEDY:
            token = int(scores.argmax())
        else:
            token = self._drawn(scores / self._sampling.temperature)
        if sequence.request.top_logprobs is None:
            return SampledToken(token)
        return _with_logprobs(token, logits, sequence.request.top_logprobs)

    def _penalised(self, logits: torch.Tensor, counts: dict[int, int]) -> torch.Tensor:
        """The scores of tokens that were made before, lowered (OpenAI's definition)."""
        presence, frequency = self._sampling.presence_penalty, self._sampling.frequency_penalty
        if not counts or (presence == 0 and frequency == 0):
            return logits
        tokens = torch.tensor(list(counts))
        times = torch.tensor(list(counts.values()), dtype=logits.dtype)
        scores = logits.clone()
        scores[tokens] -= presence + frequency * times
        return scores

    def _drawn(self, scores: torch.Tensor) -> int:
        probabilities = scores.softmax(-1)
        if self._sampling.top_p < 1:
            sorted_probabilities, order = probabilities.sort(descending=True)
            before = sorted_probabilities.cumsum(-1) - sorted_probabilities
            # The fewest that reach the threshold, and always one.
            kept = sorted_probabilities.masked_fill(before >= self._sampling.top_p, 0)
            kept[0] = sorted_probabilities[0]
            return int(order[torch.multinomial(kept, 1, generator=self._generator)])
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def _with_logprobs(token: int, logits: torch.Tensor, num_top: int) -> SampledToken:
    logprobs = logits.log_softmax(-1)
    values, tokens = logprobs.topk(num_top)
    top = tuple(zip(tokens.tolist(), values.tolist(), strict=True))
    return SampledToken(token, float(logprobs[token]), top)
