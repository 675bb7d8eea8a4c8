"""A turn of text, reasoning and calls, in any order."""

from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.parsing.envelope import EnvelopeCalls
from antiphon.formats.parsing.named import GemmaCalls, JsonCalls
from antiphon.formats.parsing.params import ParamCalls
from antiphon.formats.parsing.prose import After, Prose, closing_marks, prose_marks
from antiphon.formats.parsing.pythonic import PythonicCalls
from antiphon.formats.parsing.reading import CallReader, Reading
from antiphon.formats.parsing.source import Ended, Mark, Marks, Steps, pieces


def call_reader(reading: Reading) -> CallReader:
    """The reader for the codec of a dialect."""
    match reading.dialect.codec:
        case "envelope":
            return EnvelopeCalls(reading)
        case "json":
            return JsonCalls(reading)
        case "params":
            return ParamCalls(reading)
        case "pythonic":
            return PythonicCalls(reading)
        case "gemma":
            return GemmaCalls(reading)


class TurnReader:
    """Reads a turn, from inside reasoning or not. Never gets to an end by itself.

    `in_call` is whether it is inside of a call that has not begun to tell its arguments,
    `in_reasoning` whether in reasoning.
    """

    def __init__(self, reading: Reading, *, calls: bool, starts_in_reasoning: bool) -> None:
        self._source = reading.source
        self._output = reading.output
        self._calls = call_reader(reading)
        self._prose = Prose(
            reading.source, reading.output, prose_marks(reading.dialect, calls=calls)
        )
        self._between = _between_calls(reading.dialect)
        self._together = reading.dialect.array or reading.dialect.bare
        self.in_reasoning = starts_in_reasoning
        self.in_call = False

    def read(self) -> Steps[None]:
        """Reads everything."""
        after: After = "thought" if self.in_reasoning else "start"
        mark = yield from self._prose.read(after, reasoning=self.in_reasoning)
        while True:
            if mark.kind in ("think", "thought"):
                self._source.forget()
                after, self.in_reasoning = "thought", mark.kind == "think"
            elif (yield from self._call(mark)):
                after, self.in_reasoning = "call", False
            else:
                mark = yield from self._prose.resume()
                continue
            mark = yield from self._prose.read(after, reasoning=self.in_reasoning)

    def _call(self, mark: Mark) -> Steps[bool]:
        """Reads calls from behind the mark that opened them; False if there are none."""
        self.in_call = True
        num_before = self._output.num_calls
        try:
            if mark.kind == "section" and not self._together:
                began = yield from self._section()
            else:
                began = yield from self._calls.read()
                if began and self._between and not self._together:
                    yield from self._section()
        except Ended:
            self.in_call = self._source.kept
            if self.in_call and mark.kind == "bare" and self._output.num_calls == num_before:
                self.in_call = False
                self._prose.rest()
            raise
        self.in_call = False
        return began

    def _section(self) -> Steps[bool]:
        """Reads calls and what is between them, to where something else comes."""
        source = self._source
        assert self._between is not None
        began = False
        while True:
            yield from source.space()
            source.keep()
            mark = yield from source.mark(self._between)
            if mark is not None and mark.kind == "end":
                source.forget()
                return True
            if mark is None:
                if began:
                    source.forget()
                    if source.breaks_off(self._between):
                        continue
                return began
            if mark.kind == "between":
                if began:
                    source.forget()
                continue
            if mark.kind == "object":
                source.at -= 1
            if not (yield from self._calls.read()):
                if began:
                    source.back()
                return began
            began = True


def _between_calls(dialect: Dialect) -> Marks | None:
    """What comes between calls of a section, and ends it; None where there are no sections."""
    if not dialect.section_open:
        return None
    calls = [Mark("call", pieces(dialect.call_open))] if dialect.call_open else []
    return Marks(
        [
            Mark("end", pieces(dialect.section_close)),
            *(Mark("between", mark.parts) for mark in closing_marks(dialect)),
            Mark("between", pieces(dialect.separator)),
            *(calls or [Mark("object", ("{",))]),
        ]
    )
