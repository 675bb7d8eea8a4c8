"""The model that says what a script tells it to."""

import asyncio
from typing import Any

import pytest
from serving import scripted

from antiphon.errors import ContextLengthExceeded
from antiphon.models.base import ModelDefaults
from antiphon.models.scripted import ScriptedFailure, ScriptedModel
from antiphon.settings import SceneSettings, StepSettings
from antiphon.turn import (
    Call,
    CallArguments,
    CallEnd,
    CallResult,
    CallStart,
    Delta,
    Finish,
    Message,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    Turn,
)


def ask(text: str = "Hi", **options: Any) -> Turn:
    return Turn((Message("user", text),), **options)


def said(model: ScriptedModel, turn: Turn | None = None) -> tuple[list[Delta], TokenUsage]:
    """All that a model says, and its usage at the end."""

    async def hear() -> tuple[list[Delta], TokenUsage]:
        generation = await model.prepare(turn or ask())
        deltas = [delta async for delta in generation.deltas()]
        return deltas, generation.usage

    return asyncio.run(asyncio.wait_for(hear(), 30))


def deltas(*steps: dict[str, Any], turn: Turn | None = None) -> list[Delta]:
    return said(scripted(*steps), turn)[0]


# --- steps ---


def test_a_text_is_said_whole_and_the_answer_ends_by_itself():
    assert deltas({"text": "Hello"}) == [TextDelta("Hello"), Finish("stop")]


@pytest.mark.parametrize(
    ("size", "pieces"), [(0, ["Hello"]), (2, ["He", "ll", "o"]), (5, ["Hello"]), (9, ["Hello"])]
)
def test_a_text_is_said_in_pieces_of_so_many_characters(size, pieces):
    assert deltas({"text": "Hello", "pieces": size})[:-1] == [TextDelta(piece) for piece in pieces]


def test_an_empty_text_says_nothing():
    assert deltas({"text": ""}) == [Finish("stop")]


def test_reasoning_is_said_as_such():
    assert deltas({"reasoning": "Hmm", "pieces": 2}, {"text": "Hi"}) == [
        ReasoningDelta("Hm"),
        ReasoningDelta("m"),
        TextDelta("Hi"),
        Finish("stop"),
    ]


def test_an_echo_says_the_last_message_again():
    turn = Turn((Message("user", "first"), Message("user", "last")), instructions="no")
    assert deltas({"echo": True, "pieces": 3}, turn=turn)[:-1] == [
        TextDelta("las"),
        TextDelta("t"),
    ]


def test_an_echo_of_no_message_says_nothing():
    assert deltas({"echo": True}, turn=Turn((), instructions="Speak.")) == [Finish("stop")]


def test_calls_are_told_apart_and_closed():
    assert deltas(
        {"call": "f", "arguments": '{"a":1}', "pieces": 4}, {"text": "and"}, {"call": "g"}
    ) == [
        CallStart(0, "f"),
        CallArguments(0, '{"a"'),
        CallArguments(0, ":1}"),
        CallEnd(0),
        TextDelta("and"),
        CallStart(2, "g"),
        CallEnd(2),
        Finish("stop"),
    ]


def test_a_call_may_be_left_open():
    assert deltas({"call": "f", "arguments": "{", "open": True}) == [
        CallStart(0, "f"),
        CallArguments(0, "{"),
        Finish("stop"),
    ]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_a_finish_ends_the_answer_in_its_way_and_nothing_follows(reason):
    assert deltas({"text": "a"}, {"finish": reason}, {"text": "b"}) == [
        TextDelta("a"),
        Finish(reason),
    ]


def test_a_failure_is_raised_after_what_was_said():
    async def hear() -> list[Delta]:
        generation = await scripted({"text": "a"}, {"fail": "boom"}, {"text": "b"}).prepare(ask())
        heard: list[Delta] = []
        with pytest.raises(ScriptedFailure, match="boom"):
            async for delta in generation.deltas():
                heard.append(delta)
        assert generation.usage.output_tokens == 1
        return heard

    assert asyncio.run(hear()) == [TextDelta("a")]


