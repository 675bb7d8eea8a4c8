"""What is refused of a request in itself."""

import asyncio
from typing import Any

import pytest

from antiphon import errors
from antiphon.models.router import Router
from antiphon.models.scripted import ScriptedModel
from antiphon.responses.gate import Gate
from antiphon.responses.intake import Intake
from antiphon.responses.request import EffectiveRequest, RequestReader
from antiphon.settings import Settings
from antiphon.spec import Contract

STRICT_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}


@pytest.fixture
def intake(contract: Contract) -> Any:
    """Takes a body, with settings: `intake(body, max_tools=2)`."""

    def accept(body: dict[str, Any], **settings: Any) -> EffectiveRequest:
        reader = RequestReader(Router([ScriptedModel("test-model", [])], {}))
        options = Settings(**settings)
        taken = Intake(Gate(contract), reader, stores=True, options=options)
        request, _ = asyncio.run(taken.accept({"input": "hi", **body}))
        return request

    return accept


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", **fields}


def answer(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "out", "schema": schema, **fields}}}


@pytest.mark.parametrize(
    ("schema", "place", "keyword"),
    [
        ({"type": "not-a-type"}, "", "type"),
        (
            {**STRICT_SCHEMA, "properties": {"a": {"$ref": "#/$defs/Missing"}}},
            "/properties/a",
            "$ref",
        ),
        ({"type": "object", "patternProperties": {"^x": {}}}, "", "additionalProperties"),
        (OPEN_SCHEMA, "", "additionalProperties"),
        ({**STRICT_SCHEMA, "required": []}, "", "required"),
        ({"type": "array", "items": {}}, "", "type"),
    ],
)
def test_jso_01_a_schema_that_cannot_be_held_to_is_refused_by_place_and_keyword(
    intake: Any, schema: Any, place: str, keyword: str
):
    bodies = {
        "text.format.schema": answer(schema, strict=True),
        "tools[1].parameters": {
            "tools": [function(name="g"), function(parameters=schema, strict=True)]
        },
    }
    for param, body in bodies.items():
        with pytest.raises(errors.InvalidJSONSchema) as caught:
            intake(body)
        assert caught.value.param == param
        assert place in caught.value.message and keyword in caught.value.message


def test_the_place_of_a_schema_is_that_in_the_request_whatever_was_left_out(intake: Any):
    broken = function(parameters=OPEN_SCHEMA, strict=True)
    namespace = {"type": "namespace", "name": "n", "tools": [function(name="g"), broken]}
    item = {"type": "additional_tools", "tools": [{"type": "web_search"}, broken]}
    bodies = {
        "tools[2].parameters": {"tools": [{"type": "web_search"}, function(name="g"), broken]},
        "tools[1].tools[1].parameters": {"tools": [{"type": "web_search"}, namespace]},
        "input[1].tools[1].parameters": {"input": [{"role": "user", "content": "hi"}, item]},
    }
    for param, body in bodies.items():
        with pytest.raises(errors.InvalidJSONSchema) as caught:
            intake(body)
        assert caught.value.param == param


def test_schemas_that_can_be_held_to_are_taken(intake: Any):
    intake(answer(STRICT_SCHEMA, strict=True))
    intake({"tools": [function(parameters=STRICT_SCHEMA, strict=True)]})


def test_what_is_not_strict_needs_no_strict_schema(intake: Any):
    intake(answer(OPEN_SCHEMA))
    intake({"tools": [function(parameters=OPEN_SCHEMA)]})
    intake({"tools": [function(parameters={"type": "not-a-type"})]})


def test_jso_01_an_answer_s_schema_is_one_even_if_it_is_not_strict(intake: Any):
    with pytest.raises(errors.InvalidJSONSchema):
        intake(answer({"type": "not-a-type"}))


@pytest.mark.parametrize(
    ("settings", "schema"),
    [
        ({"max_schema_bytes": 1024}, {**STRICT_SCHEMA, "description": "x" * 1024}),
        ({"max_schema_depth": 1}, {"type": "array", "items": {"items": {}}}),
        ({"max_schema_properties": 1}, {"properties": {"a": {}, "b": {}}}),
        ({"max_schema_enum_values": 1}, {"enum": [1, 2]}),
    ],
)
def test_schemas_may_be_so_large_and_no_larger(intake: Any, settings: Any, schema: Any):
    intake(answer(schema))
    with pytest.raises(errors.InvalidJSONSchema) as caught:
        intake(answer(schema), **settings)
    assert caught.value.param == "text.format.schema"


def test_grammars_may_be_so_large_and_no_larger(intake: Any):
    grammar = {**LARK, "definition": f'start: "{"é" * 600}"'}
    custom = {"tools": [{"type": "custom", "name": "c", "format": grammar}]}
    intake(custom)
    with pytest.raises(errors.InvalidJSONSchema) as caught:
        intake(custom, max_schema_bytes=1024)
    assert caught.value.param == "tools[0].format.definition"


def test_there_may_be_so_many_tools_and_no_more(intake: Any):
    tools = [function(name=f"f{number}") for number in range(128)]
    intake({"tools": tools})
    with pytest.raises(errors.ArrayTooLong) as caught:
        intake({"tools": [*tools, function()]})
    assert caught.value.param == "tools"
    item = {"type": "tool_search_output", "tools": tools[:3]}
    with pytest.raises(errors.ArrayTooLong) as caught:
        intake({"input": [item]}, max_tools=2)
    assert caught.value.param == "input[0].tools"


def test_two_tools_of_one_name_are_refused(intake: Any):
    with pytest.raises(errors.InvalidValue) as caught:
        intake({"tools": [{"type": "web_search"}, function(), function()]})
    assert caught.value.param == "tools[2].name"
