"""What must hold of the items of a request together."""

from typing import Any

import pytest

from antiphon.errors import InvalidValue, MissingParameter
from antiphon.responses.items import normalized
from antiphon.responses.structure import arranged

CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "3 C"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_1", "name": "sh", "input": "ls"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a b"}
SEARCH = {"type": "tool_search_call", "call_id": "call_1", "arguments": {"query": "a"}}
FOUND = {"type": "tool_search_output", "call_id": "call_1", "tools": []}


def matched(
    *items: dict[str, Any], history: tuple[dict[str, Any], ...] = (), strict: bool = False
) -> list[Any]:
    return arranged(normalized(history), normalized(items), strict=strict)


def refused(
    *items: dict[str, Any], history: tuple[dict[str, Any], ...] = (), strict: bool = False
) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        matched(*items, history=history, strict=strict)
    return caught.value


def test_tool_08_a_call_and_its_output_match_in_the_input_and_across_the_history():
    assert [item["call_id"] for item in matched(CALL, OUTPUT)] == ["call_1", "call_1"]
    assert [item["output"] for item in matched(OUTPUT, history=(CALL,))] == ["3 C"]
    assert len(matched(CUSTOM, CUSTOM_OUTPUT)) == 2


def test_tool_08_an_output_of_an_unknown_call_is_refused_at_its_place():
    error = refused({"role": "user", "content": "x"}, {**OUTPUT, "call_id": "call_zz"})
    assert error.param == "input[1].call_id"
    assert error.message == "No tool call found for function call output with call_id 'call_zz'."


def test_tool_08_an_output_before_its_call_is_refused():
    assert refused(OUTPUT, CALL).param == "input[0].call_id"


@pytest.mark.parametrize(("call", "output"), [(CUSTOM, OUTPUT), (CALL, CUSTOM_OUTPUT)])
def test_tool_08_an_output_of_another_kind_of_call_is_refused(call, output):
    error = refused(call, output)
    assert error.param == "input[1].call_id"
    assert error.message.startswith("No tool call found for")


@pytest.mark.parametrize("history", [(), (CALL,)])
def test_tool_08_a_second_output_of_a_call_is_refused(history):
    items = (OUTPUT, OUTPUT) if history else (CALL, OUTPUT, OUTPUT)
    error = refused(*items, history=history)
    assert error.param == f"input[{len(items) - 1}].call_id"
    assert error.message.startswith("Duplicate output:")


def test_tool_08_an_output_of_a_call_that_the_history_answered_is_refused():
    error = refused(OUTPUT, history=(CALL, OUTPUT))
    assert (error.param, error.message[:17]) == ("input[0].call_id", "Duplicate output:")


@pytest.mark.parametrize("other", [CALL, {**CALL, "name": "delete_file"}, CUSTOM])
@pytest.mark.parametrize("history", [True, False])
def test_tool_08_a_second_call_of_one_id_is_refused(other, history):
    error = refused(other, history=(CALL,)) if history else refused(CALL, other)
    assert error.param == ("input[0].call_id" if history else "input[1].call_id")
    assert "Duplicate call_id 'call_1'" in error.message


@pytest.mark.parametrize("call", [CALL, CUSTOM, SEARCH])
@pytest.mark.parametrize("after", [(), ({"role": "user", "content": "Never mind."},)])
def test_a_call_without_an_output_is_refused_at_its_place(call, after):
    error = refused({"role": "user", "content": "x"}, call, *after)
    assert error.param == "input[1].call_id"
    assert error.message == "No tool output found for function call call_1."


def test_of_several_calls_without_an_output_the_first_is_told():
    second, third = {**CALL, "call_id": "call_2"}, {**CALL, "call_id": "call_3"}
    assert refused(CALL, second, third, OUTPUT).param == "input[1].call_id"


def test_a_call_that_the_history_left_unanswered_may_stay_so():
    assert len(matched({"role": "user", "content": "Never mind."}, history=(CALL,))) == 1


def test_outputs_may_come_in_any_order_behind_their_calls():
    second = {**CALL, "call_id": "call_2"}
    items = matched(CALL, second, {**OUTPUT, "call_id": "call_2"}, OUTPUT)
    assert [item["call_id"] for item in items] == ["call_1", "call_2", "call_2", "call_1"]


def test_a_search_for_tools_and_what_it_found_match():
    assert len(matched(SEARCH, FOUND)) == 2
    assert refused(FOUND).param == "input[0].call_id"


