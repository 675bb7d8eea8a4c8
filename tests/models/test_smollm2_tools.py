"""The embedded model called upon: tools and forms of answers, held to token by token, as the
official client sees them."""

import enum
import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field
from serving import serve

from antiphon.models import embedded
from antiphon.models.build import build_models
from antiphon.settings import Settings

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not embedded.is_fetched(Settings().cache_dir),
        reason="the embedded model is not in the user's cache; `antiphon models pull` fetches it",
    ),
]

MODEL = embedded.NAME
QUESTION = "What is the weather in Oslo, and what is 12 + 7?"
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
}
CLOCK: Any = {
    "type": "function",
    "name": "clock",
    "description": "Tells the time.",
    "strict": False,
    "parameters": None,
}
SUM: Any = {
    "type": "custom",
    "name": "sum",
    "description": "Adds numbers.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: N ("+" N)+\nN: /[1-9][0-9]{0,2}/',
    },
}
WHEN: Any = {
    "type": "custom",
    "name": "when",
    "description": "Takes a time of day.",
    "format": {"type": "grammar", "syntax": "regex", "definition": "[0-2][0-9]:[0-5][0-9]"},
}


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    (model,) = build_models(Settings(), lambda *_: None)
    with serve(model) as served:
        yield served.sdk()


def is_weather(arguments: str) -> bool:
    value = json.loads(arguments)
    return (
        set(value) == {"city", "unit", "days"}
        and len(value["city"]) <= 20
        and value["unit"] in ("celsius", "fahrenheit")
        and 1 <= value["days"] <= 7
    )


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_required_call_is_made_and_its_strict_arguments_fit(client, temperature):
    for seed in range(4):
        response = client.responses.create(
            model=MODEL,
            input=QUESTION,
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=temperature,
            extra_body={"seed": seed},
        )
        assert response.status == "completed"
        (call,) = response.output
        assert call.type == "function_call" and call.name == "get_weather"
        assert is_weather(call.arguments)


@pytest.mark.parametrize("name", ["get_weather", "clock"])
def test_the_function_that_is_named_is_called(client, name):
    response = client.responses.create(
        model=MODEL,
        input=QUESTION,
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "function", "name": name},
        parallel_tool_calls=False,
    )
    (call,) = response.output
    assert call.type == "function_call" and call.name == name
    json.loads(call.arguments)


def test_only_allowed_tools_are_called(client):
    choice: Any = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "custom", "name": "when"}],
    }
    response = client.responses.create(
        model=MODEL, input=QUESTION, tools=[WEATHER, WHEN], tool_choice=choice
    )
    assert {item.name for item in response.output if item.type.endswith("call")} == {"when"}


@pytest.mark.parametrize(("tool", "form"), [(SUM, r"\d{1,3}(\+\d{1,3})+"), (WHEN, r"\d\d:\d\d")])
def test_a_custom_tool_s_input_obeys_its_grammar_and_is_streamed(client, tool, form):
    with client.responses.stream(
        model=MODEL,
        input=QUESTION,
        tools=[tool],
        tool_choice={"type": "custom", "name": tool["name"]},
        parallel_tool_calls=False,
        max_output_tokens=200,
    ) as stream:
        events = list(stream)
    pieces = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    (done,) = [e for e in events if e.type == "response.custom_tool_call_input.done"]
    assert len(pieces) > 1 and "".join(pieces) == done.input
    assert re.fullmatch(form, done.input)


def test_arguments_are_streamed_as_they_are_made(client):
    with client.responses.stream(
        model=MODEL,
        input=QUESTION,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
    ) as stream:
        events = list(stream)
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert len(pieces) > 5 and "".join(pieces) == done.arguments
    assert is_weather(done.arguments)


class Colour(enum.Enum):
    RED = "rød"
    GREEN = "grønn"


class Pet(BaseModel):
    kind: Literal["cat", "dog", "🐠"]
    name: str = Field(max_length=8)


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)
    colour: Colour
    likes: list[Colour] = Field(max_length=3)
    pet: Pet | None


def test_an_answer_of_a_pydantic_model_is_parsed(client):
    for seed in range(4):
        response = client.responses.parse(
            model=MODEL,
            input="Tell me of a person.",
            text_format=Person,
            temperature=1.0,
            max_output_tokens=1000,
            extra_body={"seed": seed},
        )
        assert response.status == "completed"
        assert isinstance(response.output_parsed, Person)


def test_an_answer_is_streamed_under_its_schema(client):
    with client.responses.stream(
        model=MODEL, input="Tell me of a person.", text_format=Person, max_output_tokens=1000
    ) as stream:
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(pieces) > 5 and "".join(pieces) == final.output_text
    assert isinstance(final.output_parsed, Person)


def test_an_answer_that_is_cut_is_incomplete_and_claims_nothing(client):
    response = client.responses.create(
        model=MODEL,
        input="Tell me of a person.",
        max_output_tokens=16,
        text={"format": {"type": "json_object"}},
    )
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"


def test_with_tools_a_strict_answer_is_the_answer_or_a_call(client):
    response = client.responses.create(
        model=MODEL,
        input=QUESTION,
        tools=[WEATHER],
        text={"format": {"type": "json_schema", "name": "p", "schema": STRICT, "strict": True}},
    )
    for item in response.output:
        if item.type == "function_call":
            assert is_weather(item.arguments)
        else:
            assert set(json.loads(response.output_text)) == {"answer"}


STRICT = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}},
    "required": ["answer"],
    "additionalProperties": False,
}


def refused(client: OpenAI, **options: Any) -> dict[str, Any]:
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(model=MODEL, input=QUESTION, **options)
    body: Any = caught.value.body
    assert body["code"] == "invalid_json_schema"
    return body


def test_a_grammar_that_is_none_is_refused_where_it_stands(client):
    broken = {**SUM, "format": {**SUM["format"], "definition": "start: nothing"}}
    error = refused(client, tools=[WEATHER, broken])
    assert error["param"] == "tools[1].format.definition"
    assert "nothing" in error["message"]


def test_a_regex_that_is_none_is_refused_where_it_stands(client):
    broken = {**WHEN, "format": {**WHEN["format"], "definition": "(a"}}
    assert refused(client, tools=[broken])["param"] == "tools[0].format.definition"


def test_a_strict_schema_that_cannot_be_held_to_is_refused_where_it_stands(client):
    pattern = {"type": "string", "pattern": "(?=a)b"}
    schema = {**STRICT, "properties": {"answer": pattern}}
    error = refused(
        client,
        text={"format": {"type": "json_schema", "name": "p", "schema": schema, "strict": True}},
    )
    assert error["param"] == "text.format.schema"
    assert "pattern" in error["message"] or "look" in error["message"]


def test_log_probabilities_are_those_of_the_tokens_that_were_allowed(client):
    response = client.responses.create(
        model=MODEL,
        input=QUESTION,
        text={"format": {"type": "json_schema", "name": "p", "schema": STRICT, "strict": True}},
        include=["message.output_text.logprobs"],
    )
    (message,) = response.output
    (part,) = message.content
    assert "".join(logprob.token for logprob in part.logprobs) == part.text
