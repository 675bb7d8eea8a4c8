"""What a client is told of a body that the document refuses: one place, one mistake."""

import json
from random import Random
from typing import Any

import orjson
import pytest
from damage import recorded_bodies, refused, whereabouts
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import errors
from antiphon.spec import Contract, packaged_contract
from antiphon.spec.explain import dotted, has_type, json_type, listed, shown

CREATE = "#/components/schemas/CreateResponse"
COUNT = "#/components/schemas/CountInputTokens"
CONVERSATION_ITEMS = "#/components/schemas/CreateConversationItems"


def explained(contract: Contract, body: Any, pointer: str = CREATE) -> errors.InvalidRequest:
    assert not contract.accepts(pointer, body)
    error = contract.explain(pointer, body)
    assert isinstance(error, errors.InvalidRequest)
    return error


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


def user(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


def tool(**fields: Any) -> dict[str, Any]:
    return {"input": "x", "tools": [fields]}


def choice(value: Any) -> dict[str, Any]:
    return {"input": "x", "tool_choice": value}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
FUNCTION = {"type": "function", "name": "f"}

WRONG_BODIES = [
    # The body itself.
    ([], errors.InvalidType, None),
    (None, errors.InvalidType, None),
    ("text", errors.InvalidType, None),
    (5, errors.InvalidType, None),
    # A value of another type.
    ({"model": 5}, errors.InvalidType, "model"),
    ({"model": ["a"]}, errors.InvalidType, "model"),
    ({"instructions": {"a": 1}}, errors.InvalidType, "instructions"),
    ({"stream": "true"}, errors.InvalidType, "stream"),
    ({"stream": 1}, errors.InvalidType, "stream"),
    ({"temperature": "hot"}, errors.InvalidType, "temperature"),
    ({"temperature": True}, errors.InvalidType, "temperature"),
    ({"max_output_tokens": False}, errors.InvalidType, "max_output_tokens"),
    ({"max_output_tokens": 16.5}, errors.InvalidType, "max_output_tokens"),
    ({"tools": {}}, errors.InvalidType, "tools"),
    ({"include": "message.output_text.logprobs"}, errors.InvalidType, "include"),
    ({"metadata": []}, errors.InvalidType, "metadata"),
    ({"reasoning": "high"}, errors.InvalidType, "reasoning"),
    ({"text": "text"}, errors.InvalidType, "text"),
    ({"prompt": "pmpt_1"}, errors.InvalidType, "prompt"),
    # A union of types.
    ({"input": 5}, errors.InvalidType, "input"),
    ({"input": {"role": "user"}}, errors.InvalidType, "input"),
    ({"conversation": 5}, errors.InvalidType, "conversation"),
    ({"conversation": {}}, errors.MissingParameter, "conversation.id"),
    ({"conversation": {"id": ""}}, errors.StringTooShort, "conversation.id"),
    # Lists.
    ({"input": ["x"]}, errors.InvalidType, "input[0]"),
    ({"input": [None]}, errors.InvalidType, "input[0]"),
    ({"input": [[{"role": "user", "content": "x"}]]}, errors.InvalidType, "input[0]"),
    ({"include": [None]}, errors.InvalidType, "include[0]"),
    ({"include": ["nothing"]}, errors.InvalidValue, "include[0]"),
    (
        {"include": ["message.output_text.logprobs", 5]},
        errors.InvalidType,
        "include[1]",
    ),
    # Items: by their type.
    (item(type="message"), errors.MissingParameter, "input[0].role"),
    (item(type="message", role="user"), errors.MissingParameter, "input[0].content"),
    (item(type="message", role="assistant"), errors.MissingParameter, "input[0].content"),
    (item(type="telegram", role="user", content="x"), errors.InvalidValue, "input[0].type"),
    (item(type=5, role="user", content="x"), errors.InvalidType, "input[0].type"),
    (item(type=["message"], role="user", content="x"), errors.InvalidType, "input[0].type"),
    (item(type="function_call"), errors.MissingParameter, "input[0].call_id"),
    (item(**CALL | {"call_id": ""}), errors.StringTooShort, "input[0].call_id"),
    (item(**CALL | {"call_id": "c" * 65}), errors.StringTooLong, "input[0].call_id"),
    (item(**CALL | {"arguments": {}}), errors.InvalidType, "input[0].arguments"),
    (item(**CALL | {"arguments": None}), errors.InvalidType, "input[0].arguments"),
    (item(**CALL | {"name": None}), errors.InvalidType, "input[0].name"),
    (
        item(type="function_call_output", call_id="c"),
        errors.MissingParameter,
        "input[0].output",
    ),
    (
        item(type="function_call_output", call_id="c", output={"a": 1}),
        errors.InvalidType,
        "input[0].output",
    ),
    (
        item(type="function_call_output", call_id="c", output=[{"type": "output_text"}]),
        errors.InvalidValue,
        "input[0].output[0].type",
    ),
    (item(type="reasoning", summary="x"), errors.InvalidType, "input[0].summary"),
    (
        item(type="reasoning", summary=[{"type": "summary_text"}]),
        errors.MissingParameter,
        "input[0].summary[0].text",
    ),
    (
        item(type="reasoning", content=[{"type": "text", "text": "x"}]),
        errors.InvalidValue,
        "input[0].content[0].type",
    ),
    (item(type="item_reference"), errors.MissingParameter, "input[0].id"),
    (item(type="item_reference", id=""), errors.StringTooShort, "input[0].id"),
    # Items: by their role where there is no type.
    (item(role="user"), errors.MissingParameter, "input[0].content"),
    (item(role="user", content=None), errors.InvalidType, "input[0].content"),
    (item(role="user", content=5), errors.InvalidType, "input[0].content"),
    (item(role="user", content={"text": "x"}), errors.InvalidType, "input[0].content"),
    (item(role="assistant", content=5), errors.InvalidType, "input[0].content"),
    (item(role="tool", content="x", tool_call_id="c"), errors.InvalidValue, "input[0].role"),
    (item(type="message", role="tool", content="x"), errors.InvalidValue, "input[0].role"),
    (item(type=None, role="tool", content="x"), errors.InvalidValue, "input[0].role"),
    (item(role="critic", id="msg_1"), errors.InvalidValue, "input[0].role"),
    (item(role=None, content="x"), errors.InvalidType, "input[0].role"),
    (item(role=5, content="x"), errors.InvalidType, "input[0].role"),
    # Items: without what tells them apart.
    (item(), errors.MissingParameter, "input[0].type"),
    (item(text="x"), errors.MissingParameter, "input[0].type"),
    (item(content="x"), errors.MissingParameter, "input[0].role"),
    (item(id=5), errors.InvalidType, "input[0].id"),
    (item(call_id="c", output="x"), errors.MissingParameter, "input[0].type"),
    # Parts.
    (user("x"), errors.InvalidType, "input[0].content[0]"),
    (user({}), errors.MissingParameter, "input[0].content[0].type"),
    (user({"text": "x"}), errors.MissingParameter, "input[0].content[0].type"),
    (user({"type": "text", "text": "x"}), errors.InvalidValue, "input[0].content[0].type"),
    (user({"type": None, "text": "x"}), errors.InvalidType, "input[0].content[0].type"),
    (user({"type": "input_text"}), errors.MissingParameter, "input[0].content[0].text"),
    (user({"type": "input_text", "text": 5}), errors.InvalidType, "input[0].content[0].text"),
    (
        user({"type": "input_text", "text": "a"}, {"type": "input_text", "text": None}),
        errors.InvalidType,
        "input[0].content[1].text",
    ),
    (
        user({"type": "input_image", "image_url": {"url": "x"}}),
        errors.InvalidType,
        "input[0].content[0].image_url",
    ),
    (
        user({"type": "input_image", "detail": "very"}),
        errors.InvalidValue,
        "input[0].content[0].detail",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "x"}}),
        errors.MissingParameter,
        "input[0].content[0].input_audio.format",
    ),
    # The assistant's parts in a user's message, and the reverse.
    (user({"type": "output_text", "text": "x"}), errors.InvalidValue, "input[0].content[0].type"),
    (user({"type": "refusal", "refusal": "x"}), errors.InvalidValue, "input[0].content[0].type"),
    (
        item(role="assistant", content=[{"type": "input_text", "text": "x"}]),
        errors.InvalidValue,
        "input[0].content[0].type",
    ),
    (
        item(role="assistant", content=[{"type": "output_text", "text": "x", "annotations": {}}]),
        errors.InvalidType,
        "input[0].content[0].annotations",
    ),
    # Tools.
    ({"tools": ["web_search"]}, errors.InvalidType, "tools[0]"),
    (tool(), errors.MissingParameter, "tools[0].type"),
    (tool(name="f"), errors.MissingParameter, "tools[0].type"),
    (tool(type="function"), errors.MissingParameter, "tools[0].name"),
    (tool(type="function", function={"name": "f"}), errors.MissingParameter, "tools[0].name"),
    (tool(type="function", name=""), errors.StringTooShort, "tools[0].name"),
    (tool(type=5), errors.InvalidType, "tools[0].type"),
    (tool(type=None), errors.InvalidType, "tools[0].type"),
    (tool(**FUNCTION, strict="yes"), errors.InvalidType, "tools[0].strict"),
    (tool(**FUNCTION, parameters=[]), errors.InvalidType, "tools[0].parameters"),
    (tool(**FUNCTION, allowed_callers=[5]), errors.InvalidType, "tools[0].allowed_callers[0]"),
    (
        tool(type="namespace", name="n", tools=[{"type": "namespace", "name": "m", "tools": []}]),
        errors.InvalidValue,
        "tools[0].tools[0].type",
    ),
    (
        tool(type="custom", name="n", format={"type": "grammar", "syntax": "ebnf"}),
        errors.MissingParameter,
        "tools[0].format.definition",
    ),
    (
        tool(type="custom", name="n", format={"type": "grammar", "syntax": "x", "definition": ""}),
        errors.InvalidValue,
        "tools[0].format.syntax",
    ),
    # The choice of tools: a word, or an object by its type.
    (choice("any"), errors.InvalidValue, "tool_choice"),
    (choice(5), errors.InvalidType, "tool_choice"),
    (choice([]), errors.InvalidType, "tool_choice"),
    (choice({}), errors.MissingParameter, "tool_choice.type"),
    (choice({"type": "function"}), errors.MissingParameter, "tool_choice.name"),
    (
        choice({"type": "function", "function": {"name": "f"}}),
        errors.MissingParameter,
        "tool_choice.name",
    ),
    (choice({"type": "psychic"}), errors.InvalidValue, "tool_choice.type"),
    (
        choice({"type": "allowed_tools", "tools": []}),
        errors.ArrayTooShort,
        "tool_choice.tools",
    ),
    (
        choice({"type": "allowed_tools", "mode": "all", "tools": [{}]}),
        errors.InvalidValue,
        "tool_choice.mode",
    ),
    (
        choice({"type": "allowed_tools", "tools": ["f"]}),
        errors.InvalidType,
        "tool_choice.tools[0]",
    ),
    # Options.
    ({"text": {"format": "json"}}, errors.InvalidType, "text.format"),
    ({"text": {"format": {}}}, errors.MissingParameter, "text.format.type"),
    ({"text": {"format": {"type": "xml"}}}, errors.InvalidValue, "text.format.type"),
    ({"text": {"format": {"type": None}}}, errors.InvalidType, "text.format.type"),
    ({"text": {"verbosity": "chatty"}}, errors.InvalidValue, "text.verbosity"),
    ({"reasoning": {"effort": "huge"}}, errors.InvalidValue, "reasoning.effort"),
    ({"reasoning": {"effort": 3}}, errors.InvalidType, "reasoning.effort"),
    ({"truncation": "middle"}, errors.InvalidValue, "truncation"),
    ({"service_tier": "first class"}, errors.InvalidValue, "service_tier"),
    ({"context_management": [{}]}, errors.MissingParameter, "context_management[0].type"),
    # Ranges.
    ({"temperature": -0.1}, errors.DecimalBelowMinimum, "temperature"),
    ({"temperature": 2.1}, errors.DecimalAboveMaximum, "temperature"),
    ({"temperature": 3}, errors.DecimalAboveMaximum, "temperature"),
    ({"top_p": 1.5}, errors.DecimalAboveMaximum, "top_p"),
    ({"presence_penalty": -2.5}, errors.DecimalBelowMinimum, "presence_penalty"),
    ({"frequency_penalty": 1e308}, errors.DecimalAboveMaximum, "frequency_penalty"),
    ({"max_output_tokens": 0}, errors.IntegerBelowMinimum, "max_output_tokens"),
    ({"max_output_tokens": -16.0}, errors.IntegerBelowMinimum, "max_output_tokens"),
    ({"max_tool_calls": 0}, errors.IntegerBelowMinimum, "max_tool_calls"),
    ({"top_logprobs": 21}, errors.IntegerAboveMaximum, "top_logprobs"),
    ({"top_logprobs": 21.0}, errors.IntegerAboveMaximum, "top_logprobs"),
    ({"seed": 1e300}, errors.IntegerAboveMaximum, "seed"),
    ({"seed": -(2.0**64)}, errors.IntegerBelowMinimum, "seed"),
    # Lengths.
    ({"safety_identifier": "u" * 65}, errors.StringTooLong, "safety_identifier"),
    ({"user": "u" * 513}, errors.StringTooLong, "user"),
    ({"prompt_cache_key": "k" * 257}, errors.StringTooLong, "prompt_cache_key"),
    # Metadata.
    (
        {"metadata": {f"k{n}": "v" for n in range(17)}},
        errors.TooManyProperties,
        "metadata",
    ),
    ({"metadata": {"k" * 65: "v"}}, errors.StringTooLong, "metadata"),
    ({"metadata": {"k": "v" * 513}}, errors.StringTooLong, "metadata.k"),
    ({"metadata": {"k": 5}}, errors.InvalidType, "metadata.k"),
    ({"metadata": {"k": None}}, errors.InvalidType, "metadata.k"),
    ({"metadata": {"k": {"deep": "v"}}}, errors.InvalidType, "metadata.k"),
    ({"client_metadata": {"k": 5}}, errors.InvalidType, "client_metadata.k"),
]


