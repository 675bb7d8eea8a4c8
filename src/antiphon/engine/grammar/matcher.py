"""One text's way through a grammar."""

import time

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from antiphon.engine.grammar.errors import GrammarFailed, told

#: Of a thread's own time. All sequences of a step wait for a mask, so few may take longer.
SLOW_MASK_SECONDS = 0.1
_MOST_SLOW = 2


class GrammarMatcher:
    """Follows a sequence through a grammar; see `sequence.Grammar`.

    What it cannot go on from is raised as `GrammarFailed`, also by every later call. That is so for
    a grammar whose masks are too much work, too.
    """

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._num_slow = 0

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        return bool(self._matcher.is_accepting())

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        started = time.thread_time()
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()
        self._num_slow += time.thread_time() - started > SLOW_MASK_SECONDS
        if self._num_slow > _MOST_SLOW:
            raise GrammarFailed("what may come next is too much work to find out")

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            self._check()

    def forced_tokens(self) -> list[int]:
        tokens: list[int] = self._matcher.compute_ff_tokens()
        self._check()
        return tokens

    def reads(self, tokens: list[int]) -> bool:
        """Whether the tokens are all of a text that the grammar allows."""
        return self._matcher.consume_tokens(tokens) and self.is_complete

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed(told(self._matcher.get_error()))
