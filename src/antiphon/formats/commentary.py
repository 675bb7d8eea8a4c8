"""What the assistant says before it calls, in a dialect of channels.

Templates show all that the assistant says as final, which ends a turn. So remarks are marked with a
character before they are rendered, and put into their own channel afterwards.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from antiphon.formats.base import Prompt
from antiphon.formats.guard import unused
from antiphon.turn import Call, Entry, Message, Reasoning


def marked(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], str]:
    """A conversation with its remarks marked, and the character that marks them.

    What the assistant says right before a call is a remark as well. Reasoning before a remark goes
    to the call, as templates leave out that of what they take for an answer. Raises
    `InvalidPrompt` where no character is left.
    """
    mark = unused([entry.text for entry in entries])
    found: list[Entry] = []
    for place, entry in enumerate(entries):
        if not _is_remark(entries, place):
            found.append(entry)
            continue
        assert isinstance(entry, Message)
        reasons = len(found)
        while reasons and isinstance(found[reasons - 1], Reasoning):
            reasons -= 1
        found.insert(reasons, replace(entry, text=mark + entry.text))
    return tuple(found), mark


def in_channel(prompt: Prompt, mark: str) -> Prompt:
    """A rendered conversation with its remarks in the channel `commentary`."""
    final = re.compile(rf"(?:final|analysis)(<\|message\|>\s*){mark}")
    return tuple(final.sub(r"commentary\1", piece).replace(mark, "") for piece in prompt)


def _is_remark(entries: Sequence[Entry], place: int) -> bool:
    entry = entries[place]
    if not isinstance(entry, Message) or entry.role != "assistant":
        return False
    rest = (e for e in entries[place + 1 :] if not isinstance(e, Reasoning))
    return entry.commentary or isinstance(next(rest, None), Call)