@pytest.mark.parametrize(("body", "kind", "param"), WRONG_BODIES)
def test_a_wrong_body_is_explained_by_its_place_and_kind(
    contract: Contract, body: Any, kind: type[errors.InvalidRequest], param: str | None
):
    error = explained(contract, body)
    assert (type(error), error.param) == (kind, param), error.message
    assert param is None or f"'{param}'" in error.message or kind is errors.InvalidValue


def test_every_kind_of_mistake_that_can_be_explained_is_in_the_table():
    kinds = {kind for _, kind, _ in WRONG_BODIES}
    assert kinds == {
        errors.InvalidType,
        errors.InvalidValue,
        errors.MissingParameter,
        errors.IntegerBelowMinimum,
        errors.IntegerAboveMaximum,
        errors.DecimalBelowMinimum,
        errors.DecimalAboveMaximum,
        errors.StringTooShort,
        errors.StringTooLong,
        errors.ArrayTooShort,
        errors.TooManyProperties,
    }


def test_more_items_than_a_conversation_takes_at_once_are_explained(contract: Contract):
    error = explained(
        contract, {"items": [{"role": "user", "content": "hi"}] * 21}, CONVERSATION_ITEMS
    )
    assert (type(error), error.param) == (errors.ArrayTooLong, "items")
    assert "at most 20" in error.message


