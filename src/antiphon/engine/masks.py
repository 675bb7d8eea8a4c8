"""Which tokens grammars allow next, worked out while the model computes."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import structlog

from antiphon.engine.sequence import Grammar, Sequence

_logger = structlog.get_logger("antiphon.engine")

Mask = npt.NDArray[np.uint32]


class Masks:
    """One mask for each sequence that has a grammar, filled on a thread of its own.

    A grammar is used by one thread at a time: between `fill` and `get` by that thread alone.
    """

    def __init__(self, vocab_size: int) -> None:
        self._num_words = -(-vocab_size // 32)
        self._masks: dict[Sequence, Mask] = {}
        self._filling: dict[Sequence, Future[None]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def fill(self, sequence: Sequence) -> None:
        """Begin to work out what may come after a sequence's last token."""
        grammar = sequence.request.grammar
        if grammar is None:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        if sequence not in self._masks:
            self._masks[sequence] = np.zeros(self._num_words, np.uint32)
        mask = self._masks[sequence]
        self._filling[sequence] = self._thread.submit(_fill, grammar, mask)

    def get(self, sequence: Sequence) -> Mask | Exception | None:
        """The mask when it is filled, or what went wrong; None if everything may come next."""
        if sequence.request.grammar is None:
            return None
        try:
            self._filling.pop(sequence).result()
        except Exception as error:
            _logger.exception("grammar failed")
            return error
        return self._masks[sequence]

    def wait(self) -> None:
        """Let go of the grammars, whether their masks were asked for or not."""
        for filling in self._filling.values():
            filling.exception()
        self._filling.clear()

    def forget(self, sequence: Sequence) -> None:
        """The sequence is done."""
        self._masks.pop(sequence, None)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()


def _fill(grammar: Grammar, mask: Mask) -> None:
    mask.fill(0)
    grammar.fill_mask(mask)
