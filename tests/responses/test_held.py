"""What a model says, held to what it was asked: which deltas get through, and how it ends."""

import asyncio
import json
from typing import Any

import pytest
from said import SaidGeneration, Step, in_a_loop

from antiphon.errors import InvalidAnswer, InvalidToolCall, ServerError
from antiphon.responses.held import HeldGeneration
from antiphon.turn import (
    AnswerFormat,
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolChoice,
    Turn,
)

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Tool("get_weather", parameters=CITY, strict=True)
LOOSE = Tool("get_time", parameters=CITY)
PATCH = Tool("apply_patch", custom=True)
SEARCH = Tool("tool_search", searches=True)
OSLO = '{"city":"Oslo"}'
STOP, LENGTH = Finish("stop"), Finish("length")


def call(number: int, name: str, arguments: str = "", *, custom: bool = False) -> list[Delta]:
    pieces = [CallArguments(number, piece) for piece in arguments]
    return [CallStart(number, name, custom), *pieces, CallEnd(number)]


def turn(*tools: Tool, **fields: Any) -> Turn:
    return Turn((), tools=tools, **fields)


async def heard(asked: Turn, *steps: Step) -> tuple[list[Delta], ServerError | None]:
    """What gets through of what a model says, and what it raises in the end."""
    generation = HeldGeneration(SaidGeneration(steps), asked)
    deltas = []
    try:
        async for delta in generation.deltas():
            deltas.append(delta)
    except ServerError as error:
        return deltas, error
    return deltas, None


async def fails(asked: Turn, *steps: Step, kind: type[ServerError] = InvalidToolCall) -> str:
    """The message of the error; everything before the last step got through."""
    deltas, error = await heard(asked, *steps)
    assert deltas == list(steps[:-1])
    assert type(error) is kind
    return error.message


# Calls that may not be made


@in_a_loop
async def test_whatever_is_allowed_gets_through_unchanged():
    steps = [
        ReasoningDelta("hm"),
        TextDelta("Let me look."),
        *call(0, "get_weather", OSLO),
        *call(1, "apply_patch", "any text", custom=True),
        STOP,
    ]
    assert await heard(turn(WEATHER, PATCH), *steps) == (steps, None)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (turn(), "not offered"),
        (turn(LOOSE), "not offered"),
        (turn(WEATHER, tool_choice=ToolChoice("none")), "does not allow"),
        (
            turn(WEATHER, LOOSE, tool_choice=ToolChoice("auto", frozenset({"get_time"}))),
            "does not allow",
        ),
        (
            turn(WEATHER, LOOSE, tool_choice=ToolChoice("required", frozenset({"get_time"}))),
            "does not allow",
        ),
    ],
)
@in_a_loop
async def test_tool_05_a_call_that_may_not_be_made_is_never_told_of(asked: Turn, why: str):
    message = await fails(asked, TextDelta("Look."), CallStart(0, "get_weather"))
    assert why in message and "'get_weather'" in message


@in_a_loop
async def test_a_long_name_is_told_shortened():
    assert len(await fails(turn(), CallStart(0, "x" * 5000))) < 200


@pytest.mark.parametrize(("name", "custom"), [("get_weather", True), ("apply_patch", False)])
@in_a_loop
async def test_functions_and_custom_tools_are_not_called_as_each_other(name: str, custom: bool):
    await fails(turn(WEATHER, PATCH), CallStart(0, name, custom))


# Calls that must be made


@pytest.mark.parametrize("said", [[], [TextDelta("It is nice out.")], [ReasoningDelta("hm")]])
@in_a_loop
async def test_tool_05_a_turn_without_the_call_that_it_had_to_make_fails(said: list[Delta]):
    asked = turn(WEATHER, tool_choice=ToolChoice("required"))
    assert "requires" in await fails(asked, *said, STOP)


@in_a_loop
async def test_a_turn_that_is_cut_need_not_have_made_its_call():
    asked = turn(WEATHER, tool_choice=ToolChoice("required"))
    for steps in ([TextDelta("It"), LENGTH], [CallStart(0, "get_weather"), LENGTH]):
        assert await heard(asked, *steps) == (steps, None)


@in_a_loop
async def test_a_turn_does_not_end_inside_a_call():
    asked = turn(WEATHER)
    await fails(asked, CallStart(0, "get_weather"), CallArguments(0, "{"), STOP)


# How many


@in_a_loop
async def test_without_parallel_calls_the_model_is_stopped_behind_the_first():
    first = call(0, "get_weather", OSLO)
    never = asyncio.Event()
    generation = SaidGeneration([TextDelta("Look."), *first, TextDelta("lost"), never])
    held = HeldGeneration(generation, turn(WEATHER, parallel_calls=False))
    deltas = [delta async for delta in held.deltas()]
    assert deltas == [TextDelta("Look."), *first, STOP]
    assert generation.ended.is_set()
    assert held.usage.output_tokens == 1  # What was not read was not said.


@in_a_loop
async def test_without_parallel_calls_one_that_begins_inside_the_first_is_left_out():
    (start, *rest), (other_start, *other_rest) = call(0, "get_weather", OSLO), call(1, "get_time")
    asked = turn(WEATHER, LOOSE, parallel_calls=False)
    deltas, error = await heard(asked, start, other_start, *other_rest, *rest, STOP)
    assert (deltas, error) == ([start, *rest, STOP], None)


