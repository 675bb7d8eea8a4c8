"""JSON as it comes: strings decoded, and the raw text of a custom tool's input."""

import re

from antiphon.formats.dialects.dialect import INPUT_KEY
from antiphon.formats.parsing.source import MORE, Mark

_PLAIN = re.compile(r'[^"\\]+')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", '"': '"', "\\": "\\"}
_EMPTY = re.compile(r"\{\s*\}\s*")
_HEX = frozenset("0123456789abcdefABCDEF")


class StringDecoder:
    """Decodes what stands in a JSON string, from behind its opening quote.

    Escapes that JSON does not know stay as they are, and halves of characters become U+FFFD.
    """

    def __init__(self) -> None:
        self.closed = False
        self._escape = ""
        self._high = 0

    def feed(self, text: str, at: int = 0) -> tuple[str, int]:
        """More of it, from `at` on: what it says, and where in `text` it stopped.

        That is the end of the text, or behind the closing quote.
        """
        out: list[str] = []
        while at < len(text) and not self.closed:
            if self._escape:
                at = self._in_escape(text, at, out)
                continue
            if text[at] == "\\":
                self._escape = "\\"
                at += 1
                continue
            self._flush_high(out)
            plain = _PLAIN.match(text, at)
            if plain:
                out.append(plain.group())
                at = plain.end()
            else:
                self.closed = True
                at += 1
        return "".join(out), at

    def finish(self) -> str:
        """What an escape that was broken off says."""
        out: list[str] = []
        self._flush_high(out)
        return "".join(out)

    def _in_escape(self, text: str, at: int, out: list[str]) -> int:
        """Reads one more character of an escape."""
        char = text[at]
        if self._escape == "\\":
            if char == "u":
                self._escape = "\\u"
                return at + 1
            self._flush_high(out)
            out.append(_ESCAPES.get(char, f"\\{char}"))
            self._escape = ""
            return at + 1
        if char not in _HEX:
            self._flush_high(out)
            out.append(self._escape)
            self._escape = ""
            return at
        self._escape += char
        if len(self._escape) == 6:
            self._unit(int(self._escape[2:], 16), out)
            self._escape = ""
        return at + 1

    def _unit(self, unit: int, out: list[str]) -> None:
        """One half of a character, or a whole one."""
        if self._high and 0xDC00 <= unit <= 0xDFFF:
            out.append(chr(0x10000 + ((self._high - 0xD800) << 10) + (unit - 0xDC00)))
            self._high = 0
            return
        self._flush_high(out)
        if 0xD800 <= unit <= 0xDBFF:
            self._high = unit
        else:
            out.append("\ufffd" if 0xDC00 <= unit <= 0xDFFF else chr(unit))

    def _flush_high(self, out: list[str]) -> None:
        if self._high:
            out.append("\ufffd")
            self._high = 0


class InputText:
    """The text in `{"input": TEXT}`, which is what a custom tool is called with.

    Anything else is the input as it is.
    """

    _HEAD = Mark("head", ("{", f'"{INPUT_KEY}"', ":", '"'))

    def __init__(self) -> None:
        self._begun = ""
        self._decoder: StringDecoder | None = None
        self._as_it_is = False

    def feed(self, text: str) -> str:
        """More of the JSON: more of the input."""
        if self._as_it_is:
            return text
        if self._decoder is None:
            self._begun += text
            begun = self._begun.lstrip()
            end = self._HEAD.end(begun, 0, ended=False)
            if end == MORE:
                return ""
            if end < 0 and _EMPTY.fullmatch(begun):
                return ""
            if end < 0:
                self._as_it_is = True
                return self._begun
            self._decoder = StringDecoder()
            text = begun[end:]
        decoded, _ = self._decoder.feed(text)
        return decoded

    def finish(self) -> str:
        """What is left when the JSON is whole."""
        if self._decoder is None:
            nothing = self._as_it_is or _EMPTY.fullmatch(self._begun.strip())
            return "" if nothing else self._begun
        return self._decoder.finish()
