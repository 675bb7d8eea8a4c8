"""Calls that are JSON objects with a name and arguments, alone or in arrays."""

from antiphon.formats.parsing.arguments import read_arguments, read_json
from antiphon.formats.parsing.json_text import StringDecoder
from antiphon.formats.parsing.output import OpenCall
from antiphon.formats.parsing.reading import LONGEST_HEADER, Reading
from antiphon.formats.parsing.source import Ended, Mark, Marks, Source, Steps, pieces

_ARGUMENTS = ("arguments", "parameters")
_BESIDE = ("type", "id")  # What a call may have besides, where nothing else tells it from data.


class EnvelopeCalls:
    """Reads `{"name": ..., "arguments": ...}`, with the keys in any order and others between them.

    Several may follow one another, in an array or with a separator. Where calls are bare, only an
    object that begins with a name and arguments is one.
    """

    def __init__(self, reading: Reading) -> None:
        self._source = reading.source
        self._output = reading.output
        self._bare = reading.dialect.bare
        separators = {reading.dialect.separator, ",", ";"}
        self._next = Marks([Mark("next", pieces(one), ("{",)) for one in sorted(separators)])
        self._name: str | None = None
        self._call: OpenCall | None = None
        self._held: list[str] | None = None  # Arguments that came before the name.

    def read(self) -> Steps[bool]:
        """See `CallReader.read`."""
        source = self._source
        began = False
        in_array = (yield from source.space()) == "["
        source.at += in_array
        while (yield from source.space()) == "{":
            self._name = self._call = self._held = None
            source.keep()
            whole = yield from self._object()
            if not whole:
                if began and source.kept:
                    source.back()
                return began or self._call is not None
            began = True
            if in_array:
                char = yield from source.space()
                source.at += char in ",]"
                if char != ",":
                    break
            elif not self._bare:
                break
            else:
                yield from source.space()
                if (yield from source.mark(self._next)) is None:
                    break
        return began

    def _object(self) -> Steps[bool]:
        """Reads one object; False if it breaks off, or if it is no call."""
        source = self._source
        source.at += 1
        while True:
            char = yield from source.space()
            if char == "}":
                source.at += 1
                return self._closed()
            if char == ",":
                source.at += 1
                continue
            key = yield from self._short_string()
            if key is None or (yield from source.space()) != ":":
                return False
            source.at += 1
            if not (yield from self._member(key, (yield from source.space()))):
                return False

    def _member(self, key: str, first: str) -> Steps[bool]:
        """Reads the value of a key; False if there is no telling what it is."""
        if key == "name" and self._name is None:
            self._name = yield from self._short_string()
            if self._name is not None and not self._bare:
                self._open()
            return self._name is not None
        if key in _ARGUMENTS and self._held is None:
            if self._call is None and self._name is not None:
                self._open()
            self._held = []
            if self._call is not None:
                return (yield from read_arguments(self._source, self._call))
            return not self._bare and (yield from read_json(self._source, self._held.append))
        if self._bare and self._call is None and key not in _BESIDE:
            return False
        if key == "function" and first == "{" and self._name is None:
            return (yield from self._object())
        return (yield from read_json(self._source, lambda text: None))

    def _open(self) -> None:
        assert self._name is not None
        self._call = self._output.call(self._name)
        self._source.forget()
        if self._held is not None:
            _drive(read_arguments(_whole("".join(self._held)), self._call))

    def _closed(self) -> bool:
        """Whether the object that has ended is a call; one without arguments ends here."""
        if self._name is None:
            return False
        if self._held is None:
            if self._bare:
                return False
            self._held = []
            assert self._call is not None
            self._call.write("{}")
            self._call.end()
        return True

    def _short_string(self) -> Steps[str | None]:
        """Reads a string of the length of a name; None if there is none."""
        source = self._source
        if (yield from source.space()) != '"':
            return None
        source.at += 1
        decoder = StringDecoder()
        text = ""
        while True:
            more, source.at = decoder.feed(source.text, source.at)
            text += more
            if len(text) > LONGEST_HEADER:
                return None
            if decoder.closed:
                return text + decoder.finish()
            yield from source.more()


def _whole(text: str) -> Source:
    source = Source()
    source.add(text)
    source.ended = True
    return source


def _drive(steps: Steps[bool]) -> None:
    """Reads to the end of what is all there."""
    try:
        for _ in steps:
            pass
    except Ended:
        pass