@pytest.mark.parametrize(
    ("parameter", "value", "kind"),
    [
        ("Limit", 0, errors.IntegerBelowMinimum),
        ("Limit", 101, errors.IntegerAboveMaximum),
        ("Limit", "many", errors.InvalidType),
        ("Order", "sideways", errors.InvalidValue),
        ("StartingAfter", -1, errors.IntegerBelowMinimum),
        ("StartingAfter", 10**30, errors.IntegerAboveMaximum),
        ("IdempotencyKey", "", errors.StringTooShort),
        ("IdempotencyKey", "k" * 256, errors.StringTooLong),
    ],
)
def test_a_wrong_parameter_is_explained_by_its_name(
    contract: Contract, parameter: str, value: Any, kind: type[errors.InvalidRequest]
):
    pointer = f"#/components/parameters/{parameter}/schema"
    assert not contract.accepts(pointer, value)
    error = contract.explain(pointer, value, name="the-name")
    assert (type(error), error.param) == (kind, "the-name"), error.message


@pytest.mark.parametrize(
    "body",
    [
        {"max_output_tokens": 16.0},
        {"max_output_tokens": 2**64},
        {"top_logprobs": 20.0},
        {"temperature": 0},
        {"temperature": 2},
        {"seed": 2**64 - 1},
        {"seed": -(2**63)},
        {"metadata": {f"k{n}" + "k" * 60: "v" * 512 for n in range(10, 16)}},
        {"metadata": {f"k{n}": "" for n in range(16)}},
        tool(type="telepathy"),
        tool(type="telepathy", name=5, tools="x"),
        tool(type=""),
    ],
)
def test_what_lies_just_inside_the_rules_is_accepted(contract: Contract, body: Any):
    assert contract.accepts(CREATE, body)


