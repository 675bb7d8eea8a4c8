"""Grammars of turns against the parsers of their dialects."""

import json
import re
from functools import cache

import numpy as np
import pytest
from grammar_walks import Speaker, calls_of, text_of
from tiny_models import run

from antiphon.engine.grammar.compiler import GrammarCompiler
from antiphon.engine.grammar.errors import GrammarRefused
from antiphon.engine.grammar.matcher import GrammarMatcher
from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.dialects.spelling import spelled
from antiphon.formats.grammars.calls import Unenforceable
from antiphon.formats.grammars.turn import ReasoningState, turn_grammars
from antiphon.schemas import validate_answer
from antiphon.turn import (
    AnswerFormat,
    Call,
    ReasoningDelta,
    TextGrammar,
    Tool,
    ToolChoice,
    Turn,
)

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"enum": ["c", "f", None]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        "deep": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"a": {"type": "boolean"}, "b": {"$ref": "#/$defs/tag"}},
                    "required": ["a", "b"],
                    "additionalProperties": False,
                },
            ]
        },
        "when": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{1,3}$"},
        "either": {"type": ["string", "number"], "maxLength": 3},
    },
    "required": ["city", "days", "unit", "tags", "deep", "when", "code", "either"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "maxLength": 5}},
}
ARGUMENTS = {
    "city": "Oslo",
    "days": 3,
    "unit": "c",
    "tags": ["a", "b"],
    "deep": None,
    "when": "2024-02-29",
    "code": "AB12",
    "either": 1.5,
}
WEATHER = Tool("get_weather", "", WEATHER_SCHEMA, strict=True)
LOOSE = Tool("get", "", {"type": "object", "properties": {"q": {"type": "string"}}})
NOTE = Tool("note", "", custom=True)
SUM = Tool(
    "sum", "", custom=True, grammar=TextGrammar("lark", 'start: N ("+" N)*\nN: /[0-9]{1,3}/')
)
CODE = Tool("code", "", custom=True, grammar=TextGrammar("regex", "[a-z]{2,4}/[0-9]"))
PING = Tool("ping")
TOOLS = (WEATHER, LOOSE, NOTE, SUM, CODE, PING)
UNICODE = Tool("wétter_日本", "", {"type": "object", "properties": {}}, strict=False)

ROWS = [
    pytest.param(row, marks, id=f"{name}-{'tokens' if marks else 'text'}")
    for name, row in DIALECTS.items()
    for marks in (True, False)
]
AUTO, REQUIRED = ToolChoice(), ToolChoice("required")
FINAL = "<|channel|>final<|message|>"


@cache
def speaker(name: str, marks: bool) -> tuple[Speaker, GrammarCompiler]:
    found = Speaker(DIALECTS[name], marks=marks)
    return found, found.compiler()


class Talk:
    """A turn in a dialect."""

    def __init__(
        self,
        row: Dialect,
        marks: bool,
        *tools: Tool,
        choice: ToolChoice = AUTO,
        answer: AnswerFormat | None = None,
        parallel: bool = True,
        reasoning: ReasoningState = "closed",
    ) -> None:
        self.speaker, self._compiler = speaker(row.name, marks)
        vocabulary = self.speaker.vocabulary
        turn = Turn((), tools=tools, tool_choice=choice, parallel_calls=parallel, answer=answer)
        self.grammars = turn_grammars(
            row, turn, marks=vocabulary.marks, ends=vocabulary.ends, reasoning=reasoning
        )

    @property
    def matcher(self) -> GrammarMatcher:
        return run(self._compiler.compile(self.grammars[0]))

    def allows(self, text: str) -> bool:
        """Whether the whole of the turn may be this."""
        matcher = self.matcher
        return self.speaker.follows(matcher, text) and matcher.is_complete

    def begins(self, text: str) -> bool:
        """Whether the turn may begin like this."""
        return self.speaker.follows(self.matcher, text)


