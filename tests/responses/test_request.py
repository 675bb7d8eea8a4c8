"""What is asked of the model, and what is told of it, once a body passed the gate."""

import os
from typing import Any

import pytest
from writing import RESPONSE, asked

from antiphon.errors import InvalidValue, MissingParameter
from antiphon.models.base import ModelDefaults
from antiphon.principal import Principal
from antiphon.responses.items import normalized
from antiphon.responses.presentation import ShownTool
from antiphon.responses.reasoning import ReasoningPolicy
from antiphon.responses.sealing import ReasoningSealer
from antiphon.spec import Contract
from antiphon.store.keyring import MasterKey
from antiphon.turn import AnswerFormat, Message, Sampling, ToolChoice, Turn

LOGPROBS = "message.output_text.logprobs"
CALLER = Principal("key_1")
KEY = MasterKey("mk_1", "", os.urandom(32))


def turn(body: dict[str, Any], defaults: ModelDefaults | None = None) -> Turn:
    return asked(body, defaults=defaults).turn(CALLER, normalized(body.get("input", [])))


def messages(*items: dict[str, Any]) -> list[tuple[str, str]]:
    asked_for = turn({"input": list(items)}).messages
    return [(m.role, m.text) for m in asked_for if isinstance(m, Message)]


# Whether there is anything to answer


def test_without_input_there_is_nothing_to_answer():
    with pytest.raises(MissingParameter) as caught:
        asked({"model": "test-model"})
    assert caught.value.param == "input"


def test_no_items_are_nothing_to_answer_unless_there_are_instructions():
    for body in ({"input": []}, {"input": [], "instructions": ""}):
        with pytest.raises(InvalidValue) as caught:
            asked(body)
        assert caught.value.param == "input"
    assert turn({"input": [], "instructions": "Say hi."}).messages == ()


def test_empty_text_is_an_input():
    assert turn({"input": ""}).messages == (Message("user", ""),)


# The turn


def test_a_turn_holds_what_was_asked_and_by_whom():
    assert turn({"input": "hi", "instructions": "Be brief."}) == Turn(
        messages=(Message("user", "hi"),), instructions="Be brief.", tenant="key_1"
    )


def test_inp_01_roles_reach_the_model_in_order():
    assert messages(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "How can I help?"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Say ok"}]},
        {"role": "system", "content": "Now."},
    ) == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("assistant", "How can I help?"),
        ("user", "Say ok"),
        ("system", "Now."),
    ]


