"""Calls that are a name with an object behind it, in JSON or as Gemma writes it."""

from antiphon.formats.parsing.arguments import read_arguments
from antiphon.formats.parsing.literals import GemmaLiterals, Malformed
from antiphon.formats.parsing.output import OpenCall
from antiphon.formats.parsing.reading import Header, Reading
from antiphon.formats.parsing.source import Mark, Marks, Steps, pieces


class JsonCalls:
    """Reads `NAME name_end {...}`; the mark between them may be missing."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        name_end = pieces(reading.dialect.name_end)
        self._header = Header(reading, [Mark("end", name_end), Mark("object", ("{",))])

    def read(self) -> Steps[bool]:
        """See `CallReader.read`."""
        source = self._reading.source
        found = yield from self._header.read()
        if found is None:
            return False
        call, kind = found
        source.forget()
        if kind == "object":
            source.at -= 1
        yield from read_arguments(source, call)
        return True


class GemmaCalls:
    """Reads `NAME{key:value,...}`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._header = Header(reading, [Mark("object", ("{",))])
        self._literals = GemmaLiterals(reading.source, reading.tokens)
        self._close = Marks([Mark("close", pieces(reading.dialect.call_close))])

    def read(self) -> Steps[bool]:
        """See `CallReader.read`."""
        source = self._reading.source
        found = yield from self._header.read()
        if found is None:
            return False
        source.forget()
        source.at -= 1
        yield from self._arguments(found[0])
        return True

    def _arguments(self, call: OpenCall) -> Steps[None]:
        try:
            yield from self._literals.value(call.write)
        except Malformed:
            yield from self._reading.source.until(self._close, lambda text: None)
            return
        call.end()
