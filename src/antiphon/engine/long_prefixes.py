"""Which parts of sequences are kept on disk, and how they come back into blocks.

Prefixes lie there in runs of 16 blocks, each under the hash of its last block. Private sequences
have nothing to do with the disk: nothing of theirs is written and nothing is read for them.
"""

import math
import time
from array import array
from collections.abc import Callable

import numpy as np
import structlog

from antiphon.engine.block_file import Bytes
from antiphon.engine.disk_tier import DiskTier
from antiphon.engine.runners.base import BLOCK_SIZE, BlockStore
from antiphon.engine.sequence import Sequence

_logger = structlog.get_logger("antiphon.engine")

#: Blocks that are read and written together: enough that a file is worth it.
RUN_BLOCKS = 16
RUN_TOKENS = RUN_BLOCKS * BLOCK_SIZE


class LongPrefixes:
    """Moves runs between a tier on disk and a runner's blocks. Used by the engine's thread alone.

    Nothing is kept of sequences shorter than `min_tokens`. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        tier: DiskTier,
        store: BlockStore,
        *,
        min_tokens: int = RUN_TOKENS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tier = tier
        self._store = store
        self._min_tokens = min_tokens
        self._clock = clock
        self._run = np.empty((RUN_BLOCKS, store.block_bytes), np.uint8)
        #: How many runs of each sequence were looked at.
        self._num_seen: dict[Sequence, int] = {}

    def has_next(self, sequence: Sequence, num_blocks: int) -> bool:
        """Whether the run in which the next block of a sequence lies is on disk. It must be among
        the first `num_blocks`, whose hashes are known."""
        end = _end_of_run(len(sequence.blocks))
        if sequence.request.private or end > num_blocks:
            return False
        return sequence.hashes[end - 1] in self._tier

    def read_next(self, sequence: Sequence) -> Bytes | None:
        """What belongs into the next blocks of a sequence, up to the end of a run: [blocks, bytes
        of a block], the caller's until the next call. None if it is damaged."""
        first = len(sequence.blocks)
        end = _end_of_run(first)
        if not self._tier.read(sequence.hashes[end - 1], self._run.reshape(-1)):
            return None
        return self._run[first - end :]

    def fill(self, blocks: "array[int]", content: Bytes) -> bool:
        """Write what was read into blocks. False if that failed."""
        try:
            self._store.write_blocks(blocks, content)
        except Exception:
            _logger.exception("prefix not used")
            return False
        return True

    def keep(self, sequence: Sequence) -> None:
        """Have the runs written that became full, and are not on disk."""
        request = sequence.request
        num_runs = sequence.num_computed // RUN_TOKENS
        seen = self._num_seen.get(sequence, 0)
        if request.private or num_runs <= seen or sequence.num_computed < self._min_tokens:
            return
        self._num_seen[sequence] = num_runs
        for number in range(seen, num_runs):
            first, end = number * RUN_BLOCKS, (number + 1) * RUN_BLOCKS
            name = sequence.hashes[end - 1]
            if not self._tier.wants(name, self._run.nbytes):
                continue
            try:
                content = self._store.read_blocks(sequence.blocks[first:end])
            except Exception:
                # The sequence has lost nothing by it.
                _logger.exception("prefix not kept")
                return
            self._tier.put(name, content.reshape(-1), self._expires_at(sequence))

    def let_go(self, sequence: Sequence) -> None:
        """A sequence is about to lose its blocks: what is on disk of it was used until now."""
        if self._num_seen.pop(sequence, 0):
            expires_at = self._expires_at(sequence)
            num_runs = sequence.num_computed // RUN_TOKENS
            # The last one first: what comes later goes before what it needs.
            for number in reversed(range(num_runs)):
                self._tier.touch(sequence.hashes[(number + 1) * RUN_BLOCKS - 1], expires_at)

    def close(self) -> None:
        """Write what waits to be written."""
        self._tier.close()

    def _expires_at(self, sequence: Sequence) -> float:
        keep_seconds = sequence.request.keep_seconds
        return math.inf if keep_seconds is None else self._clock() + keep_seconds


def _end_of_run(block: int) -> int:
    return (block // RUN_BLOCKS + 1) * RUN_BLOCKS
