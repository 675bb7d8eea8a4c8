"""Fits a conversation to what a chat template can show.

The rule, in this order:

1. `instructions` and the system messages that open the conversation become one system message,
   joined by blank lines. If the template has no system role, it goes before the text of the user
   message that comes next, or becomes a user message where none does.
2. A later system message stays where it is if the template allows it. If not, its text is wrapped
   in `<system>` and `</system>` and put before the text of the user message that comes next, or
   becomes a user message where none does.
3. If the template wants roles to alternate, neighbours of one role are joined by blank lines, and a
   conversation that the assistant opens gets an empty user message before it.

No text is lost, and none changes places with the text of another user or assistant message.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.turn import Message, Turn

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a template allows: a system message, one after the first user message, two neighbours
    of one role, and the assistant speaking first."""

    system: bool = True
    later_system: bool = True
    repeats: bool = True
    assistant_first: bool = True


def fold(turn: Turn, traits: Traits) -> list[Message]:
    """The messages to render for a turn."""
    opening = _opening_system_messages(turn.messages)
    texts = [turn.instructions or "", *(m.text for m in turn.messages[:opening])]
    leading = _BLANK_LINE.join(text for text in texts if text)
    messages = list(turn.messages[opening:])
    if not traits.later_system or not traits.system:
        messages = _wrap_later_system(messages)
    if leading and not traits.system:
        messages = _put_before_first_user(leading, messages)
    if not traits.repeats:
        messages = _join_neighbours(messages)
    if messages and messages[0].role == "assistant" and not traits.assistant_first:
        messages.insert(0, Message("user", ""))
    if leading and traits.system:
        messages.insert(0, Message("system", leading))
    return messages


def _opening_system_messages(messages: Sequence[Message]) -> int:
    """How many system messages open the conversation."""
    return next((n for n, m in enumerate(messages) if m.role != "system"), len(messages))


def _wrap_later_system(messages: Sequence[Message]) -> list[Message]:
    wrapped: list[Message] = []
    notes: list[str] = []
    for message in messages:
        if message.role == "system":
            notes.append(f"<system>\n{message.text}\n</system>")
        elif message.role == "user" and notes:
            wrapped.append(Message("user", _BLANK_LINE.join([*notes, message.text])))
            notes = []
        else:
            wrapped += [Message("user", note) for note in notes]
            notes = []
            wrapped.append(message)
    return wrapped + [Message("user", note) for note in notes]


def _put_before_first_user(leading: str, messages: list[Message]) -> list[Message]:
    if messages and messages[0].role == "user":
        first = Message("user", leading + _BLANK_LINE + messages[0].text)
        return [first, *messages[1:]]
    return [Message("user", leading), *messages]


def _join_neighbours(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, joined[-1].text + _BLANK_LINE + message.text)
        else:
            joined.append(message)
    return joined
