"""What a model says, held to what it was asked, whatever the model itself makes sure of.

Arguments and answers are published as they come; that they are whole, and fit their schemas, is
never said before it was found true.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import orjson

from antiphon.comparing import ComparedHere, Comparing
from antiphon.errors import InvalidAnswer, InvalidToolCall
from antiphon.models.base import Generation
from antiphon.schema_places import Schema
from antiphon.turn import (
    AnswerFormat,
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    TextDelta,
    TokenUsage,
    Tool,
    Turn,
)

_ANY_OBJECT: Schema = {"type": "object"}
_NOTHING: Schema = {"type": "object", "additionalProperties": False}
_LONGEST_NAME = 64


class HeldGeneration:
    """Answers `turn` as `generation` does, and not otherwise than the turn allows.

    The model is stopped once it has made as many calls as it may. Its deltas raise
    `InvalidToolCall` in place of a call of what may not be called, of the end of a call whose
    arguments do not fit, and of the end of a turn without the call that it had to make;
    `InvalidAnswer` in place of the end of a turn whose answer does not have its form. A turn that
    is cut short is held to nothing that was still to come. Texts are compared with schemas by
    `comparing`.
    """

    def __init__(
        self, generation: Generation, turn: Turn, comparing: Comparing | None = None
    ) -> None:
        self._generation = generation
        self._comparing = comparing or ComparedHere()
        self._turn = turn

    @property
    def usage(self) -> TokenUsage:
        return self._generation.usage

    def start(self) -> None:
        self._generation.start()

    def cancel(self) -> None:
        self._generation.cancel()

    async def released(self) -> None:
        await self._generation.released()

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        calls = _Calls(self._turn, self._comparing)
        answer = _Answer(self._turn.answer, self._comparing)
        async with aclosing(self._generation.deltas()) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text):
                        answer.add(text)
                    case CallStart():
                        if not calls.begin(delta):
                            continue
                        answer.begin()  # What was said before a call is no answer.
                    case CallArguments(call, text):
                        if not calls.add(call, text):
                            continue
                    case CallEnd(call):
                        if not await calls.end(call):
                            continue
                    case Finish("stop"):
                        calls.end_turn()
                        await answer.end_turn(called=calls.made > 0)
                yield delta
                if isinstance(delta, Finish):
                    return
                if isinstance(delta, CallEnd) and calls.made == calls.most:
                    break
            else:
                return
        yield Finish("stop")


@dataclass(slots=True)
class _Call:
    tool: Tool
    arguments: list[str] = field(default_factory=list)


class _Calls:
    """The calls of a turn. Those beyond what it may make are left out; with one call at most, so is
    one that begins before the first is whole. `made` counts those that are whole, and `most` is how
    many they may be, None for any number."""

    def __init__(self, turn: Turn, comparing: Comparing) -> None:
        self._comparing = comparing
        self._tools = {tool.name: tool for tool in turn.tools}
        self._choice = turn.tool_choice
        self.most = turn.max_calls if turn.parallel_calls else 1
        self.made = 0
        self._open: dict[int, _Call] = {}

    def begin(self, call: CallStart) -> bool:
        """Whether a call is one that may be made. False for one too many."""
        name = call.name[:_LONGEST_NAME]
        tool = self._tools.get(call.name)
        if tool is None:
            raise InvalidToolCall(f"The model called '{name}', which it was not offered.")
        allowed = self._choice.allowed
        if self._choice.mode == "none" or (allowed is not None and tool.name not in allowed):
            raise InvalidToolCall(f"The model called '{name}', which 'tool_choice' does not allow.")
        if tool.custom != call.custom:
            raise InvalidToolCall(f"The model called '{name}', but not as it was declared.")
        if self.most is not None and self.made + len(self._open) >= self.most:
            return False
        self._open[call.call] = _Call(tool)
        return True

    def add(self, call: int, text: str) -> bool:
        """Take in more of a call's arguments. False for a call that is left out."""
        if call not in self._open:
            return False
        self._open[call].arguments.append(text)
        return True

    async def end(self, call: int) -> bool:
        """Compare a whole call with what was declared. False for a call that is left out."""
        if call not in self._open:
            return False
        tool, text = self._open[call].tool, "".join(self._open[call].arguments)
        if tool.strict and not tool.custom:
            wrong = await self._comparing.compare(text or "{}", tool.parameters or _NOTHING)
            if wrong is not None:
                name = tool.name[:_LONGEST_NAME]
                raise InvalidToolCall(f"The arguments of the call of '{name}' do not fit: {wrong}")
        elif tool.searches and not _is_object(text or "{}"):
            raise InvalidToolCall("The model searched for tools, but not with a JSON object.")
        del self._open[call]
        self.made += 1
        return True

    def end_turn(self) -> None:
        """Refuse the end of a turn inside a call, or without a call that had to be made."""
        if self._open:
            raise InvalidToolCall("The model ended its turn inside a call.")
        if self._choice.mode == "required" and not self.made:
            raise InvalidToolCall("The model called no tool, which 'tool_choice' requires.")


class _Answer:
    """The text that a turn ends with."""

    def __init__(self, form: AnswerFormat | None, comparing: Comparing) -> None:
        self._comparing = comparing
        self._form = form
        self._texts: list[str] = []

    def begin(self) -> None:
        """Forget what was said so far."""
        self._texts.clear()

    def add(self, text: str) -> None:
        """Take in more."""
        if self._form is not None:
            self._texts.append(text)

    async def end_turn(self, *, called: bool) -> None:
        """Refuse an answer that is not of its form; after a call there need not be one."""
        text = "".join(self._texts)
        if self._form is None or (called and not text.strip()):
            return
        schema = _ANY_OBJECT if self._form.schema is None else self._form.schema
        wrong = await self._comparing.compare(text, schema)
        if wrong is not None:
            raise InvalidAnswer(f"The answer does not have the form that was asked for: {wrong}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
