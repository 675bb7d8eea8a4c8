"""What a model has said so far, and the marks that are looked for in it."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
#: A step of reading: pauses where more of the output is needed.
Steps = Generator[None, None, T]

#: Where no mark is, and where there may be one yet.
NO, MORE = -1, -2
_SPACE = re.compile(r"\s*")
_TRIM_AT = 4096  # Characters behind that are dropped at once.
#: Tokens that are marks stand in the text as characters that no text can have.
_FIRST_TOKEN, _LAST_TOKEN = 0xDC00, 0xDFFF
TOKEN_CHARACTERS = f"{chr(_FIRST_TOKEN)}-{chr(_LAST_TOKEN)}"
_NO_TEXT = re.compile(r"[\ud800-\udfff]")


class Ended(Exception):
    """The output ended where more was needed."""


class Tokens:
    """Tokens that are marks only as such, and never as the text that looks like them."""

    def __init__(self, tokens: Iterable[str]) -> None:
        longest_first = sorted({t for t in tokens if t}, key=lambda t: (-len(t), t))
        room = _LAST_TOKEN - _FIRST_TOKEN + 1
        self._chars = {t: chr(_FIRST_TOKEN + n) for n, t in enumerate(longest_first[:room])}
        self._texts = {ord(char): token for token, char in self._chars.items()}
        self._in_json = {char: escaped(token) for char, token in self._texts.items()}

    def char(self, token: str) -> str:
        """The character that stands for a token; nothing for one that is no mark."""
        return self._chars.get(token, "")

    def coded(self, marker: str) -> str:
        """A marker as it stands in the text."""
        for token, char in self._chars.items():
            marker = marker.replace(token, char)
        return marker

    def plain(self, text: str, *, in_json: bool = False) -> str:
        """The text with tokens as they are written, in JSON as they stand in a string of it."""
        return text if text.isascii() else text.translate(self._in_json if in_json else self._texts)


def is_token(text: str) -> bool:
    """Whether it begins with a token that is a mark."""
    return _FIRST_TOKEN <= ord(text[0]) <= _LAST_TOKEN


def escaped(text: str) -> str:
    """Text as it stands in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def pieces(marker: str) -> tuple[str, ...]:
    """What of a marker has to be there: all but its blanks."""
    return tuple(marker.split())


@dataclass(frozen=True, slots=True)
class Mark:
    """Something to look for: `parts` with or without blanks between them, and if `ahead` is not
    empty then one of those behind them, which is not part of it. `kind` is what to do about it."""

    kind: str
    parts: tuple[str, ...]
    ahead: tuple[str, ...] = ()

    def end(self, text: str, at: int, *, ended: bool) -> int:
        """Where the mark that begins at `at` ends. Else `NO`, or `MORE`."""
        for number, part in enumerate(self.parts):
            if number:
                at = skip_space(text, at)
            if not text.startswith(part, at):
                cut_off = not ended and len(text) - at < len(part) and part.startswith(text[at:])
                return MORE if cut_off else NO
            at += len(part)
        if not self.ahead:
            return at
        ahead = skip_space(text, at)
        if any(text.startswith(one, ahead) for one in self.ahead):
            return at
        cut_off = any(one.startswith(text[ahead:]) for one in self.ahead)
        return (at if ended else MORE) if cut_off else NO


class Marks:
    """Marks that are looked for together; of those in one place the first counts."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = [mark for mark in marks if mark.parts]
        firsts = "".join(sorted({re.escape(mark.parts[0][0]) for mark in self._marks}))
        self._firsts = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def here(self, text: str, at: int, *, ended: bool) -> tuple[Mark | None, int]:
        """The mark at `at` and where it ends. Without one, `NO` or `MORE`."""
        for mark in self._marks:
            end = mark.end(text, at, ended=ended)
            if end != NO:
                return (mark, end) if end >= 0 else (None, MORE)
        return None, NO

    def next(self, text: str, at: int, *, ended: bool) -> tuple[Mark | None, int, int]:
        """The next mark, where it begins and ends; or None, up to where there is none."""
        while found := self._firsts.search(text, at):
            at = found.start()
            mark, end = self.here(text, at, ended=ended)
            if end != NO:
                return mark, at, end
            at += 1
        return None, len(text), NO


def skip_space(text: str, at: int) -> int:
    """Where the next character is that is not blank."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


