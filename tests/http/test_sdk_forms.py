"""Answers in a form, as the official client asks for them and reads them."""

import datetime
import enum
import uuid
from typing import Annotated, Literal

import openai
import pytest
from asked import AskedModel
from pydantic import BaseModel, ConfigDict, Field
from serving import scripted

from antiphon.schemas import validate_answer


class Colour(enum.Enum):
    RED = "röd"
    GREEN = "緑"


class Node(BaseModel):
    value: int
    children: list["Node"]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(pattern="^[A-Z]")]


class Pet(BaseModel):
    animal: Cat | Dog


class Times(BaseModel):
    day: datetime.date
    at: datetime.datetime
    id: uuid.UUID


class Everything(BaseModel):
    """Unicode in names, descriptions and values: naïve, 日本, 😀."""

    model_config = ConfigDict(populate_by_name=True)

    colour: Colour = Field(description="Färg 🎨")
    maybe: str | None
    several: list[tuple[int, str] | bool] | None
    größe: float


BAD_DAY = f'{{"day":"2023-02-29","at":"2024-02-29T12:00:00Z","id":"{uuid.UUID(int=7)}"}}'
NODE = Node(value=1, children=[Node(value=2, children=[]), Node(value=3, children=[])])
MODELS = [
    NODE,
    Pet(animal=Cat(kind="cat", lives=9)),
    Pet(animal=Dog(kind="dog", name="Ake")),
    Times(
        day=datetime.date(2024, 2, 29),
        at=datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
        id=uuid.UUID(int=7),
    ),
    Everything(colour=Colour.GREEN, maybe=None, several=[True, False], größe=1.5),
]


@pytest.mark.parametrize("value", MODELS, ids=lambda value: type(value).__name__)
def test_the_sdk_parses_models_of_every_kind(server, value):
    client = server(scripted({"text": value.model_dump_json(), "pieces": 3})).sdk()
    response = client.responses.parse(model="test-model", input="x", text_format=type(value))
    assert response.output_parsed == value
    assert response.text.format.strict is True


@pytest.mark.parametrize("value", MODELS, ids=lambda value: type(value).__name__)
def test_the_sdk_streams_models_of_every_kind(server, value):
    text = value.model_dump_json()
    client = server(scripted({"reasoning": "hm"}, {"text": text, "pieces": 3})).sdk()
    with client.responses.stream(model="test-model", input="x", text_format=type(value)) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_parsed == value
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == text
    assert len(deltas) > 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Node, '{"value":1,"children":[{"value":"2","children":[]}]}'),
        (Pet, '{"animal":{"kind":"cat","name":"A"}}'),
        (Pet, '{"animal":{"kind":"dog","name":"a"}}'),
        (Times, BAD_DAY),
        (Everything, '{"colour":"blue","maybe":null,"several":null,"größe":1}'),
    ],
)
def test_what_does_not_fit_a_model_is_no_completed_answer(server, kind, text):
    form = {"type": "json_schema", "name": "x", "schema": kind.model_json_schema()}
    served = server(scripted({"text": text}))
    response = served.create({"input": "x", "text": {"format": form}})
    assert (response["status"], response["error"]["code"]) == ("failed", "invalid_answer")
    assert response["usage"]["output_tokens"] == 1


def test_the_sdk_raises_what_is_wrong_with_a_schema(server):
    client = server().sdk()
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b/c": {"not": {}}}}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="test-model", input="x", text={"format": form})
    assert raised.value.code == "invalid_json_schema"
    assert raised.value.param == "text.format.schema"


def test_the_model_is_given_the_form_as_it_was_sent(server):
    model = AskedModel(("", [{"text": NODE.model_dump_json()}]))
    server(model).sdk().responses.parse(model="test-model", input="x", text_format=Node)
    answer = model.turns[-1].answer
    assert answer.strict
    assert validate_answer(NODE.model_dump_json(), answer.schema) is None


def test_the_sdk_parses_the_arguments_of_strict_functions(server):
    call = {"call": "Pet", "arguments": MODELS[1].model_dump_json(), "pieces": 4}
    client = server(scripted(call)).sdk()
    tools = [openai.pydantic_function_tool(Pet)]
    response = client.responses.parse(model="test-model", input="x", tools=tools)
    assert response.output[0].parsed_arguments == MODELS[1]
    with client.responses.stream(model="test-model", input="x", tools=tools) as stream:
        assert stream.get_final_response().output[0].parsed_arguments == MODELS[1]


def test_jso_04_white_space_around_an_answer_is_no_fault(server):
    text = "\n\n " + NODE.model_dump_json(indent=2) + "\n"
    client = server(scripted({"text": text, "pieces": 1})).sdk()
    response = client.responses.parse(model="test-model", input="x", text_format=Node)
    assert response.output_parsed == NODE


def test_verbosity_is_left_out_and_named(server):
    served = server(scripted({"text": "ok"}))
    low = served.post({"input": "x", "text": {"verbosity": "low"}})
    assert low.headers["antiphon-dropped"] == "text.verbosity"
    medium = served.post({"input": "x", "text": {"verbosity": "medium"}})
    assert "antiphon-dropped" not in medium.headers