def test_a_delay_waits_before_what_follows(monkeypatch):
    waited = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("antiphon.models.scripted.asyncio.sleep", sleep)
    assert deltas({"text": "a"}, {"delay": 1.5}, {"text": "b"}) == [
        TextDelta("a"),
        TextDelta("b"),
        Finish("stop"),
    ]
    assert 1.5 in waited


def test_a_long_answer_lets_the_event_loop_go_now_and_then():
    async def hear() -> int:
        turns = 0
        heard = False

        async def others() -> None:
            nonlocal turns
            while not heard:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        generation = await scripted({"text": "a" * 160, "pieces": 1}).prepare(ask())
        async for _ in generation.deltas():
            pass
        heard = True
        await task
        return turns

    assert asyncio.run(hear()) >= 10


# --- limits and usage ---


def test_a_limit_cuts_after_so_many_pieces():
    turn = ask(max_output_tokens=2)
    model = scripted({"text": "Hello", "pieces": 2})
    assert said(model, turn) == (
        [TextDelta("He"), TextDelta("ll"), Finish("length")],
        TokenUsage(1, output_tokens=2),
    )


def test_an_answer_of_just_as_many_pieces_as_allowed_is_not_cut():
    turn = ask(max_output_tokens=3)
    assert deltas({"text": "Hello", "pieces": 2}, turn=turn)[-1] == Finish("stop")


def test_a_limit_counts_reasoning_and_arguments_as_well():
    steps = [
        {"reasoning": "ab", "pieces": 1},
        {"call": "f", "arguments": "{}", "pieces": 1},
        {"text": "x"},
    ]
    assert deltas(*steps, turn=ask(max_output_tokens=3)) == [
        ReasoningDelta("a"),
        ReasoningDelta("b"),
        CallStart(1, "f"),
        CallArguments(1, "{"),
        Finish("length"),
    ]


def test_usage_counts_words_of_the_prompt_and_pieces_of_the_answer():
    model = scripted(
        {"reasoning": "abc", "pieces": 1},
        {"text": "abcd", "pieces": 2},
        {"call": "f", "arguments": "{}"},
    )
    turn = Turn((Message("system", "be good"), Message("user", "  hi \n there ")), "one two three")
    assert said(model, turn)[1] == TokenUsage(7, output_tokens=6, reasoning_tokens=3)


def test_usage_counts_words_of_reasoning_calls_and_results():
    turn = Turn(
        (Reasoning("a b"), Call("x", "f", '{"c": 1}'), CallResult("x", "d"), Call("y", "g", ""))
    )
    assert said(scripted({"text": "x"}), turn)[1].input_tokens == 2 + 3 + 1 + 1


def test_usage_grows_with_what_is_said():
    async def hear() -> list[int]:
        generation = await scripted({"text": "abc", "pieces": 1}).prepare(ask())
        counts = [generation.usage.output_tokens]
        async for _ in generation.deltas():
            counts.append(generation.usage.output_tokens)
        return counts

    assert asyncio.run(hear()) == [0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("words", "wanted", "param"),
    [
        (10, None, "input"),
        (11, 1, "input"),
        (10, 5, "input"),
    ],
)
def test_what_does_not_fit_the_context_is_refused_with_its_numbers(words, wanted, param):
    model = scripted({"text": "x"}, context_window=10)
    with pytest.raises(ContextLengthExceeded) as caught:
        asyncio.run(model.prepare(ask("word " * words, max_output_tokens=wanted)))
    assert caught.value.param == param
    assert f"{words} tokens" in caught.value.message
    assert "length is 10 tokens" in caught.value.message


@pytest.mark.parametrize(
    ("words", "wanted"), [(9, None), (9, 1), (1, 9), (0, 10), (9, 2), (1, 2**31)]
)
def test_what_just_fits_the_context_is_answered(words, wanted):
    model = scripted({"text": "x"}, context_window=10)
    assert said(model, ask("word " * words, max_output_tokens=wanted))[0][-1] == Finish("stop")