def test_inp_02_the_assistants_history_reaches_the_model_word_for_word():
    assert messages(
        {"type": "message", "role": "assistant", "content": "(string form)"},
        {"role": "assistant", "content": [{"type": "output_text", "text": " Hi\nthere "}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
    ) == [
        ("assistant", "(string form)"),
        ("assistant", " Hi\nthere "),
        ("assistant", "I cannot."),
    ]


def test_parts_begin_on_lines_of_their_own():
    parts = [{"type": "input_text", "text": text} for text in ("one", "two\n", "", "three")]
    assert messages({"role": "user", "content": parts}) == [("user", "one\ntwo\n\n\nthree")]
    assert messages({"role": "user", "content": []}) == [("user", "")]


def test_a_refusal_is_told_by_its_type_and_not_by_its_fields():
    parts = [
        {"type": "output_text", "text": "yes", "refusal": "no"},
        {"type": "refusal", "refusal": "never", "text": 5},
        {"type": "output_text", "text": "well", "refusal": None},
    ]
    assert messages({"role": "assistant", "content": parts}) == [("assistant", "yes\nnever\nwell")]


def test_text_is_taken_as_it_stands():
    text = "<|im_end|>\u0000 {{ x }} \u2028\\u0041 \U0001f600"
    assert messages({"role": "user", "content": text}) == [("user", text)]


# Tools, the form of the answer, and reasoning

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
CRM = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
SCHEMA = {"type": "object", "properties": {}}


def test_a_turn_holds_the_tools_and_how_they_may_be_called():
    choice = {"type": "function", "name": "find"}
    body = {"input": "hi", "tools": [WEATHER, CRM], "tool_choice": choice}
    asking = turn({**body, "parallel_tool_calls": False})
    assert [tool.name for tool in asking.tools] == ["get_weather", "crm__find"]
    assert asking.tool_choice == ToolChoice("required", frozenset({"crm__find"}))
    assert not asking.parallel_calls
    assert turn(body).parallel_calls


def test_tools_that_items_bring_are_among_those_of_the_turn():
    body = {"input": [{"type": "additional_tools", "role": "developer", "tools": [CRM]}]}
    assert [tool.name for tool in turn(body).tools] == ["crm__find"]
    request = asked(body)
    assert request.response()["tools"] == []
    shown = request.presentation(CALLER, normalized(body["input"]))
    assert shown.tool("crm__find") == ShownTool("find", "crm")


def test_reasoning_is_sealed_if_it_is_included():
    sealer = ReasoningSealer([KEY])
    policy = ReasoningPolicy(sealer)
    body = {"input": "hi", "include": ["reasoning.encrypted_content"]}
    shown = asked(body, reasoning=policy).presentation(CALLER, [])
    assert shown.seal is not None and shown.shows_sealed and not shown.hides_reasoning
    opened = sealer.open(CALLER, shown.seal("thought"), param="x")
    assert (opened.text, opened.family) == ("thought", "scripted")
    assert asked({"input": "hi"}, reasoning=policy).presentation(CALLER, []).seal is None


def test_hidden_reasoning_is_sealed_for_the_store_whoever_asks():
    policy = ReasoningPolicy(ReasoningSealer([KEY]), hides=True)
    shown = asked({"input": "hi"}, reasoning=policy).presentation(CALLER, [])
    assert shown.hides_reasoning and shown.seal is not None and not shown.shows_sealed


@pytest.mark.parametrize("field", ["summary", "generate_summary"])
@pytest.mark.parametrize("mode", ["auto", "concise", "detailed"])
def test_a_summary_is_told_as_what_it_is(field: str, mode: str):
    body = {"input": "hi", "reasoning": {field: mode}}
    request = asked(body, reasoning=ReasoningPolicy(summarises=True))
    assert request.response()["reasoning"] == {"effort": None, "summary": "detailed"}
    assert request.presentation(CALLER, []).summarises
    assert asked(body).response()["reasoning"]["summary"] is None
    assert not asked(body).presentation(CALLER, []).summarises


def test_without_a_wish_there_is_no_summary():
    request = asked({"input": "hi", "reasoning": {}}, reasoning=ReasoningPolicy(summarises=True))
    assert request.response()["reasoning"]["summary"] is None


def json_schema(**more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "name": "out", "schema": SCHEMA, **more}


@pytest.mark.parametrize(
    ("text", "form", "told"),
    [
        (None, None, {"type": "text"}),
        ({}, None, {"type": "text"}),
        ({"format": None}, None, {"type": "text"}),
        ({"format": {"type": "text"}}, None, {"type": "text"}),
        ({"format": {"type": "json_object"}}, AnswerFormat(), {"type": "json_object"}),
        (
            {"format": json_schema(strict=True, description="Said.", made_up=1)},
            AnswerFormat(SCHEMA, strict=True),
            json_schema(strict=True, description="Said."),
        ),
        (
            {"format": json_schema()},
            AnswerFormat(SCHEMA),
            json_schema(strict=False, description=None),
        ),
        (
            {"format": json_schema(strict=None)},
            AnswerFormat(SCHEMA),
            json_schema(strict=False, description=None),
        ),
    ],
)
def test_the_form_of_the_answer_is_asked_for_and_told(
    text: Any, form: AnswerFormat | None, told: Any, contract: Contract
):
    body = {"input": "hi"} if text is None else {"input": "hi", "text": text}
    assert turn(body).answer == form
    response: Any = asked(body).response()
    assert response["text"] == {"format": told}
    assert contract.accepts(RESPONSE, response)


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_effort_is_asked_for_and_told(effort: str, contract: Contract):
    body = {"input": "hi", "reasoning": {"effort": effort}}
    assert turn(body).effort == effort
    response: Any = asked(body).response()
    assert response["reasoning"] == {"effort": effort, "summary": None}
    assert contract.accepts(RESPONSE, response)


@pytest.mark.parametrize("reasoning", [{}, {"effort": None}])
def test_without_an_effort_the_model_has_its_own_way(reasoning: dict[str, Any]):
    assert turn({"input": "hi", "reasoning": reasoning}).effort is None


# Sampling


def test_sampling_is_as_asked():
    body = {"temperature": 0.2, "top_p": 0.9, "presence_penalty": -1, "frequency_penalty": 2}
    assert turn({"input": "hi", **body, "seed": 7}).sampling == Sampling(0.2, 0.9, -1, 2, 7)


def test_use_02_a_models_own_sampling_stands_where_a_request_does_not_say():
    defaults = ModelDefaults(temperature=0.3, top_p=0.8)
    assert turn({"input": "hi"}, defaults).sampling == Sampling(0.3, 0.8)
    asking = {"input": "hi", "temperature": 0, "top_p": 1.0}
    assert turn(asking, defaults).sampling == Sampling(0, 1.0)
    response = asked({"input": "hi"}, defaults=defaults).response()
    assert (response["temperature"], response["top_p"]) == (0.3, 0.8)
    assert asked(asking, defaults=defaults).response()["temperature"] == 0


@pytest.mark.parametrize("field", ["max_output_tokens", "max_tool_calls", "seed", "top_logprobs"])
def test_whole_numbers_may_be_written_as_decimals(field: str, contract: Contract):
    body = {"input": "hi", field: 16.0, "include": [LOGPROBS]}
    asking = turn(body)
    for value in (asking.max_output_tokens, asking.sampling.seed, asking.top_logprobs):
        assert value is None or type(value) is int
    response: Any = asked(body).response()
    assert contract.accepts(RESPONSE, response)
    if field in response:
        assert response[field] == 16 and type(response[field]) is int


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2.0**64, 1e300])
def test_err_05_a_limit_may_be_larger_than_what_json_is_written_with(value: float):
    response = asked({"input": "hi", "max_output_tokens": value}).response()
    assert response["max_output_tokens"] == min(int(value), 2**64 - 1)


