"""Calls, results and reasoning, grouped and put as texts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.formats.arguments import call_json
from antiphon.formats.calls import (
    Result,
    Said,
    as_text,
    called,
    grouped,
    named_ids,
    one_by_one,
    text_apart,
    without_reasoning,
)
from antiphon.turn import Call, CallResult, Message, Reasoning

USER = Message("user", "U")
SPOKEN = Message("assistant", "S")


def call(number: int, name: str = "f", arguments: str = "{}") -> Call:
    return Call(f"call{number:05}", name, arguments)


# --- grouping ---


def test_texts_alone_are_messages_as_they_were():
    entries = [Message("system", "A"), USER, SPOKEN, SPOKEN, USER]
    assert grouped(entries) == entries


def test_calls_in_a_row_are_made_at_once_by_the_text_before_them():
    assert grouped([USER, SPOKEN, Call("a", "f", "1"), Call("b", "g", "2", custom=True)]) == [
        USER,
        Said("S", "", (Call("call00001", "f", "1"), Call("call00002", "g", "2", custom=True))),
    ]


def test_calls_without_a_text_before_them_have_none():
    assert grouped([USER, Call("a", "f", "1")]) == [USER, Said("", "", (call(1, "f", "1"),))]


def test_a_text_after_calls_is_a_message_of_its_own():
    assert grouped([Call("a", "f", "{}"), SPOKEN]) == [Said("", "", (call(1),)), SPOKEN]


def test_results_have_the_id_and_the_name_of_their_calls():
    entries = [
        Call("x", "f", "{}"),
        Call("y", "g", "{}"),
        CallResult("y", "2"),
        CallResult("x", "1"),
        Call("z", "f", "{}"),
        CallResult("z", "3"),
    ]
    assert grouped(entries) == [
        Said("", "", (call(1), call(2, "g"))),
        Result("call00002", "g", "2"),
        Result("call00001", "f", "1"),
        Said("", "", (call(3),)),
        Result("call00003", "f", "3"),
    ]


def test_calls_of_one_id_are_told_apart_and_a_result_is_that_of_the_last():
    entries = [Call("x", "f", "{}"), CallResult("x", "1"), Call("x", "g", "{}")]
    assert grouped([*entries, CallResult("x", "2")]) == [
        Said("", "", (call(1),)),
        Result("call00001", "f", "1"),
        Said("", "", (call(2, "g"),)),
        Result("call00002", "g", "2"),
    ]


def test_a_result_without_its_call_is_told_by_the_user():
    assert grouped([CallResult("x", "3 C")]) == [Message("user", "Result: 3 C")]


def test_reasoning_goes_to_what_the_assistant_says_next():
    assert grouped([USER, Reasoning("R"), Reasoning("T"), SPOKEN, Call("a", "f", "{}")]) == [
        USER,
        Said("S", "R\n\nT", (call(1),)),
    ]
    assert grouped([Reasoning("R"), Call("a", "f", "{}")]) == [Said("", "R", (call(1),))]


def test_reasoning_between_calls_parts_them():
    entries = [Call("a", "f", "{}"), Reasoning("R"), Call("b", "f", "{}")]
    assert grouped(entries) == [Said("", "", (call(1),)), Said("", "R", (call(2),))]


@pytest.mark.parametrize("following", [[], [USER], [CallResult("x", "1")]])
def test_reasoning_that_nothing_came_of_stays_where_it_was(following):
    entries = [USER, Reasoning("R"), *following]
    assert grouped(entries)[:2] == [USER, Said("", "R")]
    assert len(grouped(entries)) == 2 + len(following)


# --- what templates cannot have ---


def test_reasoning_can_be_left_out():
    messages = [USER, Said("S", "R"), Said("", "R"), Said("T", "R", (call(1),)), Said("", "R")]
    assert without_reasoning(messages) == [USER, SPOKEN, Said("T", "", (call(1),))]


def test_calls_and_results_as_texts():
    messages = [
        USER,
        Said("S", "", (call(1, "f", '{"a": 1}'), call(2, "now", ""))),
        Result("call00001", "f", "3 C"),
        Result("call00002", "now", "noon"),
        SPOKEN,
        Said("", "R", (call(3),)),
        Result("call00003", "f", ""),
        USER,
    ]
    assert as_text(messages, called) == [
        USER,
        Message("assistant", 'S\n\nCalled f with {"a": 1}\n\nCalled now'),
        Message("user", "Result of f: 3 C\n\nResult of now: noon"),
        SPOKEN,
        Said("Called f with {}", "R"),
        Message("user", "Result of f: "),
        USER,
    ]


def test_a_text_can_be_parted_from_its_calls():
    messages = [Said("S", "", (call(1),)), Said("S", "R", (call(2),)), Said("", "R", (call(3),))]
    assert text_apart([USER, *messages]) == [
        USER,
        SPOKEN,
        Said("", "", (call(1),)),
        Said("S", "R"),
        Said("", "", (call(2),)),
        Said("", "R", (call(3),)),
    ]


def test_calls_can_be_made_one_by_one_each_with_its_result():
    messages = [
        Said("S", "R", (call(1), call(2, "g"), call(3))),
        Result("call00002", "g", "2"),
        Result("call00001", "f", "1"),
        Result("call00000", "f", "0"),
        USER,
        Result("call00003", "f", "3"),
    ]
    assert one_by_one([USER, *messages]) == [
        USER,
        Said("S", "R", (call(1),)),
        Result("call00001", "f", "1"),
        Said("", "", (call(2, "g"),)),
        Result("call00002", "g", "2"),
        Said("", "", (call(3),)),
        Result("call00000", "f", "0"),
        USER,
        Result("call00003", "f", "3"),
    ]


def test_ids_can_have_the_name_and_a_number_that_counts_on():
    messages = [
        Said("S", "R", (call(1), call(2, "g"))),
        Result("call00002", "g", "2"),
        USER,
        Said("", "", (call(3),)),
    ]
    assert named_ids(messages) == [
        Said("S", "R", (Call("functions.f:0", "f", "{}"), Call("functions.g:1", "g", "{}"))),
        Result("functions.g:1", "g", "2"),
        USER,
        Said("", "", (Call("functions.f:2", "f", "{}"),)),
    ]


# --- arguments ---


def shown(arguments: str, form: Any = "object", *, custom: bool = False) -> Any:
    made = call_json(Call("call00001", "f", arguments, custom), form, str)
    assert (made["id"], made["type"], made["function"]["name"]) == ("call00001", "function", "f")
    return made["function"]["arguments"]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"city": "Oslo", "days": [1, 2.5, null, true]}', None),
        ("{}", {}),
        ("", {}),
        (" ", {}),
        (' {"a": {}}\n', {"a": {}}),
    ],
)
def test_arguments_are_an_object(arguments, value):
    assert shown(arguments) == (json.loads(arguments) if value is None else value)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "Os',
        "[1]",
        '"text"',
        "3",
        "null",
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "1" * 5000 + "}",
        '{"a": ' + "[" * 65 + "]" * 65 + "}",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=lambda text: text[:16],
)
def test_arguments_that_are_no_object_or_lose_something_in_one_are_shown_as_they_are(arguments):
    assert shown(arguments) == {"arguments": arguments}


def test_what_a_custom_tool_was_given_is_its_input():
    assert shown("ls", custom=True) == {"input": "ls"}
    assert shown('{"a": 1}', custom=True) == {"input": '{"a": 1}'}
    assert shown('l"s', "json", custom=True) == '{"input": "l\\"s"}'


@pytest.mark.parametrize("arguments", ['{"a":  1}', '{"city": "Os', "[1]"])
def test_arguments_as_json_are_the_text_that_the_model_wrote(arguments):
    assert shown(arguments, "json") == arguments


def test_no_arguments_are_an_empty_object_in_json():
    assert shown("", "json") == "{}"


def test_every_text_of_a_call_is_written_by_the_one_who_guards():
    arguments = '{"k\\u003c": ["v", {"inner": "w"}], "n": 1}'
    made = call_json(Call("id", "f", arguments), "object", lambda text: f"[{text}]")
    assert made["id"] == "[id]"
    assert made["function"] == {
        "name": "[f]",
        "arguments": {"[k<]": ["[v]", {"[inner]": "[w]"}], "[n]": 1},
    }
    as_json = call_json(Call("id", "f", "{}"), "json", lambda text: f"[{text}]")
    assert as_json["function"] == {"name": "[f]", "arguments": "[{}]"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_any_object_comes_through_unchanged(arguments):
    assert shown(json.dumps(arguments)) == arguments


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=20))
def test_any_text_is_shown_somehow(arguments):
    value = shown(arguments)
    assert isinstance(value, dict)
    assert (
        value == {"arguments": arguments} or not arguments.strip() or json.loads(arguments) == value
    )
