"""Keeps control tokens that people write into messages apart from those a template writes.

Before rendering, every occurrence in a message is wrapped in two marker characters; after rendering
the prompt is cut at the markers. The markers are private-use characters drawn at random that occur
nowhere in the conversation, so nobody can forge one and no text is changed.
"""

import re
import secrets
from collections.abc import Iterable, Sequence

from antiphon.formats.base import Piece, Prompt

_FIRST, _LAST = 0x100000, 0x10FFFD  # Unicode's private-use plane 16.


def control_pattern(control_tokens: Sequence[str]) -> re.Pattern[str]:
    """Matches any control token, the longest first; nothing if there are none."""
    longest_first = sorted(control_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


class Guard:
    """Guards one rendering of `texts`, which is everything that people wrote."""

    def __init__(self, controls: re.Pattern[str], texts: Iterable[str]) -> None:
        self._controls = controls
        guarded = [text for text in texts if controls.search(text)]
        self._start = _unused(guarded)
        self._end = _unused([*guarded, self._start])
        self._marks = re.compile(
            f"{self._start}({controls.pattern}){self._end}|[{self._start}{self._end}]"
        )

    def mark(self, text: str) -> str:
        """The text with its control tokens wrapped."""
        return self._controls.sub(f"{self._start}\\g<0>{self._end}", text)

    def cut(self, rendered: str) -> Prompt:
        """The rendered prompt in pieces, without markers.

        A template may tear markers from their token; a lone one still parts what stands on its
        sides, so that the two cannot join into a control token.
        """
        pieces = self._marks.split(rendered)
        return tuple(
            Piece(text, literal=number % 2 == 1) for number, text in enumerate(pieces) if text
        )


def _unused(texts: Sequence[str]) -> str:
    while True:
        char = chr(_FIRST + secrets.randbelow(_LAST - _FIRST + 1))
        if not any(char in text for text in texts):
            return char
