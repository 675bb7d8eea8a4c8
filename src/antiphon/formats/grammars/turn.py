"""All that a model may say in a turn: reasoning, an answer, calls."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from antiphon.formats.dialects.dialect import HARMONY_MARKS, Dialect
from antiphon.formats.grammars.calls import Calls, first_pieces
from antiphon.formats.grammars.held import held
from antiphon.formats.grammars.lark import ANYTHING, Lark, regex_of, slashed, without
from antiphon.turn import AnswerFormat, Tool, Turn

#: Whether the prompt leaves the model inside of reasoning, or it may begin to, or it may not.
ReasoningState = Literal["inside", "allowed", "closed"]

_BLANKS = r"/[ \n]{1,4}/"
#: How closely an answer is held to its schema.
_Hold = Literal["whole", "partly", "json"]


def turn_grammars(
    dialect: Dialect,
    turn: Turn,
    *,
    marks: Mapping[str, int],
    ends: Collection[int],
    reasoning: ReasoningState = "allowed",
) -> tuple[str, ...]:
    """The grammars of a turn, the closest first: the first that can be compiled is to be used.
    There are several only for a schema that is not strict; none where anything may be said.

    `marks` and `ends` are those of the vocabulary. Once a call opens, it is of a tool that may be
    called, and one of a strict function has arguments that fit. Raises `Unenforceable`.
    """
    tools = callable_tools(turn)
    if not tools and turn.answer is None:
        return ()
    holds: tuple[_Hold, ...] = ("whole",)
    if turn.answer is not None and turn.answer.schema is not None and not turn.answer.strict:
        holds = ("whole", "partly", "json")
    cuts = HARMONY_MARKS if dialect.channels else ()
    return tuple(
        dict.fromkeys(
            _Grammar(Lark(marks, ends, cuts), dialect, turn, tools, hold).text(reasoning)
            for hold in holds
        )
    )


def answer_grammar(answer: AnswerFormat) -> str:
    """The grammar of an answer by itself, held to its schema as closely as it may be."""
    lark = Lark({}, ())
    return lark.text(_answer(lark, answer, "whole"))


def arguments_grammar(tool: Tool) -> str:
    """The grammar of a function's arguments by themselves, in JSON."""
    lark = Lark({}, ())
    return lark.text(lark.json(held(tool.parameters or {}, strict=True)))


def callable_tools(turn: Turn) -> tuple[Tool, ...]:
    """The tools that may be called in a turn."""
    if turn.tool_choice.mode == "none":
        return ()
    allowed = turn.tool_choice.allowed
    return tuple(tool for tool in turn.tools if allowed is None or tool.name in allowed)


def _answer(lark: Lark, answer: AnswerFormat, hold: _Hold) -> str:
    schema = {"type": "object"} if answer.schema is None else answer.schema
    match hold:
        case "whole":
            return lark.json(held(schema, strict=True))
        case "partly":
            return lark.json(held(schema, strict=False), lenient=True)
        case _:
            root = schema.get("type")
            return lark.json({"type": root} if root in ("object", "array") else {})


