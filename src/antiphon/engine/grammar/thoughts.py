"""An end to reasoning that takes too long."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from antiphon.engine.sequence import Grammar

_ALL = np.uint32(0xFFFFFFFF)


class ThoughtMarks(NamedTuple):
    """What reasoning stands between, and the tokens of what closes it."""

    begin: bytes
    end: bytes
    closing: tuple[int, ...]


class ThoughtLimit:
    """Follows what is said through `inner`, if there is a grammar, and closes reasoning when it has
    had `max_tokens` tokens; see `sequence.Grammar`.

    `spell` says what a token looks like, marks included. `inside` is whether reasoning has begun
    with the prompt.
    """

    def __init__(
        self,
        inner: Grammar | None,
        marks: ThoughtMarks,
        spell: Callable[[int], bytes],
        vocab_size: int,
        *,
        max_tokens: int,
        inside: bool,
    ) -> None:
        self._inner = inner
        self._marks = marks
        self._spell = spell
        self._num_words = -(-vocab_size // 32)
        self._left = max_tokens
        self._inside = inside
        self._end = b""

    def fill_mask(self, mask: npt.NDArray[np.uint32]) -> None:
        if self._inner is None:
            mask.fill(_ALL)
        else:
            self._inner.fill_mask(mask)

    def accept(self, token: int) -> None:
        if self._inner is not None:
            self._inner.accept(token)
        said = self._spell(token)
        mark = self._marks.end if self._inside else self._marks.begin
        self._end = self._end[-len(mark) :] + said
        self._left -= self._inside
        if mark in self._end:
            self._inside = not self._inside
            self._end = b""

    def forced_tokens(self) -> list[int]:
        if self._inside and self._left <= 0 and self._may_close():
            return list(self._marks.closing)
        return [] if self._inner is None else self._inner.forced_tokens()

    def _may_close(self) -> bool:
        """Whether the grammar lets reasoning end here: it may have gone over into a call."""
        if self._inner is None:
            return True
        mask = np.zeros(self._num_words, np.uint32)
        self._inner.fill_mask(mask)
        first = self._marks.closing[0]
        return bool(mask[first // 32] >> np.uint32(first % 32) & np.uint32(1))
