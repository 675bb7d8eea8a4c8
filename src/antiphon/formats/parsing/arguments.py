"""Arguments that are JSON: passed on as they are, up to where they end."""

import re
from collections.abc import Callable

from antiphon.formats.dialects.dialect import RAW_INPUT_CLOSE, RAW_INPUT_OPEN
from antiphon.formats.parsing.json_text import StringDecoder
from antiphon.formats.parsing.output import OpenCall
from antiphon.formats.parsing.source import TOKEN_CHARACTERS, Mark, Marks, Source, Steps, pieces

# What JSON has outside of strings that matters here, and what it cannot have there.
_OUTSIDE = re.compile(f'[{{}}\\[\\]"<{TOKEN_CHARACTERS}]')
_INSIDE = re.compile(r'["\\]')
_AFTER_WORD = re.compile(f"[,}}\\]\\s<{TOKEN_CHARACTERS}]")
_RAW_OPEN = Marks([Mark("raw", pieces(RAW_INPUT_OPEN))])
_RAW_CLOSE = Marks([Mark("raw", pieces(RAW_INPUT_CLOSE))])

Write = Callable[[str], None]


def read_arguments(source: Source, call: OpenCall) -> Steps[bool]:
    """Reads a call's arguments and ends it; False if they break off and it stays open.

    A string in their place has them inside, as JSON once more or as a custom tool's input.
    """
    first = yield from source.space()
    if call.tool.custom and first == "<" and (yield from source.mark(_RAW_OPEN)):
        yield from read_raw_input(source, call)
    elif first == '"':
        source.at += 1
        empty = (yield from source.char()) == '"'
        yield from read_string(source, call.write_raw)
        if empty and not call.tool.custom:
            call.write("{}")
    elif first in "{[":
        if not (yield from read_json(source, call.write)):
            return False
    else:
        word: list[str] = []
        yield from read_json(source, word.append)
        text = "".join(word)
        call.write("{}" if text in ("", "null", "None") else text)
    call.end()
    return True


def read_raw_input(source: Source, call: OpenCall) -> Steps[None]:
    """Reads a custom tool's input that stands there as it is, from behind its opening mark."""
    if (yield from source.char()) == "\n":
        source.at += 1
    yield from source.until(_RAW_CLOSE, call.write_raw, less_newline=True)


def read_json(source: Source, write: Write) -> Steps[bool]:
    """Passes a JSON value on; False if it breaks off where no JSON can go on."""
    first = yield from source.space()
    if first == '"':
        source.at += 1
        write('"')
        yield from _inside_string(source, write)
        return True
    if first not in "{[":
        yield from _word(source, write)
        return True
    depth = 0
    while True:
        found = _OUTSIDE.search(source.text, source.at)
        end = found.start() if found else len(source.text)
        if end > source.at:
            write(source.text[source.at : end])
            source.at = end
        if not found:
            yield from source.more()
            continue
        char = found.group()
        if char not in '{}[]"':
            return False
        source.at += 1
        write(char)
        if char == '"':
            yield from _inside_string(source, write)
            continue
        depth += 1 if char in "{[" else -1
        if depth == 0:
            return True


def read_string(source: Source, write: Write) -> Steps[None]:
    """Decodes a JSON string, from behind its opening quote."""
    decoder = StringDecoder()
    while True:
        text, source.at = decoder.feed(source.text, source.at)
        if decoder.closed:
            text += decoder.finish()
        if text:
            write(text)
        if decoder.closed:
            return
        yield from source.more()


def _inside_string(source: Source, write: Write) -> Steps[None]:
    """Passes on what is left of a string, and its closing quote."""
    while True:
        found = _INSIDE.search(source.text, source.at)
        if found:
            # An escape goes in one piece, so that its second character is not taken for a quote.
            whole = found.group() == '"' or found.end() < len(source.text)
            end = found.start() + (whole and (1 if found.group() == '"' else 2))
        else:
            whole, end = False, len(source.text)
        if end > source.at:
            write(source.text[source.at : end])
            source.at = end
        if found and found.group() == '"':
            return
        if not whole:
            yield from source.more()


def _word(source: Source, write: Write) -> Steps[None]:
    """Passes on a number or a constant."""
    while True:
        found = _AFTER_WORD.search(source.text, source.at)
        end = found.start() if found else len(source.text)
        if end > source.at:
            write(source.text[source.at : end])
            source.at = end
        if found:
            return
        yield from source.more()
