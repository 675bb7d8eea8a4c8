"""What goes wrong with grammars."""

import re

_PLACE = re.compile(r"^(?:at )?(\d+)\((\d+)\): ")
_SCHEMA = "failed to compile JSON schema: "
_LONGEST = 300


class GrammarRefused(Exception):
    """A grammar cannot be used: it is none, or too large. The text says why, and at what line and
    column of the grammar where that is known."""


class GrammarFailed(Exception):
    """A grammar that was in use cannot be followed any further."""


def told(message: str) -> str:
    """A message of llguidance's in one short line."""
    if message.startswith("panic"):
        return "it is too complex"
    place = _PLACE.match(message)
    if place is not None:
        message = message[place.end() :]
    is_schema = message.startswith(_SCHEMA)
    text = message.removeprefix(_SCHEMA)
    # A regex's error is told over several lines: where, and at the end what.
    lines = [line.strip() for line in text.split("<non-verbose/>")[0].splitlines()]
    what = next((line for line in lines if line.startswith("error: ")), "")
    text = " ".join([lines[0] if lines else "", what.removeprefix("error: ")]).strip()
    if place is not None and not is_schema:
        text = f"line {place[1]}, column {place[2]}: {text}"
    return text[:_LONGEST] or "it cannot be followed"
