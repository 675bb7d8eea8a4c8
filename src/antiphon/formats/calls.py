"""Reasoning, tool calls and their results, as chat templates see them.

In a template's eyes the assistant says a text, has reasons for it, and makes calls, all in one
message; a result is a message of the role `tool`. So neighbours are grouped: reasoning goes to what
the assistant says next, and calls to the assistant's text that they follow at once.

Templates that know no tools are shown texts instead. A call reads `Called NAME with ARGUMENTS`, and
it belongs to the assistant's text before it; a result reads `Result of NAME: OUTPUT` and is said by
the user. Blank lines stand between them. A result whose call is not there reads `Result: OUTPUT`
whatever the template knows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from antiphon.turn import Call, CallResult, Entry, Message, Reasoning

BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Said:
    """All that the assistant says at once. Calls have ids that templates take, of nine letters and
    digits, instead of their own."""

    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def role(self) -> Literal["assistant"]:
        """Who speaks."""
        return "assistant"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call, with the id that the call has in `Said`, and its name."""

    call_id: str
    name: str
    text: str

    @property
    def role(self) -> Literal["tool"]:
        """Who speaks."""
        return "tool"


#: A message for a template. Each has a `role` and a `text`.
Shown = Message | Said | Result


def grouped(entries: Sequence[Entry]) -> list[Shown]:
    """A conversation in messages; those of the assistant that are text alone stay `Message`s."""
    return _Grouping().of(entries)


def without_reasoning(messages: Sequence[Shown]) -> list[Shown]:
    """Leaves reasoning out, and messages that were nothing else."""
    result: list[Shown] = []
    for message in messages:
        if not isinstance(message, Said):
            result.append(message)
        elif message.calls:
            result.append(replace(message, reasoning=""))
        elif message.text:
            result.append(Message("assistant", message.text))
    return result


def as_text(messages: Sequence[Shown], told: Callable[[Call], str]) -> list[Shown]:
    """Puts calls and results as texts, calls as `told` writes them."""
    result: list[Shown] = []
    after_result = False
    for message in messages:
        if isinstance(message, Result):
            text = f"Result of {message.name}: {message.text}"
            if after_result:
                text = result.pop().text + BLANK_LINE + text
            result.append(Message("user", text))
        elif isinstance(message, Said) and message.calls:
            texts = [message.text, *map(told, message.calls)]
            text = BLANK_LINE.join(text for text in texts if text)
            result.append(
                Said(text, message.reasoning) if message.reasoning else Message("assistant", text)
            )
        else:
            result.append(message)
        after_result = isinstance(message, Result)
    return result


def text_apart(messages: Sequence[Shown]) -> list[Shown]:
    """Puts the text that comes with calls into a message of its own before them."""
    result: list[Shown] = []
    for message in messages:
        if isinstance(message, Said) and message.calls and message.text:
            spoken = Said(message.text, message.reasoning)
            result.append(spoken if message.reasoning else Message("assistant", message.text))
            result.append(Said("", "", message.calls))
        else:
            result.append(message)
    return result


def named_ids(messages: Sequence[Shown]) -> list[Shown]:
    """Gives calls ids such as `functions.NAME:0`, counted over the conversation."""
    result: list[Shown] = []
    new: dict[str, str] = {}
    for message in messages:
        if isinstance(message, Said):
            for call in message.calls:
                new[call.call_id] = f"functions.{call.name}:{len(new)}"
            calls = tuple(replace(call, call_id=new[call.call_id]) for call in message.calls)
            result.append(replace(message, calls=calls))
        elif isinstance(message, Result):
            result.append(replace(message, call_id=new[message.call_id]))
        else:
            result.append(message)
    return result


def one_by_one(messages: Sequence[Shown]) -> list[Shown]:
    """Gives every call a message of its own, with its result behind it if that follows."""
    result: list[Shown] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if not isinstance(message, Said) or len(message.calls) < 2:
            result.append(message)
            continue
        results: list[Result] = []
        while at < len(messages) and isinstance(following := messages[at], Result):
            results.append(following)
            at += 1
        for number, call in enumerate(message.calls):
            first = message if number == 0 else Said("")
            result.append(replace(first, calls=(call,)))
            result += [found for found in results if found.call_id == call.call_id]
        ids = {call.call_id for call in message.calls}
        result += [other for other in results if other.call_id not in ids]
    return result


def called(call: Call) -> str:
    """A call as words."""
    return f"Called {call.name} with {call.arguments}" if call.arguments else f"Called {call.name}"


class _Grouping:
    def __init__(self) -> None:
        self._messages: list[Shown] = []
        self._reasons: list[str] = []
        self._calls: dict[str, Call] = {}
        self._made = 0

    def of(self, entries: Sequence[Entry]) -> list[Shown]:
        for entry in entries:
            match entry:
                case Reasoning(text):
                    self._reasons.append(text)
                case Call():
                    self._call(entry)
                case Message("assistant", text) if self._reasons:
                    self._messages.append(Said(text, self._taken_reasons()))
                case Message("assistant", _):
                    self._messages.append(entry)
                case _:
                    self._leave_reasons()
                    self._messages.append(
                        self._result(entry) if isinstance(entry, CallResult) else entry
                    )
        self._leave_reasons()
        return self._messages

    def _call(self, call: Call) -> None:
        self._made += 1
        shown = replace(call, call_id=f"call{self._made:05}")
        self._calls[call.call_id] = shown
        last = self._messages[-1] if self._messages else None
        if self._reasons or last is None or last.role != "assistant":
            self._messages.append(Said("", self._taken_reasons(), (shown,)))
        elif isinstance(last, Said):
            self._messages[-1] = replace(last, calls=(*last.calls, shown))
        else:
            self._messages[-1] = Said(last.text, "", (shown,))

    def _result(self, result: CallResult) -> Shown:
        call = self._calls.get(result.call_id)
        if call is None:
            return Message("user", f"Result: {result.output}")
        return Result(call.call_id, call.name, result.output)

    def _taken_reasons(self) -> str:
        taken, self._reasons = BLANK_LINE.join(self._reasons), []
        return taken

    def _leave_reasons(self) -> None:
        """Gives reasons that nothing came of a message of their own."""
        if self._reasons:
            self._messages.append(Said("", self._taken_reasons()))
