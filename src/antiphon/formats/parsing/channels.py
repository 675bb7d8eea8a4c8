"""A turn in Harmony's messages: each has a header that says what it is.

Analysis is reasoning, everything else without a recipient is text, and what is sent to anybody but
the user is a call. What begins like no header is text, as models may leave it out.
"""

import re
from collections.abc import Callable

from antiphon.formats.dialects.dialect import HARMONY_MARKS
from antiphon.formats.parsing.arguments import read_arguments
from antiphon.formats.parsing.reading import LONGEST_HEADER, Reading
from antiphon.formats.parsing.source import TOKEN_CHARACTERS, Ended, Mark, Marks, Steps

_RECIPIENT = re.compile(rf"\bto=([^\s<{TOKEN_CHARACTERS}]+)")
_NOBODY = ("all", "user")


class ChannelReader:
    """Reads a turn, from the beginning of its first message or from inside reasoning. Never gets to
    an end by itself.

    `in_call` is whether it is inside of a header that is sent to somebody, `in_reasoning` whether
    in reasoning.
    """

    def __init__(self, reading: Reading, *, calls: bool, starts_in_reasoning: bool) -> None:
        self._source = reading.source
        self._output = reading.output
        self._calls = calls
        self.in_reasoning = starts_in_reasoning
        start, channel, _, message, *ends = map(reading.tokens.coded, HARMONY_MARKS)
        self._begins = Marks(
            [Mark("header", (one,)) for one in (start, channel, message, "to=", "assistant")]
        )
        self._header_end = Marks([_mark("message", message), *(_mark("end", one) for one in ends)])
        self._content_end = Marks(
            [_mark("channel", channel), *(_mark("end", one) for one in (start, *ends))]
        )
        self._channel = channel
        self._analysis = re.compile(rf"{re.escape(channel)}\s*analysis\b")
        self.in_call = False
        self._after_call = False

    def read(self) -> Steps[None]:
        """Reads everything."""
        if self.in_reasoning:
            yield from self._content(reasoning=True)
        while True:
            header = yield from self._header()
            recipient = self._recipient(header)
            self._after_call = recipient is not None
            if recipient is not None:
                yield from read_arguments(self._source, self._output.call(recipient))
                yield from self._until_end(lambda text: None)
            else:
                yield from self._content(reasoning=bool(self._analysis.search(header)))

    def _header(self) -> Steps[str]:
        """Reads a header; an empty one if what comes is text."""
        source = self._source
        source.keep()
        header = ""
        try:
            yield from source.space()
            if (yield from source.mark(self._begins, peek=True)) is not None:
                header, mark = yield from source.before(self._header_end, LONGEST_HEADER)
                if mark is not None:
                    source.forget()
                    return header if mark.kind == "message" else ""
            elif self._after_call and source.breaks_off(self._begins):
                yield from source.more()
        except Ended:
            source.back()
            rest = source.text[source.at :]
            self.in_call = self._recipient(rest) is not None
            if self._after_call and source.breaks_off(self._begins):
                raise
            if rest.strip() and not self.in_call and self._channel not in rest:
                self._output.text(rest, begins=True, reasoning=False)
            raise
        source.back()
        return ""

    def _recipient(self, header: str) -> str | None:
        """Who a message is sent to, if it is somebody who may be called."""
        found = _RECIPIENT.search(header) if self._calls else None
        return found.group(1) if found and found.group(1) not in _NOBODY else None

    def _content(self, *, reasoning: bool) -> Steps[None]:
        """Reads what a message says."""
        self.in_reasoning = reasoning
        begins = True

        def write(text: str) -> None:
            nonlocal begins
            self._output.text(text, begins=begins, reasoning=reasoning)
            begins = False

        yield from self._until_end(write)
        self.in_reasoning = False

    def _until_end(self, write: Callable[[str], None]) -> Steps[None]:
        """Reads to the end of a message, or to the header of the next if that is missing."""
        mark = yield from self._source.until(self._content_end, write, broken_marks=True)
        if mark.kind == "channel":
            self._source.at -= len(self._channel)


def _mark(kind: str, text: str) -> Mark:
    return Mark(kind, (text,))