@in_a_loop
async def test_there_are_as_many_calls_as_there_may_be_and_no_more():
    calls = [delta for number in range(3) for delta in call(number, "get_weather", OSLO)]
    deltas, _ = await heard(turn(WEATHER, max_calls=2), *calls, STOP)
    assert deltas == [*calls[: -len(calls) // 3], STOP]
    assert (await heard(turn(WEATHER, max_calls=4), *calls, STOP))[0] == [*calls, STOP]


# Arguments


@pytest.mark.parametrize("arguments", ["{", "[]", "{}", '{"city":1}', '{"city":"x","c":1}', "x"])
@in_a_loop
async def test_strict_arguments_that_do_not_fit_are_never_said_to_be_whole(arguments: str):
    assert "'get_weather'" in await fails(turn(WEATHER), *call(0, "get_weather", arguments))


@pytest.mark.parametrize("arguments", ["{", "[]", "{}", '{"city":1}'])
@in_a_loop
async def test_arguments_that_are_not_strict_are_left_to_the_model(arguments: str):
    steps = [*call(0, "get_time", arguments), STOP]
    assert await heard(turn(LOOSE), *steps) == (steps, None)


@in_a_loop
async def test_tool_09_a_strict_function_without_parameters_takes_nothing():
    asked = turn(Tool("now", strict=True))
    for arguments in ("", "{}"):
        assert (await heard(asked, *call(0, "now", arguments), STOP))[1] is None
    await fails(asked, *call(0, "now", '{"a":1}'))


@in_a_loop
async def test_interleaved_arguments_are_compared_call_by_call():
    steps = [
        CallStart(0, "get_weather"),
        CallStart(1, "get_weather"),
        CallArguments(0, OSLO[:4]),
        CallArguments(1, OSLO[:7]),
        CallArguments(0, OSLO[4:]),
        CallArguments(1, OSLO[7:]),
        CallEnd(1),
        CallEnd(0),
        STOP,
    ]
    assert await heard(turn(WEATHER), *steps) == (steps, None)


@pytest.mark.parametrize("arguments", ["spawn", "[1]", "{"])
@in_a_loop
async def test_a_search_for_tools_is_made_with_an_object(arguments: str):
    steps = [*call(0, "tool_search", '{"query":"x"}'), STOP]
    assert await heard(turn(SEARCH), *steps) == (steps, None)
    await fails(turn(SEARCH), *call(0, "tool_search", arguments))


# Answers


@pytest.mark.parametrize("text", ["", "Oslo", "[]", "{", "{} {}", "NaN"])
@pytest.mark.parametrize("form", [AnswerFormat(), AnswerFormat(CITY), AnswerFormat(CITY, True)])
@in_a_loop
async def test_an_answer_without_its_form_fails_the_turn(text: str, form: AnswerFormat):
    steps = [*map(TextDelta, text), STOP]
    message = await fails(turn(answer=form), *steps, kind=InvalidAnswer)
    assert "form" in message


@pytest.mark.parametrize("strict", [False, True])
@in_a_loop
async def test_an_answer_is_compared_with_the_whole_schema(strict: bool):
    schema = {"type": "object", "properties": {"a": {"uniqueItems": True}}}
    asked = turn(answer=AnswerFormat(schema, strict))
    await fails(asked, TextDelta('{"a":[1,1]}'), STOP, kind=InvalidAnswer)
    steps = [TextDelta(' {"a":'), TextDelta("[1,2]}\n"), STOP]
    assert await heard(asked, *steps) == (steps, None)


@in_a_loop
async def test_an_answer_that_is_cut_is_held_to_nothing():
    for end in (LENGTH, Finish("content_filter")):
        steps = [TextDelta('{"ci'), end]
        assert await heard(turn(answer=AnswerFormat(CITY, True)), *steps) == (steps, None)


@in_a_loop
async def test_what_is_said_before_a_call_is_no_answer():
    asked = turn(WEATHER, answer=AnswerFormat(CITY, True))
    steps = [TextDelta("Let me look."), *call(0, "get_weather", OSLO), TextDelta("\n"), STOP]
    assert await heard(asked, *steps) == (steps, None)


@in_a_loop
async def test_what_is_said_after_the_last_call_is_an_answer():
    asked = turn(WEATHER, answer=AnswerFormat(CITY, True))
    steps = [TextDelta("Look."), *call(0, "get_weather", OSLO), TextDelta("There."), STOP]
    await fails(asked, *steps, kind=InvalidAnswer)


@in_a_loop
async def test_jso_03_reasoning_is_no_part_of_the_answer():
    steps = [ReasoningDelta("plan: {"), TextDelta(json.dumps({"city": "Å"})), STOP]
    assert await heard(turn(answer=AnswerFormat(CITY, True)), *steps) == (steps, None)


# What stands behind


@in_a_loop
async def test_a_reader_that_leaves_stops_the_model():
    generation = SaidGeneration([TextDelta("a"), asyncio.Event()])
    deltas = HeldGeneration(generation, turn()).deltas()
    assert await anext(deltas) == TextDelta("a")
    await deltas.aclose()
    assert generation.ended.is_set()


@in_a_loop
async def test_a_call_that_may_not_be_made_stops_the_model():
    generation = SaidGeneration([CallStart(0, "rm"), asyncio.Event()])
    with pytest.raises(InvalidToolCall):
        async for _ in HeldGeneration(generation, turn()).deltas():
            pass
    assert generation.ended.is_set()


@in_a_loop
async def test_a_model_that_ends_without_saying_how_does_so_still():
    assert await heard(turn(), TextDelta("a")) == ([TextDelta("a")], None)