def test_of_several_mistakes_the_first_in_the_body_is_named(contract: Contract):
    error = explained(contract, {"temperature": "hot", "model": 5})
    assert error.param == "temperature"


def test_a_message_names_what_would_have_been_right(contract: Contract):
    assert explained(contract, {"truncation": "middle"}).message == (
        "Invalid value: 'middle'. Supported values are: 'auto' and 'disabled'."
    )
    assert explained(contract, {"input": 5}).message == (
        "Invalid type for 'input': expected an array or a string, but got an integer instead."
    )
    assert explained(contract, {"max_output_tokens": 0}).message == (
        "Invalid 'max_output_tokens': expected at least 1, but got 0."
    )
    assert explained(contract, []).message == "The body must be an object, but it is an array."
    assert explained(contract, item(role="tool", content="x")).message == (
        "Invalid value: 'tool'. "
        "Supported values are: 'user', 'system', 'developer' and 'assistant'."
    )


def test_null_is_never_named_as_something_to_send(contract: Contract):
    for body in ({"stream": "x"}, {"truncation": "x"}, {"tools": "x"}, item(type="x")):
        assert "null" not in explained(contract, body).message


def test_where_null_is_wrong_it_is_called_null(contract: Contract):
    message = explained(contract, item(role="user", content=None)).message
    assert message.endswith("but got null instead.")