def in_turn(row: Dialect, text: str) -> str:
    return FINAL + text if row.channels else text


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_calls_as_the_family_writes_them_may_be_made(row: Dialect, marks: bool):
    talk = Talk(row, marks, *TOOLS, choice=REQUIRED)
    calls = [
        Call("abcdef123", "get_weather", json.dumps(ARGUMENTS)),
        Call("abcdef124", "ping", "{}"),
        Call("abcdef125", "get", '{"q": "a b", "n": 1}'),
        Call("abcdef126", "note", "hi\nthere", custom=True),
    ]
    for call in calls:
        assert talk.allows(spelled(row, [call])), call.name
    # In channels the first one ends the turn.
    assert talk.allows(spelled(row, calls)) == (row.parallel or (row.channels and marks))


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_a_turn_of_required_calls_parses_and_fits_whatever_is_drawn(row: Dialect, marks: bool):
    rng = np.random.default_rng(7)
    done = 0
    for number in range(6):
        talk = Talk(row, marks, *TOOLS, choice=REQUIRED, parallel=number % 2 == 0)
        said = talk.speaker.improvise(talk.matcher, rng)
        if said is None:
            continue
        done += 1
        calls = calls_of(talk.speaker.heard(said, TOOLS))
        assert calls and (number % 2 == 0 or len(calls) == 1)
        for name, arguments in calls:
            match name:
                case "get_weather":
                    wrong = validate_answer(arguments, WEATHER_SCHEMA)
                    assert wrong is None, (wrong, talk.speaker.text(said))
                case "get":
                    assert isinstance(json.loads(arguments), dict)
                case "ping":
                    assert json.loads(arguments) == {}
                case "sum":
                    assert re.fullmatch(r"[0-9]{1,3}(\+[0-9]{1,3})*", arguments)
                case "code":
                    assert re.fullmatch(r"[a-z]{2,4}/[0-9]", arguments)
    assert done


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_no_other_tool_can_be_called(row: Dialect, marks: bool):
    talk = Talk(row, marks, LOOSE, PING)
    for call in (Call("abcdef123", "other", "{}"), Call("abcdef123", "get_weather", "{}")):
        text = spelled(row, [call])
        if talk.begins(text):  # Then it is text for the parser as well.
            tokens = [*talk.speaker.tokens(text), *talk.speaker.vocabulary.ends][: len(text)]
            assert calls_of(talk.speaker.heard(tokens, (LOOSE, PING))) == []
    allowed = ToolChoice(allowed=frozenset({"ping"}))
    narrow = Talk(row, marks, LOOSE, PING, choice=allowed)
    assert narrow.allows(spelled(row, [Call("abcdef123", "ping", "{}")]))
    assert row.codec == "pythonic" or not narrow.begins(
        spelled(row, [Call("abcdef123", "get", '{"q": "a"}')])
    )


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_a_text_may_be_said_instead_of_a_call_or_before_it(row: Dialect, marks: bool):
    talk = Talk(row, marks, *TOOLS)
    call = spelled(row, [Call("abcdef123", "ping", "{}")])
    assert talk.allows(call)
    assert talk.allows(in_turn(row, "It is 5 < 6, {so} [what]?\n\nBye. 😀"))
    if row.channels:
        before = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        assert talk.allows(before + call)
    elif not row.bare:
        assert talk.allows("I look.\n" + call)
    assert not Talk(row, marks, *TOOLS, choice=REQUIRED).begins(in_turn(row, "Text"))


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_strict_arguments_fit_and_others_do_not(row: Dialect, marks: bool):
    talk = Talk(row, marks, WEATHER, choice=REQUIRED)
    for change in (
        {"days": 100},
        {"unit": "k"},
        {"tags": ["a", "b", "c"]},
        {"when": "2023-02-29"},
        {"code": "ab12"},
        {"city": "far too long a name"},
        {"days": "three"},
        {"more": 1},
    ):
        wrong = json.dumps(ARGUMENTS | change)
        assert not talk.allows(spelled(row, [Call("abcdef123", "get_weather", wrong)])), change
    fewer = json.dumps({key: value for key, value in ARGUMENTS.items() if key != "when"})
    assert not talk.allows(spelled(row, [Call("abcdef123", "get_weather", fewer)]))


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_names_are_whole_and_of_any_script(row: Dialect, marks: bool):
    talk = Talk(row, marks, LOOSE, WEATHER, UNICODE, choice=REQUIRED)
    assert talk.allows(spelled(row, [Call("abcdef123", "get", "{}")]))
    if row.codec != "pythonic":
        assert talk.allows(spelled(row, [Call("abcdef123", UNICODE.name, "{}")]))
    assert not talk.begins(spelled(row, [Call("abcdef123", "get_wea", "{}")]))


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_one_call_alone_where_several_may_not_be_made(row: Dialect, marks: bool):
    talk = Talk(row, marks, PING, choice=REQUIRED, parallel=False)
    call = Call("abcdef123", "ping", "{}")
    assert talk.allows(spelled(row, [call]))
    assert row.channels or not talk.begins(spelled(row, [call, call]))  # There, it ends the turn.


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_an_answer_has_its_form_after_reasoning(row: Dialect, marks: bool):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    answer = AnswerFormat(schema, strict=True)
    closed = Talk(row, marks, answer=answer)
    assert closed.allows(in_turn(row, '{"n": 1}'))
    assert not closed.begins(in_turn(row, '{"n": "x"'))
    assert not closed.begins(in_turn(row, "Sure"))
    if row.channels:
        text = "let me see<|end|><|start|>assistant" + FINAL + '{"n": 1}'
        assert Talk(row, marks, answer=answer, reasoning="inside").allows(text)
        assert Talk(row, marks, answer=answer, reasoning="allowed").allows(
            "<|channel|>analysis<|message|>" + text
        )
        assert not closed.begins("<|channel|>analysis")
    elif row.reasoning is not None:
        text = f'let {{me}} see{row.reasoning.close}\n\n{{"n": 1}}'
        inside = Talk(row, marks, answer=answer, reasoning="inside")
        assert inside.allows(text)
        assert not inside.allows("let me see")
        allowed = Talk(row, marks, answer=answer, reasoning="allowed")
        assert allowed.allows(row.reasoning.open + text)
        assert allowed.allows('{"n": 1}')
        assert not closed.begins(row.reasoning.open + text)


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_an_answer_or_a_call(row: Dialect, marks: bool):
    talk = Talk(row, marks, PING, answer=AnswerFormat())
    assert talk.allows(in_turn(row, '{"any": ["thing"]}'))
    call = spelled(row, [Call("abcdef123", "ping", "{}")])
    if row.bare:  # The mark alone tells it from an answer.
        call = row.section_open + call
    assert talk.allows(call)
    assert not talk.begins(in_turn(row, "text"))
    never = Talk(row, marks, PING, answer=AnswerFormat(), choice=ToolChoice("none"))
    assert not never.begins(call) or row.bare