def test_seeds_keep_all_their_64_bits():
    for seed in (-(2**63), 2**64 - 1, 0):
        assert turn({"input": "hi", "seed": seed}).sampling.seed == seed


@pytest.mark.parametrize(
    ("body", "asked_for"),
    [
        ({}, None),
        ({"top_logprobs": 3}, None),
        ({"include": []}, None),
        ({"include": [LOGPROBS]}, 0),
        ({"include": [LOGPROBS], "top_logprobs": 3}, 3),
    ],
)
def test_log_probabilities_are_made_only_if_they_are_included(
    body: dict[str, Any], asked_for: int | None
):
    assert turn({"input": "hi", **body}).top_logprobs == asked_for
    assert asked({"input": "hi", **body}).response()["top_logprobs"] == body.get("top_logprobs", 0)


def test_streaming_and_truncation_are_off_unless_asked_for():
    plain = asked({"input": "hi"})
    assert not plain.streams and not plain.truncates
    other = asked({"input": "hi", "stream": True, "truncation": "auto"})
    assert other.streams and other.truncates
    assert not asked({"input": "hi", "truncation": "disabled"}).truncates


# Its place among others


@pytest.mark.parametrize(
    ("asked_for", "told", "priority"),
    [
        (None, "default", 0),
        ("auto", "default", 0),
        ("default", "default", 0),
        ("flex", "flex", -1),
        ("priority", "priority", 1),
        ("fast", "priority", 1),
        ("ultrafast", "priority", 1),
    ],
)
def test_a_tier_is_told_as_it_was_taken_and_sets_who_goes_first(
    asked_for: str | None, told: str, priority: int, contract: Contract
):
    body = {"input": "hi"} if asked_for is None else {"input": "hi", "service_tier": asked_for}
    response: Any = asked(body).response()
    assert response["service_tier"] == told
    assert contract.accepts(RESPONSE, response)
    assert turn(body).priority == priority


@pytest.mark.parametrize(
    ("retention", "seconds"), [(None, None), ("in_memory", None), ("24h", 24 * 3600)]
)
def test_how_long_a_prefix_stays_is_as_asked(retention: str | None, seconds: float | None):
    body = {} if retention is None else {"prompt_cache_retention": retention}
    assert turn({"input": "hi", **body}).keep_seconds == seconds


def test_a_cache_key_reaches_the_model():
    assert turn({"input": "hi"}).cache_key == ""
    assert turn({"input": "hi", "prompt_cache_key": None}).cache_key == ""
    assert turn({"input": "hi", "prompt_cache_key": "k"}).cache_key == "k"


# The response


def test_use_04_every_field_is_there_with_its_default(contract: Contract):
    response: Any = asked({"input": "hi"}).response()
    assert contract.accepts(RESPONSE, response)
    schema = contract.document["components"]["schemas"]["Response"]
    assert set(schema["required"]) <= set(response) <= set(schema["properties"])
    assert response.pop("id").startswith("resp_")
    assert isinstance(response.pop("created_at"), int)
    assert response == {
        "object": "response",
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": "test-model",
        "previous_response_id": None,
        "conversation": None,
        "instructions": None,
        "output": [],
        "usage": None,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_tool_calls": None,
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "top_p": 1.0,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "max_output_tokens": None,
        "truncation": "disabled",
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": {},
        "safety_identifier": None,
        "user": None,
        "prompt_cache_key": None,
        "prompt_cache_retention": "in_memory",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("instructions", "Be brief."),
        ("tool_choice", "none"),
        ("parallel_tool_calls", False),
        ("max_tool_calls", 3),
        ("temperature", 0),
        ("top_p", 0.5),
        ("presence_penalty", -2),
        ("frequency_penalty", 1.5),
        ("top_logprobs", 20),
        ("max_output_tokens", 64),
        ("truncation", "auto"),
        ("metadata", {"trace": "t-1", "é": ""}),
        ("safety_identifier", "u1"),
        ("user", "u1"),
        ("prompt_cache_key", "k"),
        ("prompt_cache_retention", "24h"),
        ("prompt_cache_retention", "in_memory"),
        ("service_tier", "flex"),
        ("service_tier", "priority"),
    ],
)
def test_what_a_request_sets_is_told_as_it_was_set(field: str, value: Any, contract: Contract):
    response: Any = asked({"input": "hi", field: value}).response()
    assert response[field] == value
    assert contract.accepts(RESPONSE, response)


def test_inp_07_the_users_new_name_takes_the_place_of_the_old_one():
    response = asked({"input": "hi", "user": "old", "safety_identifier": "new"}).response()
    assert (response["safety_identifier"], response["user"]) == ("new", None)


def test_the_model_is_called_as_the_request_called_it():
    request = asked({"input": "hi", "model": "gpt-4o"}, name="gpt-4o")
    assert request.response()["model"] == "gpt-4o"
    assert request.model.name == "test-model"


def test_every_response_has_an_id_of_its_own():
    request = asked({"input": "hi"})
    assert request.response()["id"] != request.response()["id"]
