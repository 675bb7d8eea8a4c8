"""What of a schema is named when a grammar cannot be made of it."""

from typing import Any

import pytest
from grammar_walks import plain_speaker
from tiny_models import run

from antiphon.engine.grammar.errors import GrammarRefused
from antiphon.formats.grammars.turn import answer_grammar
from antiphon.models.culprits import culprit
from antiphon.schemas import InvalidSchema
from antiphon.turn import AnswerFormat


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def blamed(schema: dict[str, Any]) -> InvalidSchema:
    compiler = plain_speaker().compiler()

    async def refused() -> InvalidSchema:
        with pytest.raises(GrammarRefused) as error:
            await compiler.compile(answer_grammar(AnswerFormat(schema, strict=True)))
        return await culprit(compiler, schema, str(error.value))

    try:
        return run(refused())
    finally:
        compiler.close()


NAME = {"type": "string", "maxLength": 5}


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        (closed(a=NAME, b={"type": "string", "pattern": "a(?=b)"}), "/properties/b", "pattern"),
        (closed(a={"oneOf": [NAME, {"type": "string"}]}), "/properties/a", "oneOf"),
        (closed(a=closed(b={"enum": []}, c=NAME)), "/properties/a/properties/b", "enum"),
        (closed(a={**closed(), "minProperties": 1}), "/properties/a", "minProperties"),
        (closed(a={"type": "integer", "minimum": 5, "maximum": 4}), "/properties/a", "minimum"),
        (
            closed(
                a={"type": "array", "items": {"allOf": [NAME, {"type": "null"}]}, "minItems": 1}
            ),
            "/properties/a/items",
            "allOf",
        ),
        (
            {**closed(a={"$ref": "#/$defs/x"}), "$defs": {"x": {**NAME, "pattern": r"\1"}}},
            "/$defs/x",
            "pattern",
        ),
        (closed(**{"a/b~": {**NAME, "minLength": 6}}), "/properties/a~1b~0", "minLength"),
    ],
)
def test_the_innermost_part_and_its_keyword_are_named(
    schema: dict[str, Any], pointer: str, keyword: str
):
    error = blamed(schema)
    assert error.pointer == pointer
    assert keyword == error.keyword or {keyword, error.keyword} <= set(_at(schema, pointer))
    assert f"'{error.keyword}'" in str(error)


def test_a_schema_that_refers_to_itself_is_searched_once():
    node = closed(value={"type": "string", "pattern": "a(?=b)"}, next={"anyOf": [{}, {}]})
    node["properties"]["next"] = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    error = blamed({**closed(first={"$ref": "#/$defs/node"}), "$defs": {"node": node}})
    assert (error.pointer, error.keyword) == ("/$defs/node/properties/value", "pattern")


def test_a_large_schema_is_judged_by_the_message_alone():
    many = {f"p{number}": NAME for number in range(600)}
    error = blamed(closed(**many, last={"oneOf": [NAME, {"type": "string"}]}))
    assert (error.pointer, error.keyword) == ("/properties/last", "oneOf")


def _at(schema: dict[str, Any], pointer: str) -> dict[str, Any]:
    found: Any = schema
    for step in pointer.split("/")[1:]:
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found
