"""What holds a turn to its word: the grammar of its calls and its answer, and of its reasoning."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import cached_property
from typing import Any

from antiphon.engine.grammar.compiler import GrammarCompiler
from antiphon.engine.grammar.errors import GrammarRefused
from antiphon.engine.grammar.thoughts import ThoughtLimit, ThoughtMarks
from antiphon.engine.grammar.vocabulary import Vocabulary
from antiphon.engine.sequence import Grammar
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.errors import InvalidJSONSchema
from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.grammars.calls import Unenforceable, own_grammar
from antiphon.formats.grammars.lark import Lark
from antiphon.formats.grammars.turn import (
    ReasoningState,
    answer_grammar,
    arguments_grammar,
    callable_tools,
    turn_grammars,
)
from antiphon.models.culprits import culprit
from antiphon.turn import Tool, Turn

_ANSWER = "text.format.schema"


class Constraints:
    """Makes grammars of turns in a dialect, for a model that scores `vocab_size` tokens.

    `marks` are the tokens that are marks of the dialect, by their ids. Everything that takes a
    while is done on `threads`. Close it.
    """

    def __init__(
        self,
        dialect: Dialect,
        tokenizer: PromptTokenizer,
        marks: Mapping[int, str],
        ends: frozenset[int],
        vocab_size: int,
        threads: Executor,
    ) -> None:
        self._dialect = dialect
        self._tokenizer = tokenizer
        self._marks = marks
        self._ends = ends
        self._vocab_size = vocab_size
        self._threads = threads
        # At once, as it takes a second, and nobody waits for it yet.
        self._made = threads.submit(self._make)

    async def of(
        self, turn: Turn, reasoning: ReasoningState, max_reasoning: int | None
    ) -> Grammar | None:
        """What a turn is held to; None if anything may be said.

        `max_reasoning` is how many tokens of reasoning there may be, None for any number. Raises
        `InvalidJSONSchema` where a schema or a grammar is more than can be held to.
        """
        inner = await self._compiled(turn, reasoning)
        if max_reasoning is None:
            return inner
        loop = asyncio.get_running_loop()
        marks = await loop.run_in_executor(self._threads, lambda: self._thought_marks)
        if marks is None:
            return inner
        return ThoughtLimit(
            inner,
            marks,
            self._spell,
            self._vocab_size,
            max_tokens=max_reasoning,
            inside=reasoning == "inside",
        )

    def close(self) -> None:
        """Compile no more."""
        if not self._made.cancel():
            _, compiler = self._made.result()
            compiler.close()

    def _make(self) -> tuple[Vocabulary, GrammarCompiler]:
        vocabulary = Vocabulary(self._tokenizer, self._vocab_size, self._ends, self._marks.values())
        return vocabulary, GrammarCompiler(vocabulary)

    async def _compiled(self, turn: Turn, reasoning: ReasoningState) -> Grammar | None:
        if turn.answer is None and not callable_tools(turn):
            return None
        vocabulary, compiler = await asyncio.wrap_future(self._made)
        loop = asyncio.get_running_loop()
        try:
            grammars = await loop.run_in_executor(
                self._threads, self._written, turn, reasoning, vocabulary
            )
        except Unenforceable as error:
            tool = next(tool for tool in turn.tools if tool.name == error.tool)
            raise _refused(
                _place(tool), f"{error}, which this model's way of calling needs"
            ) from error
        refused: GrammarRefused | None = None
        for grammar in grammars:
            try:
                return await compiler.compile(grammar)
            except GrammarRefused as error:
                refused = error
        assert refused is not None
        raise await self._blamed(turn, compiler, refused)

    def _written(
        self, turn: Turn, reasoning: ReasoningState, vocabulary: Vocabulary
    ) -> tuple[str, ...]:
        return turn_grammars(
            self._dialect, turn, marks=vocabulary.marks, ends=vocabulary.ends, reasoning=reasoning
        )

    async def _blamed(
        self, turn: Turn, compiler: GrammarCompiler, refused: GrammarRefused
    ) -> InvalidJSONSchema:
        """The part of a turn that is to blame: the first that cannot be compiled by itself."""
        parts = await asyncio.get_running_loop().run_in_executor(self._threads, _parts, turn)
        for place, grammar, schema in parts:
            try:
                await compiler.compile(grammar)
            except GrammarRefused as error:
                if schema is None:
                    return _refused(place, str(error))
                return _refused(place, str(await culprit(compiler, schema, str(error))))
        return _refused("tools" if turn.tools else _ANSWER, f"all of it together: {refused}")

    @cached_property
    def _thought_marks(self) -> ThoughtMarks | None:
        marks = self._dialect.reasoning
        if marks is None or self._dialect.channels:
            return None
        begin, end = marks.open.strip(), marks.close.strip()
        ids = {text: number for number, text in self._marks.items()}
        closing: list[int] = []
        for text, is_token in Lark(ids, ()).pieces(end):
            closing += [ids[text]] if is_token else self._tokenizer.encode(["", text])
        return ThoughtMarks(begin.encode(), end.encode(), tuple(closing))

    def _spell(self, token: int) -> bytes:
        mark = self._marks.get(token)
        return mark.encode() if mark is not None else self._tokenizer.bytes_of(token)


def _parts(turn: Turn) -> list[tuple[str, str, Mapping[str, Any] | None]]:
    """The parts of a turn that others wrote, each with its place, its grammar, and its schema if it
    is one."""
    parts: list[tuple[str, str, Mapping[str, Any] | None]] = []
    for tool in callable_tools(turn):
        if tool.grammar is not None:
            parts.append((_place(tool), own_grammar(tool.grammar), None))
        elif tool.strict:
            parts.append((_place(tool), arguments_grammar(tool), tool.parameters))
    if turn.answer is not None:
        parts.append((_ANSWER, answer_grammar(turn.answer), turn.answer.schema))
    return parts


def _place(tool: Tool) -> str:
    if not tool.place:
        return "tools"
    return f"{tool.place}.{'format.definition' if tool.custom else 'parameters'}"


def _refused(place: str, why: str) -> InvalidJSONSchema:
    return InvalidJSONSchema(f"Invalid '{place}': {why}.", param=place)