SECRET = "my secret plan " * 500


@pytest.mark.parametrize(
    "body",
    [
        {"truncation": SECRET},
        {"stream": SECRET},
        {"temperature": SECRET},
        {"user": SECRET},
        {"metadata": {"k": SECRET}},
        {"tool_choice": SECRET},
        {"include": [SECRET]},
        {"input": [SECRET]},
        {"input": {"a": SECRET}},
        item(type=SECRET),
        item(role=SECRET, content=SECRET),
        item(role="user", content={"text": SECRET}),
        user({"type": SECRET, "text": SECRET}),
        tool(type={"a": SECRET}),
    ],
)
def test_a_message_shows_at_most_64_characters_of_a_value(contract: Contract, body: Any):
    message = explained(contract, body).message
    assert SECRET[:64] not in message
    assert len(message) < 1000


def test_no_number_that_is_no_number_reaches_the_document():
    for text in (b'{"temperature": NaN}', b'{"temperature": Infinity}', b'{"temperature": 1e999}'):
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(text)


def test_counting_is_explained_by_its_own_schema(contract: Contract):
    error = explained(contract, {"input": [{"role": "user"}]}, COUNT)
    assert (type(error), error.param) == (errors.MissingParameter, "input[0].content")


def test_output_schemas_are_explained_down_to_fields_that_do_not_belong(contract: Contract):
    pointer = "#/components/schemas/ErrorDetail"
    detail = {"message": "m", "type": "server_error", "param": None, "code": "server_error"}
    assert contract.accepts(pointer, detail)
    error = explained(contract, {**detail, "extra": 1}, pointer)
    assert (type(error), error.param) == (errors.UnknownParameter, "extra")


