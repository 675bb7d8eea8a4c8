"""Conversations made to fit what a template can show: the rule written in `folding`."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.formats.calls import Result, Said, Shown
from antiphon.formats.folding import Traits, fold
from antiphon.turn import Call, CallResult, Entry, Message, Reasoning, Turn

EVERYTHING = Traits()
NO_SYSTEM = Traits(system=False, later_system=False)
NO_LATER_SYSTEM = Traits(later_system=False)
STRICT = Traits(system=True, later_system=False, repeats=False, assistant_first=False)
STRICTEST = Traits(system=False, later_system=False, repeats=False, assistant_first=False)


def folded(
    traits: Traits, *messages: tuple[str, str], instructions: str | None = None
) -> list[tuple[str, str]]:
    turn = Turn(tuple(Message(*message) for message in messages), instructions)
    return [(message.role, message.text) for message in fold(turn, traits)]


# --- 1: the leading system message ---


def test_instructions_and_opening_system_messages_become_one_joined_by_blank_lines():
    assert folded(
        EVERYTHING, ("system", "A"), ("system", "B"), ("user", "U"), instructions="I"
    ) == [("system", "I\n\nA\n\nB"), ("user", "U")]


@pytest.mark.parametrize(
    ("instructions", "texts", "leading"),
    [
        ("I", [], "I"),
        (None, ["A"], "A"),
        (None, ["A", "B"], "A\n\nB"),
        ("", ["A"], "A"),
        ("I", [""], "I"),
        ("I", ["", "B"], "I\n\nB"),
    ],
)
def test_empty_instructions_and_system_messages_leave_no_blank_lines(instructions, texts, leading):
    messages = [*(("system", text) for text in texts), ("user", "U")]
    assert folded(EVERYTHING, *messages, instructions=instructions)[0] == ("system", leading)


@pytest.mark.parametrize("traits", [EVERYTHING, NO_SYSTEM, STRICT, STRICTEST])
def test_without_instructions_there_is_no_system_message(traits):
    assert folded(traits, ("user", "U")) == [("user", "U")]
    assert folded(traits, ("system", ""), ("user", "U"), instructions="") == [("user", "U")]


def test_without_a_system_role_the_leading_text_goes_before_the_first_user_message():
    assert folded(NO_SYSTEM, ("system", "A"), ("user", "U"), ("user", "V"), instructions="I") == [
        ("user", "I\n\nA\n\nU"),
        ("user", "V"),
    ]


def test_without_a_system_role_the_leading_text_is_a_user_message_where_no_user_opens():
    assert folded(NO_SYSTEM, ("assistant", "S"), ("user", "U"), instructions="I") == [
        ("user", "I"),
        ("assistant", "S"),
        ("user", "U"),
    ]
    assert folded(NO_SYSTEM, ("system", "A")) == [("user", "A")]
    assert folded(NO_SYSTEM, instructions="I") == [("user", "I")]


def test_instructions_alone_are_a_conversation_of_one_system_message():
    assert folded(EVERYTHING, instructions="I") == [("system", "I")]
    assert folded(STRICT, instructions="I") == [("system", "I")]


# --- 2: later system messages ---


def test_a_later_system_message_stays_where_it_is_if_the_template_allows_it():
    messages = [("user", "U"), ("system", "L"), ("user", "V"), ("system", "M")]
    assert folded(EVERYTHING, *messages) == messages


def test_a_later_system_message_is_wrapped_before_the_user_message_that_follows():
    assert folded(NO_LATER_SYSTEM, ("user", "U"), ("system", "L"), ("user", "V")) == [
        ("user", "U"),
        ("user", "<system>\nL\n</system>\n\nV"),
    ]


def test_several_later_system_messages_are_wrapped_each():
    assert folded(
        NO_LATER_SYSTEM, ("user", "U"), ("system", "L"), ("system", "M"), ("user", "V")
    ) == [
        ("user", "U"),
        ("user", "<system>\nL\n</system>\n\n<system>\nM\n</system>\n\nV"),
    ]


def test_a_later_system_message_becomes_a_user_message_where_no_user_follows():
    note = ("user", "<system>\nL\n</system>")
    assert folded(NO_LATER_SYSTEM, ("user", "U"), ("system", "L")) == [("user", "U"), note]
    assert folded(
        NO_LATER_SYSTEM, ("user", "U"), ("system", "L"), ("assistant", "S"), ("user", "V")
    ) == [("user", "U"), note, ("assistant", "S"), ("user", "V")]


def test_without_a_system_role_later_system_messages_are_wrapped_whatever_else_is_allowed():
    assert folded(
        Traits(system=False, later_system=True), ("user", "U"), ("system", "L"), ("user", "V")
    ) == [("user", "U"), ("user", "<system>\nL\n</system>\n\nV")]


# --- 3: alternation ---


def test_neighbours_of_one_role_are_joined_if_roles_must_alternate():
    assert folded(
        STRICT,
        ("user", "U"),
        ("user", "V"),
        ("assistant", "S"),
        ("assistant", "T"),
        ("user", "W"),
    ) == [("user", "U\n\nV"), ("assistant", "S\n\nT"), ("user", "W")]


def test_neighbours_of_one_role_stay_apart_if_they_may():
    messages = [("user", "U"), ("user", "V"), ("assistant", "S"), ("assistant", "T")]
    assert folded(EVERYTHING, *messages) == messages


def test_an_assistant_that_opens_gets_an_empty_user_message_before_it():
    assert folded(STRICT, ("assistant", "S"), ("user", "U"), instructions="I") == [
        ("system", "I"),
        ("user", ""),
        ("assistant", "S"),
        ("user", "U"),
    ]


def test_an_assistant_may_open_if_the_template_lets_it():
    messages = [("assistant", "S"), ("user", "U")]
    assert folded(EVERYTHING, *messages) == messages


def test_leading_text_before_an_assistant_serves_as_the_user_message_it_needs():
    assert folded(STRICTEST, ("assistant", "S"), instructions="I") == [
        ("user", "I"),
        ("assistant", "S"),
    ]


def test_inp_05_instructions_and_developer_messages_fit_the_strictest_template():
    conversation = [
        ("system", "Sandbox is read-only."),
        ("user", "Hi"),
        ("system", "Answer with one word."),
        ("user", "Capital of France?"),
    ]
    note = "<system>\nAnswer with one word.\n</system>"
    assert folded(STRICTEST, *conversation, instructions="You are a coding agent.") == [
        (
            "user",
            "You are a coding agent.\n\nSandbox is read-only.\n\nHi\n\n"
            f"{note}\n\nCapital of France?",
        )
    ]
    assert folded(STRICT, *conversation, instructions="You are a coding agent.") == [
        ("system", "You are a coding agent.\n\nSandbox is read-only."),
        ("user", f"Hi\n\n{note}\n\nCapital of France?"),
    ]


# --- what holds for every conversation and every template ---

ALL_TRAITS = [Traits(*allowed) for allowed in itertools.product([True, False], repeat=4)]
CONVERSATIONS = st.tuples(
    st.booleans(), st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=9)
)


@pytest.mark.parametrize("traits", ALL_TRAITS, ids=str)
@settings(deadline=None, max_examples=25)
@given(CONVERSATIONS)
def test_every_text_is_shown_once_and_user_and_assistant_keep_their_order(traits, conversation):
    instructed, roles = conversation
    messages = [(role, f"text{number}.") for number, role in enumerate(roles)]
    result = folded(traits, *messages, instructions="text-1." if instructed else None)
    shown = re.findall(r"text-?\d+\.", "".join(text for _, text in result))
    assert sorted(shown) == sorted([text for _, text in messages] + ["text-1."] * instructed)
    spoken = [text for role, text in messages if role != "system"]
    assert [text for text in shown if text in spoken] == spoken
    # Nobody is given words of another role, but for system text told by the user.
    for role, text in messages:
        at = next(shown_role for shown_role, shown_text in result if text in shown_text)
        assert at == role or (role, at) == ("system", "user")


@pytest.mark.parametrize("traits", ALL_TRAITS, ids=str)
@settings(deadline=None, max_examples=25)
@given(CONVERSATIONS)
def test_the_result_is_something_that_the_template_allows(traits, conversation):
    instructed, roles = conversation
    messages = [(role, f"text{number}.") for number, role in enumerate(roles)]
    shown = [role for role, _ in folded(traits, *messages, instructions="I" if instructed else "")]
    if not traits.system:
        assert "system" not in shown
    if not traits.later_system:
        assert "system" not in shown[1:]
    if not traits.repeats:
        assert all(one != other for one, other in itertools.pairwise(shown))
    if not traits.assistant_first:
        assert [role for role in shown if role != "system"][:1] != ["assistant"]


# --- calls, results and reasoning ---

CALL = Call("a", "f", "{}")
RESULT = CallResult("a", "R")
SHOWN_CALL = Call("call00001", "f", "{}")
SHOWN_RESULT = Result("call00001", "f", "R")
USER, ANSWER = Message("user", "U"), Message("assistant", "S")
TOOLS = Traits(calls="object")


def folded_entries(traits: Traits, *entries: Entry, instructions: str = "") -> list[Shown]:
    return fold(Turn(entries, instructions), traits)


def test_calls_and_results_stay_what_they_are_if_the_template_shows_them():
    assert folded_entries(TOOLS, USER, ANSWER, CALL, RESULT) == [
        USER,
        Said("S", "", (SHOWN_CALL,)),
        SHOWN_RESULT,
    ]


def test_calls_and_results_are_texts_if_the_template_does_not_show_them():
    assert folded_entries(EVERYTHING, USER, ANSWER, CALL, RESULT) == [
        USER,
        Message("assistant", "S\n\nCalled f with {}"),
        Message("user", "Result of f: R"),
    ]


def test_a_text_that_no_message_with_calls_may_have_makes_all_calls_texts():
    never = replace(TOOLS, spoken_calls="never")
    assert folded_entries(never, USER, CALL, RESULT)[1:] == [
        Said("", "", (SHOWN_CALL,)),
        SHOWN_RESULT,
    ]
    assert folded_entries(never, USER, CALL, RESULT, ANSWER, Call("b", "g", ""))[1:] == [
        Message("assistant", "Called f with {}"),
        Message("user", "Result of f: R"),
        Message("assistant", "S\n\nCalled g"),
    ]


def test_reasoning_is_left_out_where_it_has_no_place():
    entries = [USER, Reasoning("T"), ANSWER, Reasoning("T"), USER]
    assert folded_entries(TOOLS, *entries) == [USER, ANSWER, USER]
    assert folded_entries(replace(TOOLS, reasoning="thinking"), *entries) == [
        USER,
        Said("S", "T"),
        Said("", "T"),
        USER,
    ]


def test_a_later_system_message_never_parts_a_call_from_its_result():
    note = Message("system", "L")
    strict = replace(TOOLS, later_system=False)
    called = [Said("", "", (SHOWN_CALL,)), SHOWN_RESULT]
    wrapped = "<system>\nL\n</system>"
    assert folded_entries(strict, USER, CALL, note, RESULT, USER) == [
        USER,
        *called,
        Message("user", f"{wrapped}\n\nU"),
    ]
    assert folded_entries(strict, USER, CALL, note, RESULT, ANSWER) == [
        USER,
        *called,
        Message("user", wrapped),
        ANSWER,
    ]
    assert folded_entries(strict, USER, CALL, note, RESULT)[1:] == [
        *called,
        Message("user", wrapped),
    ]


def test_where_roles_alternate_calls_join_the_text_before_them_and_none_joins_calls():
    strict = replace(TOOLS, repeats=False, assistant_first=False, reasoning="thinking")
    said = folded_entries(strict, ANSWER, Reasoning("A"), ANSWER, Reasoning("B"), CALL, ANSWER)
    assert said == [Message("user", ""), Said("S\n\nS", "A\n\nB", (SHOWN_CALL,)), ANSWER]


def test_where_roles_alternate_a_text_stays_apart_from_calls_that_cannot_be_shown_with_it():
    strict = replace(TOOLS, repeats=False, spoken_calls="apart")
    assert folded_entries(strict, USER, ANSWER, CALL) == [
        USER,
        ANSWER,
        Said("", "", (SHOWN_CALL,)),
    ]


def test_instructions_go_to_the_user_where_the_template_shows_them_only_to_one_who_asks():
    traits = replace(TOOLS, later_system=False, system_always=False)
    assert folded_entries(traits, USER, ANSWER, USER, instructions="I") == [
        Message("system", "I"),
        USER,
        ANSWER,
        USER,
    ]
    for ending in (ANSWER, CALL):
        first, *_ = folded_entries(traits, USER, ending, instructions="I")
        assert first == Message("user", "I\n\nU")
    assert folded_entries(traits, instructions="I") == [Message("user", "I")]


ANY_TRAITS = st.builds(
    Traits,
    *[st.booleans()] * 5,
    calls=st.sampled_from(["object", "json", None]),
    parallel_calls=st.booleans(),
    spoken_calls=st.sampled_from(["together", "apart", "never"]),
    named_ids=st.booleans(),
    reasoning=st.sampled_from(["thinking", None]),
)
ENTRIES = st.lists(
    st.sampled_from(["system", "user", "assistant", "reasoning", "call", "result"]), max_size=9
)


@settings(deadline=None, max_examples=500)
@given(ANY_TRAITS, ENTRIES)
def test_calls_are_shown_as_the_template_allows_and_nothing_is_lost(traits, kinds):
    entries: list[Entry] = []
    for number, kind in enumerate(kinds):
        text = f"text{number}."
        match kind:
            case "reasoning":
                entries.append(Reasoning(text))
            case "call":
                entries.append(Call(str(number), "f", text))
            case "result":
                entries.append(CallResult(str(number - 1), text))
            case _:
                entries.append(Message(kind, text))
    shown = folded_entries(traits, *entries, instructions="I")
    said = [message for message in shown if isinstance(message, Said)]
    results = [message for message in shown if isinstance(message, Result)]
    if traits.calls is None:
        assert not results and not any(message.calls for message in said)
    if traits.reasoning is None:
        assert not any(message.reasoning for message in said)
    if not traits.parallel_calls:
        assert all(len(message.calls) < 2 for message in said)
    if traits.spoken_calls != "together":
        assert not any(message.calls and message.text for message in said)
    calls = [call for message in said for call in message.calls]
    assert len({call.call_id for call in calls}) == len(calls)
    assert {result.call_id for result in results} <= {call.call_id for call in calls}
    written = [message.text for message in shown] + [call.arguments for call in calls]
    written += [message.reasoning for message in said]
    texts = [entry for entry in entries if traits.reasoning or not isinstance(entry, Reasoning)]
    everything = " ".join(written)
    for entry in texts:
        text = entry.arguments if isinstance(entry, Call) else entry.text
        assert everything.count(text) == 1