def test_an_answer_ends_with_the_context():
    model = scripted({"text": "abcdef", "pieces": 1}, context_window=10)
    for wanted in (None, 5, 2**31):
        heard, usage = said(model, ask("word " * 7, max_output_tokens=wanted))
        assert heard[-1] == Finish("length")
        assert usage.output_tokens == 3


# --- scenes ---


def scenes(*played: tuple[str, str]) -> ScriptedModel:
    return ScriptedModel(
        "scenes",
        [
            SceneSettings(match=match, steps=(StepSettings(text=text),) if text else ())
            for match, text in played
        ],
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("what is the weather?", "sunny"),
        ("Weather, please, and a joke", "a joke"),
        ("joke about weather", "sunny"),
        ("anything", "default"),
        ("", "default"),
    ],
)
def test_the_first_scene_whose_pattern_is_found_in_the_last_message_is_played(text, answer):
    model = scenes(("weather", "sunny"), ("^Weather", "a joke"), ("", "default"))
    assert said(model, ask(text))[0][0] == TextDelta(answer)


def test_only_the_last_message_chooses_the_scene():
    model = scenes(("weather", "sunny"), ("", "default"))
    turn = Turn((Message("user", "weather"), Message("user", "joke")), instructions="weather")
    assert said(model, turn)[0][0] == TextDelta("default")


def test_a_result_of_a_call_is_a_last_message_too():
    model = scenes(("3 C", "cold"), ("", "default"))
    turn = Turn((Message("user", "weather"), Call("a", "f", "{}"), CallResult("a", "3 C")))
    assert said(model, turn)[0][0] == TextDelta("cold")
    assert deltas({"echo": True}, turn=turn)[0] == TextDelta("3 C")


@pytest.mark.parametrize(
    ("before", "answer"),
    [
        ([Message("user", "I am Ada.")], "You are Ada."),
        ([Call("a", "look_up", '{"name": "I am Ada"}'), CallResult("a", "ok")], "You are Ada."),
        ([], "Who knows?"),
        ([Message("user", "I am Bo.")], "Who knows?"),
    ],
)
def test_a_scene_may_ask_for_what_was_said_before_the_last_message(before, answer):
    model = ScriptedModel(
        "scenes",
        [
            SceneSettings(match="who", earlier="I am Ada", steps=({"text": "You are Ada."},)),
            SceneSettings(steps=({"text": "Who knows?"},)),
        ],
    )
    last = Message("user", "I am Ada, but who am I?")
    assert said(model, Turn((*before, last)))[0][0] == TextDelta(answer)


def test_instructions_come_before_the_last_message():
    scene = SceneSettings(earlier="Be brief", steps=({"text": "Ok."},))
    turn = Turn((Message("user", "Hi"),), instructions="Be brief.")
    assert said(ScriptedModel("scenes", [scene]), turn)[0][0] == TextDelta("Ok.")


def test_a_busy_scene_is_played_once_it_was_refused_so_often(server):
    scene = SceneSettings(busy=2, steps=({"text": "At last."},))
    served = server(ScriptedModel("test-model", [scene]))
    for _ in range(2):
        answer = served.post({"input": "Hi"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    for _ in range(2):
        assert served.create({"input": "Hi"})["output"][0]["content"][0]["text"] == "At last."


def test_without_a_scene_that_matches_nothing_is_said():
    assert said(scenes(("weather", "sunny")), ask("joke"))[0] == [Finish("stop")]


def test_the_same_turn_is_answered_the_same_every_time():
    model = scripted({"text": "Hello", "pieces": 2})
    assert said(model) == said(model)


def test_it_says_of_itself_what_it_was_given():
    model = scripted({"text": "x"}, name="m", context_window=5, defaults=ModelDefaults(0.5, 0.25))
    assert (model.name, model.context_window, model.defaults) == ("m", 5, ModelDefaults(0.5, 0.25))
    assert scripted({"text": "x"}).defaults == ModelDefaults(1.0, 1.0)
    asyncio.run(model.close())
