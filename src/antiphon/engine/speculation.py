"""Guesses ahead by prompt lookup: what followed the last few tokens when they came up before.

Guesses cost rows in a step and pay only where they come true. What comes out is the same with and
without them: each token is drawn from the model's scores as always, and a guess merely has the
scores after it computed in the same step.
"""

from dataclasses import dataclass, field

from antiphon.engine.sequence import Sequence
from antiphon.engine.step_costs import StepCosts

#: Lengths of the ends that are looked up, the longest first.
_LENGTHS = (4, 2)
#: How far back a prompt is looked through; it keeps the first look at a long one short.
_WINDOW = 4096
#: Steps to wait after guesses turned out not to pay: the first time and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256
#: What a stream's guesses are taken to be worth before any were made, and how fast that changes.
_FIRST_RATE, _RATE_WEIGHT = 0.5, 0.2


class PromptLookup:
    """Where in a sequence each short run of tokens came up last."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, ...], int] = {}
        self._num_seen = 0

    def continuation(self, sequence: Sequence, at_most: int) -> list[int]:
        """What followed when the sequence's end came up last; nothing if it never did."""
        known = sequence.tokens
        self._see(sequence)
        for length in _LENGTHS:
            if len(known) < length:
                continue
            start = self._last.get(tuple(known[-length:]))
            if start is not None:
                return known[start : start + at_most].tolist()
        return []

    def _see(self, sequence: Sequence) -> None:
        # Ends before the last token only: what follows the end is what is asked for.
        known = sequence.tokens
        first = max(self._num_seen, len(known) - _WINDOW)
        for length in reversed(_LENGTHS):
            for end in range(max(first, length), len(known)):
                self._last[tuple(known[end - length : end])] = end
        self._num_seen = len(known)


@dataclass(slots=True)
class _Record:
    """How the guesses of one stream fare."""

    lookup: PromptLookup = field(default_factory=PromptLookup)
    rate: float = _FIRST_RATE
    pause: int = 0
    next_pause: int = _FIRST_PAUSE
    probes: bool = False


class Speculator:
    """Makes guesses where they pay.

    `costs` says what a row more costs; `max_guesses` is how many one sequence gets in a step.
    """

    def __init__(self, costs: StepCosts, max_guesses: int = 5) -> None:
        self._costs = costs
        self._max_guesses = max_guesses
        self._records: dict[Sequence, _Record] = {}
        self.num_proposed = 0
        self.num_accepted = 0

    def propose(self, sequence: Sequence, num_rows: int) -> list[int]:
        """Guesses at what comes after the sequence's last token, in a step that has `num_rows`."""
        request = sequence.request
        # One token comes without a guess, so one less than may come can be guessed.
        at_most = min(self._max_guesses, request.max_tokens - sequence.num_generated - 1)
        if request.grammar is not None or at_most < 1:
            return []
        record = self._records.setdefault(sequence, _Record())
        if record.pause:
            record.pause -= 1
            return []
        worth = self._worthwhile(record.rate, num_rows, at_most)
        if not worth:
            # After a pause one guess shows whether that is still so: what was learnt of rows or of
            # this stream may have been chance.
            worth = int(record.probes)
            record.pause = record.next_pause
            record.next_pause = min(2 * record.next_pause, _LONGEST_PAUSE)
        record.probes = not worth
        if not worth:
            return []
        return record.lookup.continuation(sequence, worth)

    def learn(self, sequence: Sequence, num_proposed: int, num_accepted: int) -> None:
        """How many of a step's guesses came true."""
        self.num_proposed += num_proposed
        self.num_accepted += num_accepted
        record = self._records.get(sequence)
        if record is None:
            return
        # Guesses after the first wrong one were not put to the test.
        for number in range(min(num_accepted + 1, num_proposed)):
            record.rate += _RATE_WEIGHT * ((number < num_accepted) - record.rate)
        if num_proposed and num_accepted == num_proposed:
            record.pause, record.next_pause = 0, _FIRST_PAUSE

    def forget(self, sequence: Sequence) -> None:
        """The sequence is done."""
        self._records.pop(sequence, None)

    def _worthwhile(self, rate: float, num_rows: int, at_most: int) -> int:
        """How many guesses make the most tokens a second, in all streams together."""
        plain = self._costs.of_rows(num_rows)
        if not plain:
            return 0  # Nothing was measured yet.
        best, most, expected = 0, num_rows / plain, 0.0
        for number in range(1, at_most + 1):
            expected += rate**number
            seconds = self._costs.of_rows(num_rows + number)
            if seconds and (num_rows + expected) / seconds > most:
                best, most = number, (num_rows + expected) / seconds
        return best