class _Grammar:
    def __init__(
        self, lark: Lark, dialect: Dialect, turn: Turn, tools: Sequence[Tool], hold: _Hold
    ) -> None:
        self._lark = lark
        self._row = dialect
        self._turn = turn
        self._hold = hold
        self._calls = (
            Calls(lark, dialect, tools, several=turn.parallel_calls and turn.max_calls != 1)
            if tools
            else None
        )
        self._tools = tools

    def text(self, reasoning: ReasoningState) -> str:
        if self._row.channels:
            return self._lark.text(self._messages(reasoning))
        rest = self._lark.rule(self._rest())
        marks = self._row.reasoning
        if marks is None or reasoning == "closed":
            return self._lark.text(rest)
        thought = self._thought(marks.close, rest)
        if reasoning == "inside":
            return self._lark.text(thought)
        return self._lark.text(f"{self._lark.spelled(marks.open.rstrip())} {thought} | {rest}")

    # --- turns without channels ---

    def _rest(self) -> str:
        """What comes when reasoning is over."""
        calls = self._called()
        if self._turn.answer is not None:
            body = f"({_BLANKS})? {_answer(self._lark, self._turn.answer, self._hold)}"
            return f"{body} | {calls}" if calls and self._optional else calls or body
        assert calls
        return calls if not self._optional else f"{self._free()} | {calls}"

    @property
    def _optional(self) -> bool:
        return self._turn.tool_choice.mode == "auto"

    def _called(self) -> str:
        """Calls and, where an answer may come before them, that."""
        calls, row, lark = self._calls, self._row, self._lark
        if calls is None:
            return ""
        whole = calls.section + calls.opening
        if row.bare:
            # In front of an object that may be an answer, only the mark tells that it is a call.
            marked = f"{lark.spelled(whole)} {calls.named}"
            if not calls.section:
                return calls.whole
            if self._optional and self._turn.answer is not None:
                return marked
            return f"{calls.whole} | {marked}"
        if self._turn.answer is None and self._optional:
            before = self._before(self._text(self._others()), whole)
            return f"{before} {calls.named}"
        return f"({_BLANKS})? {lark.spelled(whole)} {calls.named}"

    def _thought(self, close: str, rest: str) -> str:
        """Reasoning to its end, or to a call that it goes over into."""
        lark, calls = self._lark, self._calls
        words = self._words() if calls is not None else []
        thought = f"{self._before(lark.terminal(without(words)), close)} ({_BLANKS})? {rest}"
        if calls is None or self._row.bare:
            return thought
        others = [*self._others(), *self._words_of(close)]
        over = self._before(lark.terminal(without(others)), calls.section + calls.opening)
        return f"{thought} | {over} {calls.named}"

    def _before(self, text: str, marker: str) -> str:
        return self._lark.before_pieces(text, first_pieces(self._lark, marker.lstrip()))

    # --- free text ---

    def _free(self) -> str:
        """An answer that is no call."""
        row, lark = self._row, self._lark
        if not row.bare:
            return self._text(self._words())
        never = r"\s*\{\s*\"(?:name|type|id)\""
        if row.codec == "pythonic":
            names = "|".join(regex_of(tool.name) for tool in self._tools)
            never = rf"\s*\[\s*(?:{names})\s*\("
        text = f"{without(self._words())} & ~{slashed(f'(?:{never}){ANYTHING}')}"
        return lark.terminal(text)

    def _text(self, never: Sequence[str]) -> str:
        """Text without these words, with marks in it that are dropped from it."""
        text = self._lark.terminal(without(never))
        dropped = [
            self._lark.spelled(mark)
            for mark in self._row.dropped
            if (pieces := self._lark.pieces(mark)) and pieces[0].is_token
        ]
        if not dropped:
            return text
        return self._lark.rule(f"{text} (({' | '.join(dropped)}) {text})*")

    def _words(self) -> list[str]:
        """What a call may be opened with, as far as a text can have it."""
        row = self._row
        found: list[str] = []
        for opening in (row.section_open, row.call_open, *row.also_open):
            if opening and not opening.startswith("{"):
                found += self._words_of(opening)
        return list(dict.fromkeys(found))

    def _others(self) -> list[str]:
        """What a call may be opened with besides what it is opened with by the grammar."""
        assert self._calls is not None
        own = self._words_of(self._calls.section + self._calls.opening)
        return [word for word in self._words() if word not in own]

    def _words_of(self, opening: str) -> list[str]:
        first = first_pieces(self._lark, self._told(opening.lstrip()))[0]
        return [] if first.is_token else [first.text]

    def _told(self, opening: str) -> str:
        """An opening with what tells it from a word of a text."""
        return opening + "[" if opening[0].isalnum() and self._row.array else opening

    # --- turns of messages in channels ---

    def _messages(self, reasoning: ReasoningState) -> str:
        """Harmony: messages of reasoning and remarks, then an answer or a call."""
        lark = self._lark
        free = lark.terminal(slashed(ANYTHING))
        over = f"{self._before(free, '<|end|>')} {lark.spelled('<|start|>assistant')}"
        kinds = '("commentary" | "analysis")' if reasoning != "closed" else '"commentary"'
        channel, message = lark.spelled("<|channel|>"), lark.spelled("<|message|>")
        last = lark.rule(" | ".join(self._last(free)))
        several = lark.rule(f"({channel} {kinds} {message} {over})* {last}")
        return f"{over} {several}" if reasoning == "inside" else several

    def _last(self, free: str) -> list[str]:
        lark, answer = self._lark, self._turn.answer
        found = []
        if self._calls is None or self._optional:
            said = free if answer is None else _answer(lark, answer, self._hold)
            found.append(f"{lark.spelled('<|channel|>final<|message|>')} {said}")
        if self._calls is not None:
            found.append(f"{lark.spelled(self._calls.opening)} {self._calls.named}")
        return found