@pytest.mark.parametrize(("row", "marks"), ROWS)
def test_reasoning_may_go_over_into_a_call(row: Dialect, marks: bool):
    call = spelled(row, [Call("abcdef123", "ping", "{}")])
    if row.reasoning is None or row.channels or row.bare:
        pytest.skip("Reasoning ends first.")
    talk = Talk(row, marks, PING, choice=REQUIRED, reasoning="inside")
    for text in (f"I call it.\n{call}", f"I call it.{row.reasoning.close}\n\n{call}"):
        assert talk.allows(text)
        tokens = [*talk.speaker.tokens(text), min(talk.speaker.vocabulary.ends)]
        deltas = talk.speaker.heard(tokens, (PING,), in_reasoning=True)
        assert [name for name, _ in calls_of(deltas)] == ["ping"]
        assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "I call it."
        assert text_of(deltas) == ""


@pytest.mark.parametrize("name", ["hermes", "gemma-4", "qwen3-coder", "llama-4"])
def test_arguments_that_cannot_be_held_to_their_schema_are_refused(name: str):
    row = DIALECTS[name]
    schema = {
        "$id": "urn:a",
        "$ref": "#/$defs/a",
        "$defs": WEATHER_SCHEMA["$defs"] | {"a": {**WEATHER_SCHEMA, "title": "A"}},
    }
    plain = Tool("plain", "", schema, strict=True)
    assert Talk(row, False, plain, choice=REQUIRED).matcher
    odd = Tool("odd", "", {**WEATHER_SCHEMA, "allOf": [{"required": ["city"]}]}, strict=True)
    if row.codec in ("params", "pythonic"):
        with pytest.raises(Unenforceable, match="odd"):
            Talk(row, False, odd, choice=REQUIRED)
    else:
        assert Talk(row, False, odd, choice=REQUIRED).matcher


def test_nothing_is_held_where_anything_may_be_said():
    row = DIALECTS["hermes"]
    assert Talk(row, True).grammars == ()
    assert Talk(row, True, PING, choice=ToolChoice("none")).grammars == ()


def test_a_schema_that_is_not_strict_is_held_to_as_far_as_it_goes():
    schema = {
        "type": "object",
        "properties": {
            "a": {"not": {"type": "string"}},
            "b": {"type": "integer"},
            "c": {"type": "string", "format": "phone"},
        },
        "required": ["a", "b"],
    }
    found, compiler = speaker("hermes", True)
    talk = Talk(DIALECTS["hermes"], True, answer=AnswerFormat(schema))
    with pytest.raises(GrammarRefused, match="not"):
        run(compiler.compile(talk.grammars[0]))
    matcher = run(compiler.compile(talk.grammars[1]))
    assert found.follows(matcher, '{"a": "x", "b": 1')
    assert not found.follows(run(compiler.compile(talk.grammars[1])), '{"a": "x", "b": "y"')
    assert found.follows(run(compiler.compile(talk.grammars[2])), '{"b": "y"}')
    assert (
        len(Talk(DIALECTS["hermes"], True, answer=AnswerFormat(schema, strict=True)).grammars) == 1
    )


def test_a_grammar_of_a_client_cannot_break_out_of_its_tool():
    inner = TextGrammar("lark", 'start: "a" }\nevil: %json {"type": "string"}\nr9: {')
    tool = Tool("own", "", custom=True, grammar=inner)
    _, compiler = speaker("hermes", True)
    talk = Talk(DIALECTS["hermes"], True, tool, choice=REQUIRED)
    with pytest.raises(GrammarRefused):
        run(compiler.compile(talk.grammars[0]))
