import json
import time
from typing import Any

import pytest

from antiphon.schemas import (
    InvalidSchema,
    SchemaLimits,
    blame,
    check_schema,
    enforceable,
    validate_answer,
)


def closed(**properties: Any) -> dict[str, Any]:
    """An object as strict schemas want it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def refusal(schema: Any, *, strict: bool = True, **limits: int) -> tuple[str, str]:
    with pytest.raises(InvalidSchema) as caught:
        check_schema(schema, strict=strict, limits=SchemaLimits(**limits))
    assert caught.value.pointer in str(caught.value)
    return caught.value.pointer, caught.value.keyword


TREE = {
    **closed(value={"type": "integer"}, below={"type": "array", "items": {"$ref": "#"}}),
    "title": "Tree",
}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a={"type": "string", "minLength": 1, "pattern": "^a", "format": "date"}),
        closed(a={"enum": ["x", 1, None]}, b={"const": True}),
        closed(a={"anyOf": [{"type": "null"}, closed(b={"type": "number"})]}),
        TREE,
        {"$ref": "#/$defs/node", "$defs": {"node": closed(next={"$ref": "#/$defs/node"})}},
        closed(a={"$ref": "#/$defs/x~1y"}) | {"$defs": {"x/y": {"type": "string"}}},
        closed(a={"$ref": "#far"}) | {"$defs": {"b": {"$anchor": "far", "type": "string"}}},
        closed(a={"type": "array", "uniqueItems": False, "minContains": 2}),
        closed(a={"type": "string", "then": {"minLength": 2}}),
        closed(a={"description": "Anything", "title": "A", "default": 1, "examples": [2]}),
        {"$schema": "http://json-schema.org/draft-07/schema#", **closed(a={"type": "string"})},
    ],
)
def test_a_strict_schema_is_taken(schema: dict[str, Any]):
    check_schema(schema, strict=True)


@pytest.mark.parametrize(
    ("inner", "keyword"),
    [
        ({"not": {"type": "string"}}, "not"),
        ({"if": {"type": "string"}, "then": {"minLength": 1}}, "if"),
        ({"type": "array", "contains": {"type": "string"}}, "contains"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"propertyNames": {"pattern": "^a"}}, "propertyNames"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"unevaluatedItems": False}, "unevaluatedItems"),
        ({"$dynamicRef": "#a"}, "$dynamicRef"),
        ({"type": "string", "format": "phone"}, "format"),
        ({"type": "object", "properties": {}}, "additionalProperties"),
        ({"type": ["object", "null"]}, "additionalProperties"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "additionalProperties"),
        (closed(b={}) | {"required": []}, "required"),
    ],
)
def test_what_strictness_forbids_is_named_and_otherwise_taken(inner: Any, keyword: str):
    for schema, pointer in (
        (closed(**{"a/b": inner}), "/properties/a~1b"),
        (closed(a={"anyOf": [{"type": "null"}, inner]}), "/properties/a/anyOf/1"),
        (closed(a={"$ref": "#/$defs/d"}) | {"$defs": {"d": inner}}, "/$defs/d"),
    ):
        assert refusal(schema) == (pointer, keyword)
        check_schema(schema, strict=False)


@pytest.mark.parametrize(
    "root",
    [
        {"type": "array"},
        {"anyOf": [closed()]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {},
    ],
)
def test_the_root_of_a_strict_schema_is_an_object(root: Any):
    assert refusal(root) == ("", "type")


@pytest.mark.parametrize(
    ("inner", "keyword"),
    [
        ({"type": "text"}, "type"),
        ({"type": "object", "required": "a"}, "required"),
        ({"properties": []}, "properties"),
        ({"items": [{"type": "string"}]}, "items"),
        ({"minimum": 1, "exclusiveMinimum": True}, "exclusiveMinimum"),
        ({"anyOf": []}, "anyOf"),
        ({"minLength": -1}, "minLength"),
        ({"$ref": "#/$defs/nowhere"}, "$ref"),
        ({"$ref": "https://example.com/schema"}, "$ref"),
        ({"$ref": "file:///etc/passwd"}, "$ref"),
        ({"$ref": "#/properties"}, "$ref"),
        ({"$id": "https://example.com/other"}, "$id"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_no_schema_by_itself_is_named(inner: Any, keyword: str, strict: bool):
    assert refusal(closed(a=inner), strict=strict) == ("/properties/a", keyword)


@pytest.mark.parametrize(
    "circle",
    [
        {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"anyOf": [{"type": "string"}, {"allOf": [{"$ref": "#/$defs/a"}]}]}},
        {"a": {"dependentSchemas": {"dependentSchemas": {"$ref": "#/$defs/a"}}}},
    ],
)
def test_a_value_is_not_defined_by_itself(circle: Any):
    schema = closed(x={"$ref": "#/$defs/a"}) | {"$defs": circle}
    assert refusal(schema, strict=False)[1] == "$ref"


def test_schemas_have_a_size():
    many = closed(**{f"p{number}": {"type": "string"} for number in range(30)})
    assert refusal(many, properties=29) == ("", "properties")
    check_schema(many, strict=True, limits=SchemaLimits(properties=30))
    values = closed(a={"enum": list(range(20))}, b={"enum": list(range(20))})
    assert refusal(values, enum_values=39) == ("/properties/b", "enum")
    assert refusal(many, num_bytes=100) == ("", "")
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(5):
        nested = closed(a=nested)
    assert refusal(nested, depth=4) == ("/properties/a" * 5, "")
    check_schema(nested, strict=True, limits=SchemaLimits(depth=5))


def test_layers_upon_layers_are_refused_before_anything_looks_at_them():
    schema: dict[str, Any] = {}
    value: list[Any] = []
    for _ in range(100_000):
        schema, value = {"not": schema}, [value]
    for hostile in (schema, closed(a={"const": value})):
        assert refusal(hostile, strict=False) == ("", "")


def test_what_changes_nothing_is_left_out_for_a_grammar():
    schema = closed(
        a={"type": "array", "uniqueItems": False, "items": {"then": {}, "type": "string"}},
        b={"not": {"type": "string"}, "format": "phone", "minLength": 2},
    ) | {"x-guidance": {"lenient": True}}
    kept = {"not": {"type": "string"}, "format": "phone", "minLength": 2}
    plain = {"type": "array", "items": {"type": "string"}}
    assert enforceable(schema) == closed(a=plain, b=kept)
    assert enforceable(schema, strict=False) == closed(a=plain, b={"minLength": 2})
    named = closed(**{"not": {"type": "string"}})
    assert enforceable(named, strict=False) == named


@pytest.mark.parametrize(
    ("message", "pointer", "keyword"),
    [
        ("oneOf constraints are not supported.", "/properties/a", "oneOf"),
        ("regex parse error: (?=x) look-around", "/properties/c", "pattern"),
        ("min/maxProperties only supported when", "/properties/d", "minProperties"),
        ("schema too large", "", ""),
    ],
)
def test_the_place_that_a_message_is_about(message: str, pointer: str, keyword: str):
    schema = closed(
        a={"oneOf": [{}, {}]}, b={"pattern": "y"}, c={"pattern": "(?=x)"}, d={"minProperties": 3}
    )
    error = blame(schema, message)
    assert (error.pointer, error.keyword) == (pointer, keyword)
    assert message.partition(":")[0] in error.reason


@pytest.mark.parametrize(
    ("text", "schema", "wrong"),
    [
        ('{"a": 1}', closed(a={"type": "integer"}), None),
        ('{"a": 1.0}', closed(a={"type": "integer"}), None),
        ('{"a": "1"}', closed(a={"type": "integer"}), "at '/a'"),
        ("{}", closed(a={}), '"a" is a required property'),
        ('{"a": "2023-02-29"}', closed(a={"format": "date"}), "at '/a'"),
        ('{"a": "x@y.example"}', closed(a={"format": "email"}), None),
        ("1e999", {"type": "number"}, None),
        ("1e999", {"maximum": 5}, "maximum"),
        ("0.3", {"multipleOf": 0.1}, None),
        ('{"a": NaN}', {}, "NaN"),
        ('{"a": ', {}, "no JSON"),
        ("[" * 100_000, {}, "no JSON"),
        ("9" * 5000, {}, "no JSON"),
        ('{"value": 1, "below": [{"value": 2, "below": []}]}', TREE, None),
        ('{"value": 1, "below": [{"value": 2}]}', TREE, "at '/below/0'"),
        ('"x"', {"$schema": "http://json-schema.org/draft-04/schema#", "const": "x"}, None),
        ('"x"', {"$ref": "http://127.0.0.1:9/none"}, "disabled"),
        ('"x"', {"$ref": "file:///etc/hostname"}, "disabled"),
    ],
)
def test_an_answer_is_compared_with_its_schema(text: str, schema: Any, wrong: str | None):
    found = validate_answer(text, schema)
    assert (found is None) if wrong is None else (found is not None and wrong in found)


def test_a_pattern_that_runs_wild_is_given_up():
    text = json.dumps("a" * 50 + "!")
    for pattern in ("^(a+)+$", r"^(a|aa)+$(?<!b)", r"^(a+)+\1$"):
        started = time.process_time()
        assert validate_answer(text, {"pattern": pattern}) is not None
        assert time.process_time() - started < 5  # And not until the end of days.