def test_a_search_that_a_server_ran_has_nothing_to_match():
    assert len(matched({**SEARCH, "call_id": None}, {**FOUND, "call_id": None})) == 2
    assert len(matched({**FOUND, "call_id": None})) == 1


def test_what_the_history_holds_is_not_judged_again():
    assert matched(history=(OUTPUT, CALL, CALL)) == []


def test_an_output_that_names_its_function_answers_the_first_open_call_of_it():
    second = {**CALL, "call_id": "call_2"}
    other = {**CALL, "call_id": "call_3", "name": "g"}
    named = {"type": "function_call_output", "name": "f", "output": "x"}
    last = {**OUTPUT, "call_id": "call_3"}
    items = matched(other, CALL, second, named, named, last)
    assert [item["call_id"] for item in items[3:5]] == ["call_1", "call_2"]
    assert matched(named, history=(CALL, OUTPUT, second))[0]["call_id"] == "call_2"


def test_an_output_that_names_a_function_without_an_open_call_is_refused():
    named = {"type": "function_call_output", "name": "f", "output": "x"}
    assert refused(CALL, named, named).param == "input[2].call_id"
    assert refused({**CALL, "name": "g"}, named).param == "input[1].call_id"


def test_an_output_that_names_nothing_is_refused():
    with pytest.raises(MissingParameter) as caught:
        matched(CALL, {"type": "function_call_output", "output": "x"})
    assert caught.value.param == "input[1].call_id"


def test_places_are_told_in_the_field_that_the_items_came_in():
    with pytest.raises(InvalidValue) as caught:
        arranged([], normalized([OUTPUT]), field="items")
    assert caught.value.param == "items[0].call_id"


# The strict rules

USER = {"role": "user", "content": "Hi"}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}
ANSWER = {"role": "assistant", "content": "Hello."}
REMARK = {**ANSWER, "phase": "commentary"}


@pytest.mark.parametrize(
    "items",
    [
        (USER, THOUGHT, ANSWER, USER),
        (USER, THOUGHT, THOUGHT, ANSWER),
        (USER, THOUGHT, CALL, OUTPUT),
        (USER, THOUGHT, CUSTOM, CUSTOM_OUTPUT),
        (USER, CALL, THOUGHT, OUTPUT, ANSWER),
        (USER, REMARK, CALL, OUTPUT),
        (USER, ANSWER, THOUGHT, CALL, OUTPUT),
        (USER, ANSWER, USER, CALL, OUTPUT),
        (CALL, OUTPUT, ANSWER),
    ],
)
def test_what_goes_together_is_taken_with_the_strict_rules(items):
    assert len(matched(*items, strict=True)) == len(items)


ALONE = [
    ((USER, THOUGHT, USER), 1),
    ((USER, THOUGHT), 1),
    ((THOUGHT, {"role": "developer", "content": "x"}, ANSWER), 0),
    ((USER, THOUGHT, ANSWER, THOUGHT, USER, ANSWER), 3),
    ((CALL, THOUGHT, OUTPUT, USER), 1),
]


@pytest.mark.parametrize(("items", "place"), ALONE)
def test_reasoning_that_nothing_came_of_is_refused_with_the_strict_rules(items, place):
    assert refused(*items, strict=True).param == f"input[{place}]"
    assert len(matched(*items)) == len(items)


@pytest.mark.parametrize("said", [ANSWER, {**ANSWER, "phase": "final_answer"}])
@pytest.mark.parametrize(("call", "output"), [(CALL, OUTPUT), (CUSTOM, CUSTOM_OUTPUT)])
def test_an_answer_right_before_a_call_is_refused_with_the_strict_rules(said, call, output):
    assert refused(USER, said, call, output, strict=True).param == "input[1].phase"
    assert len(matched(USER, said, call, output)) == 4


def test_an_output_needs_a_call_id_with_the_strict_rules():
    with pytest.raises(MissingParameter) as caught:
        matched(CALL, {**OUTPUT, "call_id": None, "name": "f"}, strict=True)
    assert caught.value.param == "input[1].call_id"


def test_the_order_of_what_continues_is_not_judged_by_itself():
    items = normalized([THOUGHT, USER])
    assert len(arranged([], items, continues=True, strict=True)) == 2
    with pytest.raises(InvalidValue):  # Calls and outputs are, as ever.
        arranged([], normalized([OUTPUT]), continues=True, strict=True)