def test_a_refusal_that_cannot_be_placed_is_still_a_refusal(contract: Contract):
    pointer = "#/components/schemas/KnownToolType"
    error = contract.explain(pointer, "function")  # It fits.
    assert type(error) is errors.InvalidValue and error.param is None


# Damaged bodies


def sound_bodies() -> list[dict[str, Any]]:
    examples = packaged_contract().document["components"]["examples"]
    written = [e["value"] for name, e in examples.items() if name.startswith("create_")]
    return [body for _, body in recorded_bodies()] + written


SOUND = sound_bodies()


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_is_wrong_its_explanation_leads_to_a_place_in_the_body(seed: int):
    contract = packaged_contract()
    random = Random(seed)
    body = refused(random.choice(SOUND), random, lambda body: contract.accepts(CREATE, body))
    body = orjson.loads(orjson.dumps(body))  # As the server sees it.
    if contract.accepts(CREATE, body):
        return
    error = contract.explain(CREATE, body)
    assert isinstance(error, errors.InvalidRequest)
    assert "x" * 65 not in error.message and "y" * 65 not in error.message
    if error.param is None:
        assert not isinstance(body, dict)
    elif isinstance(error, errors.MissingParameter):
        assert whereabouts(body, error.param) == "missing", (error.param, json.dumps(body))
    else:
        assert whereabouts(body, error.param) in ("there", "null"), (error.param, json.dumps(body))


def test_damage_is_repeated_by_its_seed():
    contract = packaged_contract()

    def run(seed: int) -> Any:
        random = Random(seed)
        return refused(SOUND[0], random, lambda body: contract.accepts(CREATE, body))

    assert run(7) == run(7)
    assert any(run(7) != run(seed) for seed in range(8, 20))


@pytest.mark.parametrize(
    ("param", "place"),
    [
        ("a", "there"),
        ("a.b", "there"),
        ("a.b[1]", "null"),
        ("a.b[2]", None),
        ("a.b[0].c", "there"),
        ("a.b[0].zz", "missing"),
        ("a.b.zz", None),
        ("a.x.y", "there"),
        ("zz", "missing"),
        ("zz.y", None),
        ("a.zz.y", None),
    ],
)
def test_a_path_is_found_again(param: str, place: str | None):
    assert whereabouts({"a": {"b": [{"c": 1}, None], "x.y": 2}}, param) == place


# Its parts


def test_paths_are_written_as_clients_know_them():
    assert dotted(()) is None
    assert dotted(("input", 3, "content", 0, "type")) == "input[3].content[0].type"


def test_booleans_are_no_numbers_and_whole_floats_are_integers():
    assert json_type(True) == "boolean" and not has_type(True, ["integer", "number"])
    assert has_type(16.0, ["integer"]) and not has_type(16.5, ["integer"])
    assert has_type(16, ["number"]) and not has_type("16", ["integer", "number"])


def test_values_are_shown_as_json_has_them():
    assert [shown(v) for v in (True, False, None, 5, 0.5, "a", [1], {"a": 1})] == [
        "true",
        "false",
        "null",
        "5",
        "0.5",
        "'a'",
        "an array",
        "an object",
    ]
    assert shown("x" * 64) == f"'{'x' * 64}'"
    assert shown("x" * 65) == f"'{'x' * 63}…'"


def test_lists_are_read_as_a_sentence():
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