class Source:
    """The output that has come and is not read yet: `text` from `at` on.

    Positions are good until a pause; only `at` and the place of `keep` outlast one.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self._before = 0
        self._kept: int | None = None

    @property
    def offset(self) -> int:
        """How far the output is read, in characters from its beginning."""
        return self._before + self.at

    @property
    def settled(self) -> int:
        """How far it is read for good, with no way back."""
        return self._before + (self.at if self._kept is None else min(self._kept, self.at))

    @property
    def length(self) -> int:
        """How much has come in all."""
        return self._before + len(self.text)

    def add(self, text: str) -> None:
        """More output."""
        done = self.at if self._kept is None else self._kept
        if done > _TRIM_AT:
            self.text = self.text[done:]
            self._before += done
            self.at -= done
            self._kept = None if self._kept is None else 0
        self.text += _NO_TEXT.sub("\ufffd", text) if not text.isascii() else text

    def add_token(self, char: str) -> None:
        """A token, as its character."""
        self.text += char

    @property
    def kept(self) -> bool:
        """Whether there is a way back."""
        return self._kept is not None

    def keep(self) -> None:
        """Remembers this place, to come back to it, if none is remembered."""
        if self._kept is None:
            self._kept = self.at

    def forget(self) -> None:
        """No way back."""
        self._kept = None

    def back(self) -> None:
        """Back to the place that was kept."""
        assert self._kept is not None
        self.at, self._kept = self._kept, None

    def more(self) -> Steps[None]:
        """Waits for more. Raises `Ended` if there is none."""
        if self.ended:
            raise Ended
        yield

    def char(self) -> Steps[str]:
        """The next character, which stays."""
        while self.at >= len(self.text):
            yield from self.more()
        return self.text[self.at]

    def space(self) -> Steps[str]:
        """Reads over blanks; the next character, which stays."""
        while True:
            self.at = skip_space(self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            yield from self.more()

    def mark(self, marks: Marks, *, peek: bool = False) -> Steps[Mark | None]:
        """Reads over the mark that is here, if one is; with `peek` only tells of it."""
        while True:
            mark, end = marks.here(self.text, self.at, ended=self.ended)
            if mark is not None and not peek:
                self.at = end
            if end != MORE:
                return mark
            yield from self.more()

    def breaks_off(self, marks: Marks) -> bool:
        """Whether the output ended inside a mark here, which is then read over."""
        if not self.ended or marks.here(self.text, self.at, ended=False)[1] != MORE:
            return False
        self.at = len(self.text)
        return True

    def until(
        self,
        marks: Marks,
        write: Callable[[str], None],
        *,
        less_newline: bool = False,
        broken_marks: bool = False,
    ) -> Steps[Mark]:
        """Writes all that comes before the next mark, and reads over that.

        With `less_newline` a line break at the end of it is left out. With `broken_marks` a part of
        a mark that the output ends with is written, else it is left out.
        """
        while True:
            mark, begin, end = marks.next(self.text, self.at, ended=self.ended)
            if mark is None and self.ended and not broken_marks:
                _, begin, _ = marks.next(self.text, self.at, ended=False)
            cut = begin - (less_newline and self.text.endswith("\n", self.at, begin))
            if cut > self.at:
                write(self.text[self.at : cut])
                self.at = cut
            if mark is not None:
                self.at = end
                return mark
            yield from self.more()

    def before(self, marks: Marks, limit: int) -> Steps[tuple[str, Mark | None]]:
        """What comes before the next mark, which is read over; no mark if none comes in so many
        characters."""
        got = ""
        while True:
            mark, begin, end = marks.next(self.text, self.at, ended=self.ended)
            got += self.text[self.at : begin]
            self.at = begin
            if len(got) > limit:
                return got, None
            if mark is not None:
                self.at = end
                return got, mark
            yield from self.more()
