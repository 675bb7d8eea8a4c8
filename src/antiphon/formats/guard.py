"""Keeps control tokens that people write into messages apart from those a template writes.

Before rendering, every occurrence in a message is wrapped in two marker characters; after rendering
the prompt is cut at the markers. The markers are private-use characters drawn at random that occur
nowhere in the conversation, so nobody can forge one and no text is changed.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence

from antiphon.errors import InvalidPrompt
from antiphon.formats.base import Piece, Prompt

_FIRST, _LAST = 0x100000, 0x10FFFD  # Unicode's private-use plane 16.
_TRIES = 100


def control_pattern(control_tokens: Sequence[str]) -> re.Pattern[str]:
    """Matches any control token, the longest first; nothing if there are none."""
    longest_first = sorted(control_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


class Guard:
    """Guards one rendering of `texts`, which is everything that people wrote.

    Raises `InvalidPrompt` if they leave no character for a marker.
    """

    def __init__(self, controls: re.Pattern[str], texts: Iterable[str]) -> None:
        self._controls = controls
        written = list(texts)
        self._start = _unused(written)
        self._end = _unused([*written, self._start])

    def mark(self, text: str) -> str:
        """The text with its control tokens wrapped."""
        return self._controls.sub(f"{self._start}\\g<0>{self._end}", text)

    def cut(self, rendered: str) -> Prompt:
        """The rendered prompt in pieces, without markers.

        A template may trim or split a text and tear a marker from its token. The other marker still
        guards the token, and either parts what stands on its sides, so that they cannot join.
        """
        pieces: list[Piece] = []
        for number, chunk in enumerate(rendered.split(self._start)):
            token = self._controls.match(chunk) if number else None
            if token:
                pieces.append(Piece(token.group(), literal=True))
                chunk = chunk[token.end() :].removeprefix(self._end)
            pieces += self._without_lone_ends(chunk)
        return tuple(piece for piece in pieces if piece.text)

    def _without_lone_ends(self, chunk: str) -> Iterator[Piece]:
        *ended, rest = chunk.split(self._end)
        for text in ended:
            token = next((m for m in self._controls.finditer(text) if m.end() == len(text)), None)
            before = token.start() if token else len(text)
            yield Piece(text[:before])
            yield Piece(text[before:], literal=True)
        yield Piece(rest)


def _unused(texts: Sequence[str]) -> str:
    for _ in range(_TRIES):
        char = chr(_FIRST + secrets.randbelow(_LAST - _FIRST + 1))
        if not any(char in text for text in texts):
            return char
    raise InvalidPrompt(
        "The input is full of private-use characters: too few are left to keep its control tokens "
        "apart from the model's own.",
        param="input",
    )
