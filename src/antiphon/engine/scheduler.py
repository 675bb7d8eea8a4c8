"""Who takes part in the next step, and with how many tokens.

Rules, in this order:

1. Every sequence that speaks gets its next token, and guesses after it where they pay.
2. What is left of the step's budget goes to prompts, in chunks. While somebody speaks the budget is
   what lengthens the step by `_SLOWDOWN`; it grows with the number of those who wait for each that
   speaks, and never falls below `_LEAST_CHUNK` tokens.
3. New sequences start while there are places and there is room for their whole prompt.

When a running sequence finds no room, the last of those that run is set back: its blocks are let go
of, its tokens are kept, and it starts again before all others of its tenant. The first is never set
back for another, so that there is always one that comes to its end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.engine.cache import SequenceCache
from antiphon.engine.fair_queue import FairQueue, FairShares
from antiphon.engine.runners.base import BLOCK_SIZE
from antiphon.engine.sequence import Sequence
from antiphon.engine.speculation import Speculator
from antiphon.engine.step_costs import StepCosts

#: By how much of itself a step of those who speak may be lengthened by prompts.
_SLOWDOWN = 0.8
_LEAST_CHUNK = BLOCK_SIZE
#: Room that a new sequence needs beyond its prompt, so that it does not at once set others back.
_WATERMARK = 2 * BLOCK_SIZE
#: How long a memory error makes steps smaller. Then they grow back to their size by doubling.
_SHED_SECONDS = 10.0


class DeadlineExceeded(Exception):
    """The sequence was not done by its deadline."""


class SequenceTooLong(Exception):
    """The cache of keys and values cannot hold the sequence, even if it is alone."""


class Work(NamedTuple):
    """What a step does for a sequence: it computes the first `num_tokens` of its pending tokens and
    after them `guesses`, and draws `num_scores` times at most."""

    sequence: Sequence
    num_tokens: int
    guesses: list[int]
    num_scores: int


@dataclass(slots=True)
class _Place:
    """A sequence's place among the others: `order` is by priority, then by arrival."""

    order: tuple[int, int]
    started: bool = False


