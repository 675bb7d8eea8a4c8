"""Keeps copies of the states of sequences whose model cannot share them in blocks."""

import copy
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from antiphon.engine.runners.base import BLOCK_SIZE
from antiphon.engine.runners.universal import SequenceState
from antiphon.engine.sequence import Sequence

#: Tokens of the first copy of a prompt. The next ones are of twice as many each, so that all copies
#: of a prompt together are no more work than one of twice its length.
_FIRST_SNAPSHOT = 256


@dataclass(slots=True)
class _Snapshot:
    """A state after `tokens`. It `expires` (in the cache's clock) when it was idle for long."""

    cache: Any
    tokens: "array[int]"
    salt: str
    num_bytes: int
    #: Whether it is to be kept longer than others.
    favoured: bool
    keep_seconds: float | None
    expires: float | None


class SnapshotCache:
    """Holds the states of sequences, and copies of them for sequences that begin with the same.

    Copies are made of prompts: of the whole one, and of its first 256, 512, 1024... tokens, where
    a chunk ends there or later. The state of a sequence that is done is kept itself. States and
    copies together stay within `max_bytes`, as far as one sequence alone allows; what was not used
    for longest is forgotten first, and sequences with a `cache_key` last. Used by the engine's
    thread alone.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        max_snapshots: int = 64,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_snapshots = max_snapshots
        self._clock = clock
        # The one used last is last.
        self._snapshots: list[_Snapshot] = []
        self._snapshot_bytes = 0
        #: Sequences that wait for room, and what they begin with.
        self._begun: dict[Sequence, _Snapshot | None] = {}
        #: Bytes of the states that sequences hold, as far as published.
        self._held: dict[Sequence, int] = {}
        self._num_hit_tokens = 0
        self._num_missed_tokens = 0
        #: Tokens of the last snapshot that was made of a sequence, or that it began with.
        self._last: dict[Sequence, int] = {}

    def begin(self, sequence: Sequence) -> None:
        """See `SequenceCache.begin`. The copy is made when there is room for it (`reserve`)."""
        self._forget_expired()
        found = self._longest(sequence)
        self._begun[sequence] = found
        self._held[sequence] = 0
        self._last[sequence] = sequence.num_computed = len(found.tokens) if found else 0
        sequence.state = None
        if found:
            self._snapshots.remove(found)
            self._snapshots.append(found)
            found.expires = self._expiry(found.keep_seconds)

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """See `SequenceCache.reserve`. There is room for a sequence that is alone."""
        found = self._begun.get(sequence)
        held = found.num_bytes if found else self._held.get(sequence, 0)
        wanted = held * (sequence.num_computed + num_tokens) / max(sequence.num_computed, 1)
        others = sum(num_bytes for other, num_bytes in self._held.items() if other is not sequence)
        if others and others + wanted > self._max_bytes:
            return False
        if sequence in self._begun:
            del self._begun[sequence]
            self._num_hit_tokens += sequence.num_computed
            self._num_missed_tokens += sequence.num_pending
        if found:
            sequence.state = SequenceState(_copied(found.cache), sequence.num_computed)
            self._held[sequence] = found.num_bytes
            self._shrink()
        return True

    def publish(self, sequence: Sequence) -> None:
        """See `SequenceCache.publish`."""
        state = sequence.state
        num_computed = sequence.num_computed
        if not isinstance(state, SequenceState) or state.num_tokens != num_computed:
            return
        self._held[sequence] = _num_bytes(state.cache)
        last = self._last.get(sequence, 0)
        ends = num_computed == sequence.num_prompt
        due = num_computed >= max(_FIRST_SNAPSHOT, 2 * last)
        if num_computed > last and (ends or (due and num_computed < sequence.num_prompt)):
            self._last[sequence] = num_computed
            # Not worth copying what must be forgotten at once.
            if self._held[sequence] <= self._max_bytes - self.held_bytes:
                self._keep(sequence, _copied(state.cache))
        self._shrink()

    def release(self, sequence: Sequence) -> None:
        """See `SequenceCache.release`."""
        state = sequence.state
        held = self._held.pop(sequence, None)
        self._last.pop(sequence, None)
        self._begun.pop(sequence, None)
        whole = isinstance(state, SequenceState) and state.num_tokens == sequence.num_computed
        if held is not None and isinstance(state, SequenceState) and whole and state.num_tokens:
            # Nobody changes it any more.
            self._keep(sequence, state.cache)
            self._shrink()
        sequence.state = None
        sequence.num_computed = 0

    def fits(self, num_tokens: int) -> bool:
        """See `SequenceCache.fits`. How large a state will be is not known beforehand."""
        return True

    def close(self) -> None:
        """See `SequenceCache.close`. Nothing outlives the process."""

    def stats(self) -> dict[str, Any]:
        """See `SequenceCache.stats`. There are no blocks."""
        return {
            "total_blocks": 0,
            "used_blocks": 0,
            "cached_blocks": 0,
            "block_size": BLOCK_SIZE,
            "hit_tokens": self._num_hit_tokens,
            "missed_tokens": self._num_missed_tokens,
            "evicted_blocks": 0,
        }

    @property
    def num_snapshots(self) -> int:
        """How many copies are kept."""
        return len(self._snapshots)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the copies."""
        return self._snapshot_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the states that sequences hold."""
        return sum(self._held.values())

    def _longest(self, sequence: Sequence) -> _Snapshot | None:
        """The longest snapshot that a sequence begins with, and does not end with."""
        salt, tokens = sequence.request.cache_salt, sequence.tokens
        fitting = [
            snapshot
            for snapshot in self._snapshots
            if snapshot.salt == salt
            and len(snapshot.tokens) < len(tokens)
            and snapshot.tokens == tokens[: len(snapshot.tokens)]
        ]
        return max(fitting, key=lambda snapshot: len(snapshot.tokens), default=None)

    def _keep(self, sequence: Sequence, cache: Any) -> None:
        request = sequence.request
        tokens = sequence.tokens[: sequence.num_computed]
        for snapshot in self._snapshots:
            if snapshot.tokens == tokens and snapshot.salt == request.cache_salt:
                self._forget(snapshot)
                break
        snapshot = _Snapshot(
            cache,
            tokens,
            request.cache_salt,
            _num_bytes(cache),
            bool(request.cache_key),
            request.keep_seconds,
            self._expiry(request.keep_seconds),
        )
        self._snapshots.append(snapshot)
        self._snapshot_bytes += snapshot.num_bytes

    def _expiry(self, keep_seconds: float | None) -> float | None:
        return None if keep_seconds is None else self._clock() + keep_seconds

    def _forget(self, snapshot: _Snapshot) -> None:
        self._snapshots.remove(snapshot)
        self._snapshot_bytes -= snapshot.num_bytes

    def _forget_expired(self) -> None:
        now = self._clock()
        for snapshot in list(self._snapshots):
            if snapshot.expires is not None and snapshot.expires <= now:
                self._forget(snapshot)

    def _shrink(self) -> None:
        """Forget snapshots until all is within its limits again."""
        room = self._max_bytes - self.held_bytes
        while self._snapshots and (
            self._snapshot_bytes > room or len(self._snapshots) > self._max_snapshots
        ):
            unfavoured = (snapshot for snapshot in self._snapshots if not snapshot.favoured)
            self._forget(next(unfavoured, self._snapshots[0]))


def _copied(cache: Any) -> Any:
    with torch.inference_mode():
        return copy.deepcopy(cache)


def _num_bytes(kept: Any) -> int:
    """Bytes of all tensors in a cache."""
    if isinstance(kept, torch.Tensor):
        return int(kept.nbytes)
    if isinstance(kept, dict):
        return sum(_num_bytes(value) for value in kept.values())
    if isinstance(kept, (list, tuple)):
        return sum(_num_bytes(value) for value in kept)
    layers = getattr(kept, "layers", None)
    if layers is not None:
        return sum(_num_bytes(vars(layer)) for layer in layers)
    return 0
