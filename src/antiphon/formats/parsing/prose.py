"""Text and reasoning, with what begins and ends them.

White space at a mark is the mark's: blanks before a call or the end of reasoning, line breaks
behind the beginning and the end of reasoning, and everything blank behind a call. So is a mark that
the output ends in the middle of, behind a call. Elsewhere a text is kept as it is.
"""

from dataclasses import dataclass
from typing import Literal

from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.parsing.output import Output
from antiphon.formats.parsing.source import (
    NO,
    Mark,
    Marks,
    Source,
    Steps,
    is_token,
    pieces,
    skip_space,
)

#: What a region of text or reasoning comes after: the beginning of the turn, a mark of reasoning,
#: or a call.
After = Literal["start", "thought", "call"]


@dataclass(frozen=True, slots=True)
class ProseMarks:
    """What is looked for where a region begins, inside a text, and inside reasoning.

    Plain text opens reasoning and bare calls only where a region begins, and what closes a call
    means something only behind one.
    """

    start: Marks
    after_call: Marks
    text: Marks
    reasoning: Marks


def prose_marks(dialect: Dialect, *, calls: bool) -> ProseMarks:
    """The marks of a dialect. Without `calls` those of calls are text like any other."""
    reasoning = dialect.reasoning
    opens = [Mark("think", pieces(reasoning.open))] if reasoning else []
    closes = [Mark("thought", pieces(reasoning.close))] if reasoning else []
    dropped = [Mark("dropped", pieces(marker)) for marker in dialect.dropped]
    triggers = call_marks(dialect) if calls else []
    bare = [Mark("bare", ("[" if dialect.codec == "pythonic" else "{",))]
    bare = bare if calls and dialect.bare else []
    closers = closing_marks(dialect) if calls else []
    anywhere = [mark for mark in (*opens, *closers) if is_token(mark.parts[0])]
    return ProseMarks(
        start=Marks([*triggers, *opens, *closes, *dropped, *anywhere, *bare]),
        after_call=Marks([*triggers, *opens, *closes, *dropped, *closers, *bare]),
        text=Marks([*triggers, *closes, *dropped, *anywhere]),
        reasoning=Marks([*triggers, *closes]),
    )


def call_marks(dialect: Dialect) -> list[Mark]:
    """What opens a section of calls, or a call, in a text. Only with what has to follow it, so that
    a text may speak of it."""
    inner = pieces(dialect.call_open)[:1]
    if not inner or dialect.array:
        inner = ("[",) if dialect.codec == "pythonic" else ("{", "[")
    found = []
    if dialect.section_open:
        for opening in (dialect.section_open, *dialect.also_open):
            found.append(Mark("section", pieces(opening), inner))
    follows: tuple[str, ...] = ("{", "[") if dialect.codec == "envelope" else ()
    if dialect.codec == "gemma":
        follows = pieces(dialect.name_open)
    others = () if dialect.section_open else dialect.also_open
    for opening in (dialect.call_open, *others):
        if opening and not opening.startswith("{"):
            found.append(Mark("call", pieces(opening), follows))
    return found


def closing_marks(dialect: Dialect) -> list[Mark]:
    """What closes a call or a section, whole and in parts that are left of it."""
    found = []
    others = [f"</{one[1:]}" for one in dialect.also_open if one[0] == "<" and dialect.section_open]
    for marker in (dialect.call_close, dialect.section_close, *others):
        parts = pieces(marker)
        found.append(Mark("closer", parts))
        found += [Mark("closer", (part,)) for part in parts if part[0] == "<" or is_token(part)]
    return [mark for mark in found if mark.parts]


class Prose:
    """Reads text or reasoning, up to the mark that ends it."""

    def __init__(self, source: Source, output: Output, marks: ProseMarks) -> None:
        self._source = source
        self._output = output
        self._marks = marks
        self._reasoning = False
        self._begun = False

    def read(self, after: After, *, reasoning: bool) -> Steps[Mark]:
        """Reads a region, and over the mark. The blanks before that are kept to come back to."""
        source = self._source
        self._reasoning, self._begun = reasoning, False
        if after == "thought":
            while (yield from source.char()) in "\r\n":
                source.at += 1
        mark = None if reasoning else (yield from self._at_start(after))
        return mark or (yield from self._inside(0))

    def resume(self) -> Steps[Mark]:
        """Goes on with the region where the mark that ended it was none after all."""
        source = self._source
        source.back()
        return (yield from self._inside(skip_space(source.text, source.at) + 1 - source.at))

    def rest(self) -> None:
        """Everything from the last mark on is text, as it was none and nothing more comes."""
        self._source.back()
        self._write(len(self._source.text))

    def _at_start(self, after: After) -> Steps[Mark | None]:
        """Reads over blanks to the mark that a region begins with, if it does."""
        source = self._source
        marks = self._marks.after_call if after == "call" else self._marks.start
        while True:
            begin = skip_space(source.text, source.at)
            mark = None
            if begin < len(source.text):
                mark, end = marks.here(source.text, begin, ended=source.ended)
                if mark is not None and mark.kind in ("dropped", "closer"):
                    source.at = end
                    continue
                if mark is not None:
                    source.at = begin if after == "call" else source.at
                    source.keep()
                    source.at = begin if mark.kind == "bare" else end
                    return mark
                if end == NO:
                    source.at = begin if after == "call" else source.at
                    if after != "call" or not source.breaks_off(marks):
                        return None
            elif source.ended and after == "start":
                self._write(begin)  # Nothing but blanks was said.
            yield from source.more()

    def _inside(self, certain: int) -> Steps[Mark]:
        """Reads to the next mark; so many characters are none for certain."""
        source = self._source
        marks = self._marks.reasoning if self._reasoning else self._marks.text
        while True:
            text = source.text
            least = source.at + certain
            mark, begin, end = marks.next(text, least, ended=source.ended)
            if mark is not None and mark.kind == "dropped":
                cut = begin
            elif mark is None and source.ended and not self._reasoning:
                cut = len(text)
            else:
                cut = least + len(text[least:begin].rstrip())
            if cut > source.at:
                self._write(cut)
                certain = 0
            if mark is None:
                yield from source.more()
                continue
            if mark.kind in ("dropped", "closer"):
                source.at = end
                continue
            source.keep()
            source.at = end
            return mark

    def _write(self, end: int) -> None:
        source = self._source
        if end > source.at:
            text = source.text[source.at : end]
            self._output.text(text, begins=not self._begun, reasoning=self._reasoning)
            self._begun = True
            source.at = end
