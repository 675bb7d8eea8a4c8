"""Which blocks of the paged cache hold whose keys and values, and which prefixes can be found.

Every full block that was computed has a name: a hash of the block before it, its token ids and, at
the start of the chain, the model and the salt of the request. Who begins with the same tokens finds
the same names and shares the blocks. Only full blocks are shared and nobody writes into one that is
full, so nothing is ever copied.

A block is in exactly one of three states: in use (one or more sequences hold it), idle (nobody
does, but its content can be found) or blank.

What is found no longer may still lie on disk (`LongPrefixes`), from where it is read into blocks
that the sequence takes for it, as if it had been computed.
"""

import hashlib
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from antiphon.engine.long_prefixes import LongPrefixes
from antiphon.engine.runners.base import BLOCK_SIZE
from antiphon.engine.sequence import Sequence

_FOREVER = float("inf")
_HASH_BYTES = 16  # Tenants are kept apart by it, so that no two prefixes may ever share a name.


class BlockManager:
    """The blocks of one runner's cache. `model` is part of every name.

    `clock` gives seconds that only grow.
    """

    def __init__(
        self,
        num_blocks: int,
        model: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: What lies on disk, if anything does. Set it before any sequence begins.
        self.long_prefixes: LongPrefixes | None = None
        self._num_blocks = num_blocks
        self._model = model.encode()
        self._idle = _IdleBlocks(clock)
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._num_holders = [0] * num_blocks
        #: The hash of a block's content. One that another block is found under counts too.
        self._hash_of: list[int | None] = [None] * num_blocks
        self._found: dict[int, int] = {}
        # Cached tokens are counted when a sequence goes on from them: it may begin more than once
        # before there is room for it.
        self._begun: set[Sequence] = set()
        self._num_hit_tokens = 0
        self._num_missed_tokens = 0
        self._num_evicted = 0

    def begin(self, sequence: Sequence) -> None:
        self._forget_expired()
        # One token must be left to compute, or there were no scores.
        num_blocks = (len(sequence.tokens) - 1) // BLOCK_SIZE
        self._name(sequence, num_blocks)
        for number in range(num_blocks):
            block = self._found.get(sequence.hashes[number])
            if block is None:
                break
            if not self._num_holders[block]:
                self._idle.remove(block)
            self._num_holders[block] += 1
            sequence.blocks.append(block)
        sequence.num_computed = len(sequence.blocks) * BLOCK_SIZE
        if self.long_prefixes is not None:
            self._read_long(sequence, num_blocks, self.long_prefixes)
        self._begun.add(sequence)

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        needed = _num_blocks_of(sequence.num_computed + num_tokens) - len(sequence.blocks)
        if not self._has_room(needed):
            return False
        self._take(sequence, needed)
        if sequence in self._begun:
            self._begun.remove(sequence)
            self._num_hit_tokens += sequence.num_computed
            self._num_missed_tokens += sequence.num_pending
        return True

    def publish(self, sequence: Sequence) -> None:
        num_full = sequence.num_computed // BLOCK_SIZE
        first = num_full
        while first and self._hash_of[sequence.blocks[first - 1]] is None:
            first -= 1
        self._name(sequence, num_full)
        for number in range(first, num_full):
            block, name = sequence.blocks[number], sequence.hashes[number]
            self._hash_of[block] = name
            twin = self._found.get(name)
            if twin is not None and self._num_holders[twin]:
                continue  # Somebody else computed the same and holds it; that one is found.
            if twin is not None:
                self._idle.remove(twin)
                self._make_blank(twin)
            self._found[name] = block
        if self.long_prefixes is not None:
            self.long_prefixes.keep(sequence)

    def release(self, sequence: Sequence) -> None:
        if self.long_prefixes is not None:
            self.long_prefixes.let_go(sequence)
        request = sequence.request
        keep = _FOREVER if request.keep_seconds is None else request.keep_seconds
        # The last one first: of a prefix, what comes later is evicted before what it needs.
        for block in reversed(sequence.blocks):
            self._idle.note(block, keyed=bool(request.cache_key), keep_seconds=keep)
            self._num_holders[block] -= 1
            if self._num_holders[block]:
                continue
            name = self._hash_of[block]
            # What was found in its place may be gone by now.
            if name is not None and self._found.setdefault(name, block) == block:
                self._idle.add(block)
            else:
                self._make_blank(block)
        sequence.blocks = array("i")
        sequence.num_computed = 0
        self._begun.discard(sequence)

    def fits(self, num_tokens: int) -> bool:
        return _num_blocks_of(num_tokens) <= self._num_blocks

    def close(self) -> None:
        if self.long_prefixes is not None:
            self.long_prefixes.close()

    def stats(self) -> dict[str, Any]:
        """Counts of blocks now, and of tokens and evictions since the start. For any thread."""
        num_blank, num_idle = len(self._blank), len(self._idle)
        return {
            "total_blocks": self._num_blocks,
            "used_blocks": self._num_blocks - num_blank - num_idle,
            "cached_blocks": num_idle,
            "block_size": BLOCK_SIZE,
            "hit_tokens": self._num_hit_tokens,
            "missed_tokens": self._num_missed_tokens,
            "evicted_blocks": self._num_evicted,
        }

    def _read_long(self, sequence: Sequence, num_blocks: int, prefixes: LongPrefixes) -> None:
        """Go on with what lies on disk of the first `num_blocks` blocks."""
        # Nothing is read for a sequence that has no room yet, and will begin again.
        if not self._has_room(_num_blocks_of(len(sequence.tokens)) - len(sequence.blocks)):
            return
        while prefixes.has_next(sequence, num_blocks):
            content = prefixes.read_next(sequence)
            if content is None:
                return
            first = len(sequence.blocks)
            self._take(sequence, len(content))
            if not prefixes.fill(sequence.blocks[first:], content):
                return  # The blocks are the sequence's all the same, to be computed.
            sequence.num_computed = len(sequence.blocks) * BLOCK_SIZE
            self.publish(sequence)

    def _has_room(self, num_blocks: int) -> bool:
        return num_blocks <= len(self._blank) + len(self._idle)

    def _take(self, sequence: Sequence, num_blocks: int) -> None:
        """Give a sequence blocks to write into."""
        for _ in range(num_blocks):
            block = self._blank.pop() if self._blank else self._evicted()
            self._num_holders[block] = 1
            sequence.blocks.append(block)

    def _name(self, sequence: Sequence, num_blocks: int) -> None:
        """Work out the hashes of the first blocks that are not known yet."""
        hashes = sequence.hashes
        if len(hashes) >= num_blocks:
            return
        start = len(hashes) * BLOCK_SIZE
        data = sequence.tokens[start : num_blocks * BLOCK_SIZE].tobytes()
        size = BLOCK_SIZE * sequence.tokens.itemsize
        last = hashes[-1].to_bytes(_HASH_BYTES) if hashes else self._root(sequence)
        for offset in range(0, len(data), size):
            last = _digest(last + data[offset : offset + size])
            hashes.append(int.from_bytes(last))

    def _root(self, sequence: Sequence) -> bytes:
        # The length keeps a model's name and a salt from running into one another.
        salt = sequence.request.cache_salt.encode("utf-8", "surrogatepass")
        return _digest(b"%d:%s%s" % (len(self._model), self._model, salt))

    def _evicted(self) -> int:
        block = self._idle.pop_least_useful()
        self._num_evicted += 1
        self._make_nameless(block)
        return block

    def _forget_expired(self) -> None:
        for block in self._idle.pop_expired():
            self._make_blank(block)

    def _make_blank(self, block: int) -> None:
        self._make_nameless(block)
        self._blank.append(block)

    def _make_nameless(self, block: int) -> None:
        name = self._hash_of[block]
        if name is not None and self._found.get(name) == block:
            del self._found[name]
        self._hash_of[block] = None
        self._idle.forget(block)


class _IdleBlocks:
    """Blocks that nobody holds, from the least to the most useful.

    Those that were used with a cache key are worth more than others; among equals the one that was
    let go of first goes first. Whoever holds a block holds all before it and lets go of them later,
    and what is noted of a block only grows, so that none outlives a block that it needs.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: By worth and by how long they may stay; in each, blocks and when they were let go of.
        self._queues: dict[tuple[bool, float], OrderedDict[int, tuple[float, int]]] = {}
        self._kinds: dict[int, tuple[bool, float]] = {}
        self._num_idle = 0
        self._num_added = 0

    def __len__(self) -> int:
        return self._num_idle

    def note(self, block: int, *, keyed: bool, keep_seconds: float) -> None:
        """Somebody who let go of a block wants it kept so long."""
        known_keyed, known_keep = self._kinds.get(block, (False, 0.0))
        self._kinds[block] = (known_keyed or keyed, max(known_keep, keep_seconds))

    def forget(self, block: int) -> None:
        """The block's content is gone, and with it what is noted."""
        self._kinds.pop(block, None)

    def add(self, block: int) -> None:
        self._num_added += 1
        queue = self._queues.setdefault(self._kinds[block], OrderedDict())
        queue[block] = (self._clock(), self._num_added)
        self._num_idle += 1

    def remove(self, block: int) -> None:
        kind = self._kinds[block]
        del self._queues[kind][block]
        self._num_idle -= 1
        if not self._queues[kind]:
            del self._queues[kind]

    def pop_least_useful(self) -> int:
        for block in self.pop_expired(at_most=1):
            return block
        keyed = min(kind[0] for kind in self._queues)
        heads = (next(iter(q.items())) for kind, q in self._queues.items() if kind[0] == keyed)
        block, _ = min(heads, key=lambda head: head[1][1])
        self.remove(block)
        return block

    def pop_expired(self, at_most: int | None = None) -> list[int]:
        """Take out blocks that were idle for as long as they may be."""
        expired: list[int] = []
        now = self._clock()
        for (_, keep_seconds), queue in list(self._queues.items()):
            while queue and len(expired) != at_most:
                block, (since, _) = next(iter(queue.items()))
                if since + keep_seconds > now:
                    break
                self.remove(block)
                expired.append(block)
        return expired


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()


def _num_blocks_of(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_SIZE)
