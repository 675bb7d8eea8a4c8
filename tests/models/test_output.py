"""Tokens made into deltas."""

from collections.abc import Sequence

import pytest
from grammar_walks import Speaker
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import byte_tokens

from antiphon.engine.sequence import SampledToken
from antiphon.errors import InvalidToolCall
from antiphon.formats.dialects.families import DIALECTS
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    ReasoningDelta,
    TextDelta,
    TextGrammar,
    Tool,
)

WEATHER = Tool("get_weather", "", {"type": "object"})
SUM = Tool("sum", "", custom=True, grammar=TextGrammar("regex", "[0-9]+"))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
SPEAKER = Speaker(DIALECTS["hermes"])
END = SPEAKER.tokenizer.id_of("<|im_end|>")
assert END is not None


class Heard:
    """What comes of an output, token by token."""

    def __init__(self, *tools: Tool, dialect: str = "hermes", in_reasoning: bool = False) -> None:
        self.speaker = SPEAKER if dialect == "hermes" else Speaker(DIALECTS[dialect])
        self.reader = self.speaker.reader(tools, in_reasoning=in_reasoning)
        self.deltas: list[Delta] = []

    def tokens(self, tokens: Sequence[int], *, logprobs: bool = False) -> "Heard":
        for token in tokens:
            self.deltas += self.reader.feed([SampledToken(token, -1.0)], logprobs=logprobs)
        return self

    def says(self, text: str, *, logprobs: bool = False) -> "Heard":
        return self.tokens(self.speaker.tokens(text), logprobs=logprobs)

    def ends(self, reason: str = "stop") -> list[Delta]:
        if reason == "stop":
            self.tokens([END])
        self.deltas += self.reader.finish(reason)
        return self.deltas


def texts(deltas: Sequence[Delta], kind: type[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def test_reasoning_text_and_calls_are_told_apart():
    deltas = Heard(WEATHER).says(f"<think>\nhm\n</think>\n\nhello {CALL}").ends()
    assert texts(deltas, ReasoningDelta) == "hm"
    assert texts(deltas, TextDelta) == "hello"
    assert [d.name for d in deltas if isinstance(d, CallStart)] == ["get_weather"]
    assert texts(deltas, CallArguments) == '{"city": "Oslo"}'
    assert isinstance(deltas[-1], CallEnd)


def test_tokens_of_reasoning_are_counted_with_the_marks_around_them():
    heard = Heard(WEATHER).says("<think>hm</think>hello world")
    heard.ends()
    thought = SPEAKER.tokens("<think>hm</think>")
    assert heard.reader.num_reasoning == len(thought)
    assert heard.reader.num_tokens == len(thought) + len(SPEAKER.tokens("hello world")) + 1


def test_reasoning_that_began_with_the_prompt_is_counted_from_the_first_token():
    heard = Heard(in_reasoning=True).says("hm")
    heard.ends("length")
    assert heard.reader.num_reasoning == heard.reader.num_tokens == len(SPEAKER.tokens("hm"))


def test_without_reasoning_no_token_is_counted_as_it():
    heard = Heard(WEATHER).says(f"hello {CALL}")
    heard.ends()
    assert heard.reader.num_reasoning == 0


def test_a_call_of_another_tool_is_an_error_that_names_it():
    heard = Heard(SUM)
    with pytest.raises(InvalidToolCall, match="'get_weather', which it may not call"):
        heard.says(CALL).ends()
    assert not any(isinstance(delta, CallStart) for delta in heard.deltas)


def test_without_tools_a_call_is_text():
    assert texts(Heard().says(CALL).ends(), TextDelta) == CALL


def test_an_answer_that_stops_before_a_call_has_a_name_is_an_error():
    with pytest.raises(InvalidToolCall, match="ended its turn inside of a call"):
        Heard(WEATHER).says('<tool_call>\n{"na').ends()


def test_an_answer_that_is_cut_before_a_call_has_a_name_is_none():
    deltas = Heard(WEATHER).says('hello<tool_call>\n{"na').ends("length")
    assert texts(deltas, TextDelta) == "hello"


def test_a_call_that_is_cut_stays_open():
    deltas = Heard(WEATHER).says(CALL.partition("Os")[0]).ends("length")
    assert texts(deltas, CallArguments) == '{"city": "'
    assert not any(isinstance(delta, CallEnd) for delta in deltas)


OPEN_INPUT = '<tool_call>\n{"name": "sum", "arguments": <custom_tool_input>\n12'


def test_a_custom_tool_s_input_that_the_turn_ends_with_is_whole():
    deltas = Heard(SUM).says(OPEN_INPUT).ends()
    assert texts(deltas, CallArguments) == "12"
    assert isinstance(deltas[-1], CallEnd)


def test_a_custom_tool_s_input_that_is_cut_is_not():
    deltas = Heard(SUM).says(OPEN_INPUT).ends("length")
    assert texts(deltas, CallArguments) == "12"
    assert not any(isinstance(delta, CallEnd) for delta in deltas)


def test_a_stop_token_that_closes_a_call_does_so():
    heard = Heard(WEATHER, dialect="harmony")
    call = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"a": 1}'
    heard.says(call)
    heard.tokens([heard.speaker.tokenizer.id_of("<|call|>")])
    heard.deltas += heard.reader.finish("stop")
    assert texts(heard.deltas, CallArguments) == '{"a": 1}'
    assert isinstance(heard.deltas[-1], CallEnd)


def test_a_mark_ends_a_torn_character():
    torn = byte_tokens(SPEAKER.tokenizer, "é".encode())[:1]
    deltas = Heard(WEATHER).tokens(torn).says(CALL).ends()
    assert texts(deltas, TextDelta) == "\ufffd"
    assert texts(deltas, CallArguments) == '{"city": "Oslo"}'


def test_every_token_of_a_text_is_reported_with_it_and_none_of_a_call():
    deltas = Heard(WEATHER).says(f"hello é world{CALL}", logprobs=True).ends()
    reported = [token for d in deltas if isinstance(d, TextDelta) for token in d.logprobs]
    assert b"".join(token.data for token in reported) == "hello é world".encode()


def test_nothing_is_reported_unless_it_is_asked_for():
    deltas = Heard(WEATHER).says("hello").ends()
    assert all(not d.logprobs for d in deltas if isinstance(d, TextDelta))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_comes_through_as_it_is(text):
    deltas = Heard().tokens(SPEAKER.tokenizer.encode(["", f"a{text}z"])).ends()
    said = texts(deltas, TextDelta)
    if "think>" not in text:
        assert said == f"a{text}z"
