"""How one model is spoken to and understood: its chat template and its dialect together."""

from dataclasses import replace
from typing import Literal

from antiphon.formats.base import Prompt
from antiphon.formats.calls import BLANK_LINE, called
from antiphon.formats.commentary import in_channel, marked
from antiphon.formats.dialects.choosing import choose_dialect
from antiphon.formats.dialects.spelling import spelled
from antiphon.formats.dialects.telling import example, tool_json, tools_text
from antiphon.formats.efforts import Reasons, find_efforts
from antiphon.formats.grammars.turn import ReasoningState, callable_tools
from antiphon.formats.guard import unused
from antiphon.formats.parser import starts_in_reasoning
from antiphon.formats.template import ChatTemplate
from antiphon.turn import Call, Effort, Turn

#: Who tells the model of its tools: its template, or a text of ours in the system message.
ToldBy = Literal["template", "text"]

#: A mark is at most in so many pieces at the end of a prompt.
_LAST_PIECES = 4


class Family:
    """Speaks as a chat template does, in the dialect of that name, or in the one that is found out
    from the template. Raises `UnknownDialect`.

    `efforts` is what comes of each effort; empty where the model does not reason.
    """

    def __init__(self, template: ChatTemplate, dialect: str | None = None) -> None:
        choice = choose_dialect(template, dialect)
        self._template = template
        self.dialect = choice.dialect
        self.told_by: ToldBy = "template" if choice.shows_tools else "text"
        self.efforts = find_efforts(template, choice.dialect)

    @property
    def turn_end(self) -> str | None:
        """The control token that ends an assistant's turn, if there is one."""
        return self._template.turn_end

    def render(self, turn: Turn) -> Prompt:
        """The prompt of a turn, up to where the model goes on.

        All tools are told, whichever of them may be called, so that the prompt stays the same; none
        where none may be. Raises `InvalidPrompt` if the model cannot be shown this conversation.
        """
        if self.dialect.channels:
            messages, mark = marked(turn.messages)
            return in_channel(self._rendered(replace(turn, messages=messages)), mark)
        return self._rendered(turn)

    def _rendered(self, turn: Turn) -> Prompt:
        tools = turn.tools if callable_tools(turn) else ()
        reasons = self._reasons(turn.effort)
        variables = reasons.variables if reasons else None
        if self.told_by == "template" or not tools:
            told = [tool_json(tool) for tool in tools] or None
            return self._template.render(turn, tools=told, variables=variables, told=self._spelled)
        # The marks in the example are the model's own, unlike all that is in a message.
        own = turn.instructions or ""
        texts = [own, tools_text(self.dialect, tools, ""), *(e.text for e in turn.messages)]
        slot = unused(texts)
        texts = [own, tools_text(self.dialect, tools, slot)]
        asked = replace(turn, instructions=BLANK_LINE.join(text for text in texts if text))
        prompt = self._template.render(asked, variables=variables, told=self._spelled)
        shown = example(self.dialect)
        return tuple(piece.replace(slot, shown) for piece in prompt)

    def reasoning(self, prompt: Prompt, turn: Turn) -> ReasoningState:
        """Where a turn's prompt leaves the model."""
        marks = self.dialect.reasoning
        if marks is None or not self.efforts:
            return "closed"
        text = "".join(prompt[-_LAST_PIECES:]).rstrip()
        if starts_in_reasoning(self.dialect, text):
            return "inside"
        if text.endswith(marks.close.rstrip()) or self.max_reasoning(turn) == 0:
            return "closed"
        return "allowed"

    def max_reasoning(self, turn: Turn) -> int | None:
        """Tokens that a turn's reasoning may have, None for any number."""
        reasons = self._reasons(turn.effort)
        return reasons.max_tokens if reasons else None

    def effort(self, asked: Effort | None) -> Effort | None:
        """What an effort that is asked for amounts to, None where it has no effect."""
        reasons = self._reasons(asked)
        return reasons.effort if reasons else None

    def _reasons(self, effort: Effort | None) -> Reasons | None:
        return None if effort is None else self.efforts.get(effort)

    def _spelled(self, call: Call) -> str:
        """A call as the model is asked to write it; as words where it has no such form."""
        try:
            return spelled(self.dialect, [call])
        except (ValueError, TypeError, RecursionError):
            return called(call)
