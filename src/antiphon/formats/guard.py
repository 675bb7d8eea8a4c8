"""Keeps control tokens that people write into messages apart from those a template writes.

Before rendering, a marker is put into every occurrence in a message, behind its first character;
after rendering the prompt is cut at the markers, and its pieces are tokenised one by one. So no
piece holds a control token that was written by people, and whatever a template does to a text,
trim it, split it or take parts of it, cannot put one together again. The marker is a private-use
character drawn at random that occurs nowhere in the conversation, so that nobody can forge it and
no text is changed.
"""

import re
import secrets
from collections.abc import Iterable, Sequence

from antiphon.errors import InvalidPrompt
from antiphon.formats.base import Prompt

_FIRST, _LAST = 0x100000, 0x10FFFD  # Unicode's private-use plane 16.
_TRIES = 100


def control_pattern(control_tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches any control token, the longest first; nothing if there are none.

    Tokens of one character are left out, as they cannot be told from text.
    """
    longest_first = sorted((t for t in control_tokens if len(t) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


class Guard:
    """Guards one rendering of `texts`, which is everything that people wrote.

    Raises `InvalidPrompt` if they leave no character for a marker.
    """

    def __init__(self, controls: re.Pattern[str], texts: Iterable[str]) -> None:
        self._controls = controls
        self._marker = unused(list(texts))
        # Some templates print a dictionary as Python does, which escapes the marker.
        self._markers = re.compile(f"{self._marker}|{re.escape(_escaped(self._marker))}")

    def mark(self, text: str) -> str:
        """The text with a marker in each of its control tokens, also where two overlap."""
        if not self._controls.search(text):
            return text
        first_characters = rf"(?=(?:{self._controls.pattern}))(.)"
        return re.sub(first_characters, rf"\1{self._marker}", text, flags=re.DOTALL)

    def cut(self, rendered: str) -> Prompt:
        """The rendered prompt in pieces, without markers."""
        return tuple(piece for piece in self._markers.split(rendered) if piece)


def _escaped(char: str) -> str:
    return repr(char)[1:-1]


def unused(texts: Sequence[str]) -> str:
    """A private-use character that is in none of the texts. Raises `InvalidPrompt` if none is."""
    for _ in range(_TRIES):
        char = chr(_FIRST + secrets.randbelow(_LAST - _FIRST + 1))
        if not any(char in text or _escaped(char) in text for text in texts):
            return char
    raise InvalidPrompt(
        "The input is full of private-use characters: too few are left to keep its control tokens "
        "apart from the model's own.",
        param="input",
    )