class Scheduler:
    """Pure bookkeeping: no thread, no clock. Used by the engine's thread alone.

    At most `max_running` sequences run at once; a step computes at most `max_chunk` tokens of
    prompts.
    """

    def __init__(
        self,
        cache: SequenceCache,
        costs: StepCosts,
        speculator: Speculator | None,
        *,
        max_running: int,
        max_chunk: int,
    ) -> None:
        self._cache = cache
        self._costs = costs
        self._speculator = speculator
        self._max_running = max_running
        self._max_chunk = max_chunk
        self._shares = FairShares()
        self._waiting = FairQueue(self._shares)
        self._running: list[Sequence] = []
        self._places: dict[Sequence, _Place] = {}
        self._num_arrived = 0
        #: Sequences of a step that failed, and where each is past the tokens it failed with.
        self._suspects: dict[Sequence, int] = {}
        #: Found no room; there is none before somebody lets go of some.
        self._blocked: set[Sequence] = set()
        self._scale = 1.0
        self._scale_until = 0.0
        self._too_long: list[Sequence] = []
        self.num_preempted = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def sequences(self) -> list[Sequence]:
        """All that are here."""
        return [*self._running, *self._waiting]

    def add(self, sequence: Sequence) -> None:
        """A new sequence."""
        self._num_arrived += 1
        self._places[sequence] = _Place((-sequence.request.priority, self._num_arrived))
        self._shares.enter(sequence.request.tenant)
        self._waiting.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """A sequence is done, failed or no longer wanted; its room is free. Again is harmless."""
        if self._places.pop(sequence, None) is None:
            return
        if sequence in self._running:
            self._stop(sequence)
        else:
            self._waiting.remove(sequence)
            self._blocked.discard(sequence)
        self._shares.leave(sequence.request.tenant)
        self._suspects.pop(sequence, None)
        if self._speculator is not None:
            self._speculator.forget(sequence)

    def schedule(self, now: float) -> list[Work]:
        """The next step; empty if there is nothing to do. Who cannot be run is then to be had from
        `take_too_long`."""
        if now >= self._scale_until and self._scale < 1:
            self._scale, self._scale_until = min(1.0, 2 * self._scale), now + _SHED_SECONDS
        suspect = self._suspect_work()
        if suspect is not None:
            return [suspect]
        self._running.sort(key=self._order)
        num_preempted = self.num_preempted
        works = self._speaking_works()
        left = self._budget(sum(1 + len(work.guesses) for work in works))
        # Where somebody was just set back there is no room for others.
        self._add_prompts(works, left, may_start=num_preempted == self.num_preempted)
        return works

    def take_too_long(self) -> list[Sequence]:
        """Those that were found to fit in no cache; they are already removed."""
        found, self._too_long = self._too_long, []
        return found

    def done(self, works: Iterable[Work], seconds: float) -> None:
        """A step was taken, and its sequences stand where it took them."""
        num_rows = num_prompt_tokens = 0
        for sequence, num_tokens, guesses, _ in works:
            if sequence not in self._places:
                continue
            self._shares.charge(sequence.request.tenant, num_tokens)
            if self._suspects.get(sequence, sequence.num_computed + 1) <= sequence.num_computed:
                del self._suspects[sequence]
            if num_tokens == 1:
                num_rows += 1 + len(guesses)
            else:
                num_prompt_tokens += num_tokens
        self._costs.learn(num_rows, num_prompt_tokens, seconds)

    def guessed(self, work: Work, num_right: int) -> None:
        """How many of the guesses of a sequence came true."""
        if self._speculator is not None and work.guesses:
            self._speculator.learn(work.sequence, len(work.guesses), num_right)

    def suspect(self, works: Iterable[Work]) -> None:
        """A step failed. Each of its sequences is run alone until it is past where it failed."""
        for sequence, num_tokens, _, _ in works:
            if sequence in self._places:
                self._suspects[sequence] = sequence.num_computed + num_tokens

    def shed(self, now: float) -> bool:
        """Memory ran out. Set back the last half of those that run and take smaller steps for a
        while. False if steps can get no smaller: then it is the sequence that is too large."""
        if len(self._running) <= 1 and self._max_tokens == _LEAST_CHUNK:
            self._scale = 1.0
            return False
        self._scale /= 2
        self._scale_until = now + _SHED_SECONDS
        self._running.sort(key=self._order)
        for sequence in reversed(self._running[-(-len(self._running) // 2) :]):
            self._preempt(sequence)
        return True

    def set_back(self, works: Iterable[Work]) -> None:
        """Start the sequences of a step again from the beginning, as their state may be damaged."""
        for work in reversed(list(works)):
            self._preempt(work.sequence)

    # --- the parts of a step ---

    @property
    def _max_tokens(self) -> int:
        return max(_LEAST_CHUNK, int(self._max_chunk * self._scale))

    def _speaking_works(self) -> list[Work]:
        works: list[Work] = []
        num_rows = sum(map(_speaks, self._running))
        for sequence in list(self._running):
            if not _speaks(sequence) or sequence not in self._running:
                continue
            guesses = self._guesses(sequence, num_rows)
            if self._make_room(sequence, 1 + len(guesses), works):
                works.append(Work(sequence, 1, guesses, 1 + len(guesses)))
                num_rows += len(guesses)
        return works

    def _guesses(self, sequence: Sequence, num_rows: int) -> list[int]:
        if self._speculator is None or self._scale < 1:
            return []
        guesses = self._speculator.propose(sequence, num_rows)
        # Guesses are not worth setting anybody back.
        if guesses and not self._cache.reserve(sequence, 1 + len(guesses)):
            return []
        return guesses

    def _budget(self, num_rows: int) -> int:
        """How many tokens of prompts the step may have."""
        speaking = self._costs.of_rows(num_rows)
        token = self._costs.of_prompt_token()
        if not num_rows or not speaking or not token:
            return self._max_tokens
        num_speaking = sum(map(_speaks, self._running))
        places = self._max_running - len(self._running)
        num_prompts = len(self._running) - num_speaking + min(places, len(self._waiting))
        share = max(1.0, num_prompts / num_speaking)
        wanted = int(_SLOWDOWN * share * speaking / token)
        return min(max(wanted, _LEAST_CHUNK), self._max_tokens)

    def _add_prompts(self, works: list[Work], left: int, *, may_start: bool) -> None:
        """Share what is left of the step among the prompts that run and those that wait. Who waits
        starts as late as possible, and so finds what others computed meanwhile."""
        num_preempted = self.num_preempted
        running = (sequence for sequence in self._running if not _speaks(sequence))
        for sequence in sorted(running, key=self._prompt_order):
            if may_start and num_preempted == self.num_preempted:
                left = self._add_new(works, left, before=sequence)
            if left <= 0:
                return
            if sequence not in self._running:
                continue
            num_tokens = self._chunk(sequence, left)
            if num_tokens and self._make_room(sequence, num_tokens, works):
                works.append(_prompt_work(sequence, num_tokens))
                left -= num_tokens
        if may_start and num_preempted == self.num_preempted:
            self._add_new(works, left)

    def _add_new(self, works: list[Work], left: int, before: Sequence | None = None) -> int:
        """Start sequences; with `before` only those whose turn it is rather than that one's. What
        is left of the step then."""
        max_running = max(1, int(self._max_running * self._scale))
        while left > 0 and len(self._running) < max_running:
            sequence = self._waiting.next()
            if sequence is None or sequence in self._suspects:
                break
            if before and self._prompt_order(sequence)[:3] >= self._prompt_order(before)[:3]:
                break
            if not self._start(sequence):
                break
            num_tokens = self._chunk(sequence, left)
            if not num_tokens:
                break
            works.append(_prompt_work(sequence, num_tokens))
            left -= num_tokens
        return left

    def _start(self, sequence: Sequence) -> bool:
        """Have a waiting sequence run if there is room for all that is known of it."""
        if sequence in self._blocked:
            return False
        self._cache.begin(sequence)
        beyond = _WATERMARK if self._running else 0
        if not self._cache.reserve(sequence, sequence.num_pending + beyond):
            self._cache.release(sequence)
            if self._running:
                self._blocked.add(sequence)
            else:
                self._give_up(sequence)
            return False
        place = self._places[sequence]
        if not place.started:
            place.started = True
            sequence.stream.cached_tokens = min(sequence.num_computed, sequence.num_prompt)
        self._waiting.remove(sequence)
        self._running.append(sequence)
        return True

    def _suspect_work(self) -> Work | None:
        for sequence in list(self._suspects):
            if sequence not in self._running and not self._start(sequence):
                continue
            num_tokens = min(sequence.num_pending, self._max_tokens)
            if self._make_room(sequence, num_tokens, []):
                return _prompt_work(sequence, num_tokens)
        return None

    # --- room ---

    def _make_room(self, sequence: Sequence, num_tokens: int, works: list[Work]) -> bool:
        """Room for a running sequence's next tokens, if need be that of others; False if it had to
        go itself. Nobody that is already in the step goes, and nobody before it in the order."""
        while not self._cache.reserve(sequence, num_tokens):
            taken = {work.sequence for work in works}
            last = max(
                (s for s in self._running if s is not sequence and s not in taken),
                key=self._order,
                default=None,
            )
            if last is not None and self._order(last) > self._order(sequence):
                self._preempt(last)
            elif len(self._running) > 1:
                self._preempt(sequence)
                return False
            else:
                self._give_up(sequence)
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        if sequence in self._running:
            self._stop(sequence)
            self._waiting.add_first(sequence)
            self.num_preempted += 1

    def _stop(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._cache.release(sequence)
        self._blocked.clear()

    def _give_up(self, sequence: Sequence) -> None:
        self.remove(sequence)
        self._too_long.append(sequence)

    # --- orders ---

    def _order(self, sequence: Sequence) -> tuple[int, int]:
        return self._places[sequence].order

    def _prompt_order(self, sequence: Sequence) -> tuple[bool, int, float, int]:
        # Who speaks already and has but a few tokens to catch up is heard without delay.
        catches_up = sequence.num_generated > 0 and sequence.num_pending <= BLOCK_SIZE
        negative_priority, arrival = self._order(sequence)
        served = self._shares.served(sequence.request.tenant)
        return (not catches_up, negative_priority, served, arrival)

    def _chunk(self, sequence: Sequence, left: int) -> int:
        """How many of its pending tokens a sequence computes: all, or up to the end of a block.
        0 if that is not worth a place in the step."""
        if sequence.num_pending <= left:
            return sequence.num_pending
        if left < _LEAST_CHUNK:
            return 0
        return left - (sequence.num_computed + left) % BLOCK_SIZE


def _speaks(sequence: Sequence) -> bool:
    return sequence.num_pending == 1 and sequence.num_generated > 0


def _prompt_work(sequence: Sequence, num_tokens: int) -> Work:
    return Work(sequence, num_tokens, [], int(num_tokens == sequence.num_pending))
