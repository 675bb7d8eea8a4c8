"""Fits a conversation to what a chat template can show.

The rule, in this order:

1. `instructions` and the system messages that open the conversation become one system message,
   joined by blank lines. If the template has no system role, or would not show it as the user is
   not the last to speak, it goes before the text of the user message that comes next, or becomes a
   user message where none does.
2. Reasoning is left out if the template has no place for it. Tool calls and their results become
   texts if the template cannot show them; `calls` has the words. If it cannot show several calls in
   one message, each gets its own, with its result behind it; if not a text and calls in one
   message, the text gets its own.
3. A later system message stays where it is if the template allows it. If not, its text is wrapped
   in `<system>` and `</system>` and put before the text of the user message that comes next, or
   becomes a user message where none does, but never between a call and its result.
4. If the template wants roles to alternate, neighbours of one role are joined by blank lines, but
   nothing to a message with calls, nor a text to calls that it could not be shown with. A
   conversation that the assistant opens gets an empty user message before it.

No text but reasoning is lost, and none changes places with the text of another user or assistant
message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from antiphon.formats.calls import (
    BLANK_LINE,
    Result,
    Said,
    Shown,
    as_text,
    called,
    grouped,
    named_ids,
    one_by_one,
    text_apart,
    without_reasoning,
)
from antiphon.turn import Call, Entry, Message, Turn


@dataclass(frozen=True, slots=True)
class Traits:
    """What a template allows: a system message, one after the first user message, two neighbours
    of one role, and the assistant speaking first.

    `system_always` is whether the system message is shown whoever speaks last, or only if the user
    does. `calls` is how it takes the arguments of calls, as an object or as a JSON text; None if it
    shows none. `parallel_calls` is whether a message may have several; `spoken_calls` whether a
    text and calls may come in one message, in two, or not at all; `named_ids` whether ids must have
    the function's name in them. `reasoning` is the name under which a message has its reasoning.
    """

    system: bool = True
    later_system: bool = True
    repeats: bool = True
    assistant_first: bool = True
    system_always: bool = True
    calls: Literal["object", "json"] | None = None
    parallel_calls: bool = True
    spoken_calls: Literal["together", "apart", "never"] = "together"
    named_ids: bool = False
    reasoning: str | None = None


def fold(turn: Turn, traits: Traits, told: Callable[[Call], str] = called) -> list[Shown]:
    """The messages to render for a turn. `told` writes calls that cannot be shown."""
    opening = _opening_system_texts(turn.messages)
    leading = BLANK_LINE.join(text for text in (turn.instructions or "", *opening) if text)
    messages = _fit_calls(grouped(turn.messages[len(opening) :]), traits, told)
    asked = bool(messages) and messages[-1].role == "user"
    system = traits.system and (traits.system_always or asked)
    if not traits.later_system or not system:
        messages = _wrap_later_system(messages)
    if leading and not system:
        messages = _put_before_first_user(leading, messages)
    if not traits.repeats:
        messages = _join_neighbours(messages, spoken=traits.spoken_calls == "together")
    if messages and messages[0].role == "assistant" and not traits.assistant_first:
        messages.insert(0, Message("user", ""))
    if leading and system:
        messages.insert(0, Message("system", leading))
    return messages


def _opening_system_texts(entries: Sequence[Entry]) -> list[str]:
    """The texts of the system messages that open the conversation."""
    texts = []
    for entry in entries:
        if not isinstance(entry, Message) or entry.role != "system":
            break
        texts.append(entry.text)
    return texts


def _fit_calls(messages: list[Shown], traits: Traits, told: Callable[[Call], str]) -> list[Shown]:
    if traits.reasoning is None:
        messages = without_reasoning(messages)
    spoken = any(isinstance(m, Said) and m.calls and m.text for m in messages)
    if traits.calls is None or (spoken and traits.spoken_calls == "never"):
        return as_text(messages, told)
    if traits.spoken_calls == "apart":
        messages = text_apart(messages)
    if not traits.parallel_calls:
        messages = one_by_one(messages)
    return named_ids(messages) if traits.named_ids else messages


def _wrap_later_system(messages: Sequence[Shown]) -> list[Shown]:
    wrapped: list[Shown] = []
    notes: list[str] = []
    for message in messages:
        if message.role == "system":
            notes.append(f"<system>\n{message.text}\n</system>")
        elif message.role == "user" and notes:
            wrapped.append(Message("user", BLANK_LINE.join([*notes, message.text])))
            notes = []
        elif isinstance(message, Result):
            wrapped.append(message)
        else:
            wrapped += [Message("user", note) for note in notes]
            notes = []
            wrapped.append(message)
    return wrapped + [Message("user", note) for note in notes]


def _put_before_first_user(leading: str, messages: list[Shown]) -> list[Shown]:
    if messages and messages[0].role == "user":
        first = Message("user", leading + BLANK_LINE + messages[0].text)
        return [first, *messages[1:]]
    return [Message("user", leading), *messages]


def _join_neighbours(messages: Sequence[Shown], *, spoken: bool) -> list[Shown]:
    joined: list[Shown] = []
    for message in messages:
        last = joined[-1] if joined else None
        if isinstance(last, Message) and isinstance(message, Message) and last.role == message.role:
            joined[-1] = Message(message.role, last.text + BLANK_LINE + message.text)
        elif last is None or last.role != "assistant" or message.role != "assistant":
            joined.append(message)
        elif _calls(last) or (_calls(message) and not spoken):
            joined.append(message)
        else:
            joined[-1] = _said_together(last, message)
    return joined


def _calls(message: Shown) -> bool:
    return isinstance(message, Said) and bool(message.calls)


def _said_together(one: Shown, other: Shown) -> Said:
    reasons = [m.reasoning for m in (one, other) if isinstance(m, Said) and m.reasoning]
    return Said(
        BLANK_LINE.join(text for text in (one.text, other.text) if text),
        BLANK_LINE.join(reasons),
        other.calls if isinstance(other, Said) else (),
    )
