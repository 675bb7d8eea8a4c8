"""The document: what is packaged is what was written, and it is sound and says enough."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import build_spec
import lint_spec
import pytest
import yaml
from bundle import SCHEMA_ORDER, BundleError, bundle
from damage import ROOT, recorded_bodies

import antiphon
from antiphon import errors
from antiphon.spec import Contract, packaged_contract
from antiphon.spec.contract import packaged_text

CREATE = "#/components/schemas/CreateResponse"
COUNT = "#/components/schemas/CountInputTokens"
#: Every body that a client sends.
REQUESTS = (
    *("CreateResponse", "CountInputTokens", "CancelResponse"),
    *("CreateConversation", "UpdateConversation", "CreateConversationItems"),
)
#: Every body that the server sends.
ANSWERS = (
    *("Response", "DeletedResponse", "ItemList", "ItemResource", "StreamEvent", "InputTokenCount"),
    *(
        "Conversation",
        "DeletedConversation",
        "ModelList",
        "CodexCatalog",
        "ServerStatus",
        "Error",
        "Health",
    ),
)

SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def source() -> dict[str, Any]:
    """The document as it is written in `openapi/`, bundled."""
    return bundle(ROOT / "openapi")


@cache
def source_coverage() -> dict[str, Any]:
    text = (ROOT / "openapi" / "coverage.yaml").read_text(encoding="utf-8")
    coverage: dict[str, Any] = yaml.safe_load(text)
    return coverage


# What is packaged


def test_the_packaged_document_is_the_written_one_and_a_chapter_on_what_is_served():
    packaged = json.loads(packaged_text("openapi.json"))
    chapter = packaged["tags"].pop()
    assert packaged == source()
    assert list(packaged["components"]["schemas"]) == list(source()["components"]["schemas"])
    assert chapter["name"] == "What is served"
    assert chapter["description"] == build_spec.coverage_tables(source_coverage())


def test_the_packaged_coverage_is_the_written_one():
    assert json.loads(packaged_text("coverage.json")) == source_coverage()


def test_the_packaged_yaml_and_json_are_the_same_document():
    packaged = yaml.load(packaged_text("openapi.yaml"), SAFE_LOADER)
    assert packaged == json.loads(packaged_text("openapi.json"))


def test_the_document_has_the_version_of_the_package():
    assert source()["info"]["version"] == antiphon.__version__


def test_the_packaged_contract_is_read_once():
    assert packaged_contract() is packaged_contract()


def test_everything_that_is_written_is_used():
    components, folder = source()["components"], ROOT / "openapi"
    examples = {file.stem for file in (folder / "examples").glob("*.yaml")}
    assert set(components["examples"]) == examples
    for kind in ("parameters", "headers", "responses"):
        written = yaml.safe_load((folder / f"{kind}.yaml").read_text(encoding="utf-8"))
        assert set(components[kind]) == set(written)


# What the document says


def test_nothing_is_wrong_with_the_document():
    assert lint_spec.problems(source(), source_coverage()) == []


def test_every_operation_but_five_needs_a_key():
    default = source()["security"]
    operations = list(lint_spec.operations(source()))
    needed = {o["operationId"]: o.get("security", default) for _, _, o, _ in operations}
    open_to_all = {name for name, security in needed.items() if not security}
    assert open_to_all == {
        "get_health",
        "get_readiness",
        "get_openapi_json",
        "get_openapi_yaml",
        "get_docs",
    }
    assert all(security in (default, []) for security in needed.values())
    schemes = source()["components"]["securitySchemes"]
    assert {name for choice in default for name in choice} == set(schemes)


def test_every_operation_that_needs_a_key_says_how_it_answers_without_one():
    default = source()["security"]
    for path, method, operation, _ in lint_spec.operations(source()):
        if operation.get("security", default):
            assert "401" in operation["responses"], f"{method} {path}"


def bodies_of(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The side, `request` or `answer`, and the schema's name of every body that has one."""
    for _, _, operation, _ in lint_spec.operations(document):
        places = [("request", operation.get("requestBody", {}))]
        for response in operation["responses"].values():
            while "$ref" in response:
                response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
            places.append(("answer", response))
        for side, place in places:
            for media_type in ("application/json", "text/event-stream"):
                schema = place.get("content", {}).get(media_type, {}).get("schema", {})
                if "$ref" in schema:
                    yield side, schema["$ref"].rpartition("/")[2]


def test_these_tests_know_every_body():
    found = set(bodies_of(source()))
    assert {name for side, name in found if side == "request"} == set(REQUESTS)
    answers = {name for side, name in found if side == "answer"}
    # A frame holds an event as text, and the document is answered as it is.
    assert answers - {"StreamFrame", "JsonObject", "ModelInfo"} == set(ANSWERS) - {"StreamEvent"}


def test_every_kind_of_output_item_can_be_given_back_from_the_store():
    def kinds(union: str) -> set[str]:
        branches = source()["components"]["schemas"][union]
        names = [b["$ref"].rpartition("/")[2] for b in branches.get("oneOf") or branches["anyOf"]]
        schemas = source()["components"]["schemas"]
        return {schemas[name]["properties"]["type"]["const"] for name in names}

    assert kinds("ItemResource") == kinds("OutputItem")


def reachable(*names: str) -> dict[str, dict[str, Any]]:
    """The schemas that are used by these, themselves included."""
    schemas = source()["components"]["schemas"]
    found: dict[str, dict[str, Any]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name]
            waiting += [ref.rpartition("/")[2] for ref in references(schemas[name])]
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


def keywords(schema: dict[str, Any]) -> Iterator[str]:
    """Every keyword in a schema, those of schemas inside it included."""
    for keyword, value in schema.items():
        yield keyword
        if keyword == "properties":
            for child in value.values():
                yield from keywords(child)
        elif keyword in ("anyOf", "oneOf", "allOf"):
            for child in value:
                yield from keywords(child)
        elif keyword in ("items", "additionalProperties", "propertyNames", "not"):
            if isinstance(value, dict):
                yield from keywords(value)


def test_what_the_server_sends_is_described_to_the_last_field():
    sent = reachable(*ANSWERS)
    open_objects = {
        name
        for name, schema in sent.items()
        if schema.get("type") == "object"
        and "properties" in schema
        and schema.get("additionalProperties") is not False
    }
    # A tool choice is given back as the request had it.
    assert {name for name in open_objects if not name.startswith("ToolChoice")} == set()


def test_what_clients_send_may_hold_fields_that_are_not_named():
    for name, schema in reachable(*REQUESTS).items():
        assert schema.get("additionalProperties") is not False, name


EXPLAINED = {
    "type",
    "properties",
    "required",
    "items",
    "anyOf",
    "oneOf",
    "not",
    "$ref",
    "const",
    "enum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "maxProperties",
    "propertyNames",
    "additionalProperties",
}
SAYS_NOTHING = {"description", "discriminator"}


def test_request_schemas_use_only_keywords_whose_refusals_can_be_explained():
    used = {keyword for schema in reachable(*REQUESTS).values() for keyword in keywords(schema)}
    assert used <= EXPLAINED | SAYS_NOTHING


def all_errors(base: type[errors.APIError] = errors.APIError) -> Iterator[type[errors.APIError]]:
    for child in base.__subclasses__():
        yield child
        yield from all_errors(child)


def test_every_error_code_has_exactly_one_class_and_every_class_a_code_of_the_document():
    codes = source()["components"]["schemas"]["ErrorCode"]["enum"]
    classes = [c for c in all_errors() if c is not errors.InvalidRequest]  # That one is abstract.
    assert sorted(c.code for c in classes) == sorted(codes)
    assert all("code" in vars(c) for c in classes)


def test_every_error_has_a_type_of_the_document_and_a_status_of_its_kind():
    types = source()["components"]["schemas"]["ErrorType"]["enum"]
    for kind in all_errors():
        assert kind.type in types
        assert kind.status in range(400, 500) if kind.type != "server_error" else range(500, 600)


def test_the_tree_in_the_docstring_of_errors_names_every_class():
    assert errors.__doc__ is not None
    for kind in all_errors():
        assert kind.__name__ in errors.__doc__


# What the document accepts


def bodies() -> list[Any]:
    examples = [
        pytest.param(CREATE, body, id=name.replace(" ", "-")) for name, body in recorded_bodies()
    ]
    for path, pointer in (("/v1/responses", CREATE), ("/v1/responses/input_tokens", COUNT)):
        content = source()["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            value = source()["components"]["examples"][example["$ref"].rpartition("/")[2]]["value"]
            examples.append(pytest.param(pointer, value))
    return examples


@pytest.mark.parametrize(("pointer", "body"), bodies())
def test_what_clients_are_known_to_send_is_accepted(contract: Contract, pointer: str, body: Any):
    assert contract.accepts(pointer, body), contract.explain(pointer, body).message


def test_there_are_recorded_bodies_of_many_clients():
    assert len({name.split()[0] for name, _ in recorded_bodies()}) >= 10


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": ""},
        {"input": []},
        item(role="user", content="hi"),
        item(role="developer", content="hi"),
        item(role="system", content=[]),
        item(role="assistant", content="hi"),
        item(role="assistant", content=[{"type": "output_text", "text": "hi"}]),
        item(type=None, role="user", content="hi", id=None, status=None),
        item(type="message", role="user", content="hi", id="whatever-1", status="half done"),
    ],
)
def test_inp_01_messages_without_a_type_and_with_text_as_content_are_accepted(
    contract: Contract, body: Any
):
    assert contract.accepts(CREATE, body), contract.explain(CREATE, body).message


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "output_text", "text": "Hi there"}],
        [{"type": "output_text", "text": "Hi", "annotations": None, "logprobs": None}],
        [{"type": "output_text", "text": "Hi", "annotations": [{"type": "new_kind"}]}],
        "(string form)",
        [{"type": "refusal", "refusal": "I cannot."}],
    ],
)
def test_inp_02_the_assistants_history_needs_no_field_that_only_answers_have(
    contract: Contract, content: Any
):
    message = {"type": "message", "role": "assistant", "content": content}
    assert contract.accepts(CREATE, {"input": [message]})


@pytest.mark.parametrize(
    "reference",
    [{"id": "msg_1"}, {"type": None, "id": "msg_1"}, {"type": "item_reference", "id": "x"}],
)
def test_inp_06_a_reference_needs_no_type(contract: Contract, reference: dict[str, Any]):
    assert contract.accepts(CREATE, {"input": [reference]})


OPTIONAL = sorted(source()["components"]["schemas"]["CreateResponse"]["properties"])


@pytest.mark.parametrize("field", OPTIONAL)
def test_inp_03_every_optional_field_may_be_null(contract: Contract, field: str):
    assert contract.accepts(CREATE, {"input": "hi", field: None})


def test_inp_03_all_optional_fields_may_be_null_at_once(contract: Contract):
    assert contract.accepts(CREATE, {**dict.fromkeys(OPTIONAL), "input": "hi"})
    counted = source()["components"]["schemas"]["CountInputTokens"]["properties"]
    assert contract.accepts(COUNT, {**dict.fromkeys(counted), "input": "hi"})


def test_inp_03_optional_fields_inside_objects_may_be_null():
    schemas = reachable(*REQUESTS)
    for name, schema in schemas.items():
        for field, child in schema.get("properties", {}).items():
            if field not in schema.get("required", ()):
                assert may_be_null(child), f"{name}.{field}"


def may_be_null(schema: dict[str, Any]) -> bool:
    return "null" in schema.get("type", ()) or {"type": "null"} in schema.get("anyOf", ())


def with_extra_fields(value: Any) -> Any:
    """The same with a field of the client's own in every object."""
    if isinstance(value, list):
        return [with_extra_fields(child) for child in value]
    if isinstance(value, dict):
        return {**{k: with_extra_fields(v) for k, v in value.items()}, "x_own": [{"deep": None}]}
    return value


@pytest.mark.parametrize(("pointer", "body"), bodies()[::4])
def test_fields_that_are_not_named_are_let_through_everywhere(
    contract: Contract, pointer: str, body: Any
):
    # Metadata hold strings only.
    body = {k: v for k, v in body.items() if k not in ("metadata", "client_metadata")}
    body = with_extra_fields(body)
    assert contract.accepts(pointer, body), contract.explain(pointer, body).message


@pytest.mark.parametrize("made_up", ["", "x", "no prefix", "é\u2028", "i" * 5000])
def test_ids_of_items_may_be_anything(contract: Contract, made_up: str):
    items = [
        {"role": "user", "content": "hi", "id": made_up},
        {"type": "reasoning", "summary": [], "id": made_up},
        {"type": "function_call", "id": made_up, "call_id": "c", "name": "f", "arguments": ""},
        {"type": "function_call_output", "id": made_up, "call_id": "c", "output": "x"},
    ]
    assert contract.accepts(CREATE, {"input": items, "previous_response_id": made_up})


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "f"},
        {"type": "function", "name": "f", "parameters": None},
        {"type": "function", "name": "f", "parameters": {}, "strict": None},
    ],
)
def test_tool_09_tools_need_no_parameters(contract: Contract, tool: dict[str, Any]):
    assert contract.accepts(CREATE, {"input": "hi", "tools": [tool]})


@pytest.mark.parametrize("output", ["", [], [{"type": "input_text", "text": "3 C"}]])
def test_tool_06_what_a_tool_gave_back_may_be_text_or_parts_or_nothing(
    contract: Contract, output: Any
):
    result = {"type": "function_call_output", "call_id": "call_1", "output": output}
    assert contract.accepts(CREATE, {"input": [result]})


@pytest.mark.parametrize(
    "reasoning",
    [
        {"type": "reasoning"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    ],
)
def test_rsn_02_replayed_reasoning_needs_none_of_its_fields(
    contract: Contract, reasoning: dict[str, Any]
):
    assert contract.accepts(CREATE, {"input": [reasoning]})


# The linter


def spoilt(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> list[str]:
    document, coverage = copy.deepcopy(source()), copy.deepcopy(source_coverage())
    change(document, coverage)
    # The validator of OpenAPI itself takes most of the time and is not ours to test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lint_spec.OpenAPIV31SpecValidator, "iter_errors", lambda self: iter(()))
        return lint_spec.problems(document, coverage)


def schema_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    schema: dict[str, Any] = document["components"]["schemas"][name]
    return schema


def set_property(name: str, field: str, schema: dict[str, Any]) -> Any:
    return lambda document, _: schema_of(document, name)["properties"].update({field: schema})


TEXT = {"type": "string", "description": "Text."}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            set_property("Usage", "cost", {"type": "object", "description": "Money."}),
            "Usage.cost has a shape of its own and no name",
        ),
        (
            set_property(
                "Usage",
                "costs",
                {"type": "array", "description": "Money.", "items": {"type": "object"}},
            ),
            "Usage.costs has a shape of its own and no name",
        ),
        *(
            (
                set_property("Usage", "cost", {"anyOf": union, "description": "Money."}),
                "Usage.cost has a shape of its own and no name",
            )
            for union in ([TEXT, TEXT], [{"type": "object"}, {"type": "null"}])
        ),
        (
            set_property(
                "Usage", "kind", {"type": "string", "enum": ["a", "b"], "description": "Kind."}
            ),
            "Usage.kind has a shape of its own and no name",
        ),
        (
            lambda document, _: schema_of(document, "InputItems").update(items={"type": "object"}),
            "InputItems items has a shape of its own and no name",
        ),
        (
            lambda document, _: schema_of(document, "Input")["anyOf"].append({"type": "object"}),
            "Input anyOf[2] has a shape of its own and no name",
        ),
        (
            lambda document, _: schema_of(document, "Usage").pop("description"),
            "Usage has no description",
        ),
        (
            set_property("Usage", "cost", {"type": "integer"}),
            "Usage.cost has no description",
        ),
        (
            lambda document, _: document["paths"]["/health"]["get"].pop("summary"),
            "GET /health has no summary",
        ),
        (
            lambda document, _: document["paths"]["/v1/responses"]["post"]["requestBody"][
                "content"
            ]["application/json"].pop("examples"),
            "POST /v1/responses has no example of its request",
        ),
        (
            lambda document, _: document["paths"]["/health"]["get"]["responses"]["200"]["content"][
                "application/json"
            ].pop("examples"),
            "GET /health has no example of its answer",
        ),
        (
            lambda document, _: document["components"]["parameters"]["ModelName"]["schema"].update(
                type=["string", "null"]
            ),
            "GET /v1/models/{model}: parameter model has no single type",
        ),
        (
            lambda document, _: document["paths"]["/health"]["get"].update(
                parameters=[{"name": "x", "in": "query", "schema": {"$ref": "#/x"}}]
            ),
            "GET /health: parameter x has no single type",
        ),
        (
            # What YAML makes of an unquoted comma in a description.
            lambda document, _: document["components"]["schemas"]["Response"]["properties"][
                "model"
            ].update({"by the name the request used.": None}),
            "Response.model has a keyword 'by the name the request used.'",
        ),
        (
            lambda _, coverage: coverage["request"].pop("model"),
            "coverage: request says nothing of model",
        ),
        (
            lambda _, coverage: coverage["request"].pop("reasoning.mode"),
            "coverage: request reasoning says nothing of mode",
        ),
        (
            lambda _, coverage: coverage["request"].update({"text.size": {"status": "served"}}),
            "coverage: request text names size, which the document does not",
        ),
        (
            lambda _, coverage: coverage["conversation"].pop("metadata"),
            "coverage: conversation says nothing of metadata",
        ),
        (
            lambda _, coverage: coverage["stateless"]["request"].update(
                psyche={"status": "dropped"}
            ),
            "coverage: stateless request names psyche, of which request says nothing",
        ),
        (
            lambda _, coverage: coverage["stateless"]["input_items"]["item_reference"].update(
                status="lost"
            ),
            "coverage: stateless input_items item_reference is lost",
        ),
        (
            lambda _, coverage: coverage["tools"].update(telepathy={"status": "served"}),
            "coverage: tools names telepathy, which the document does not",
        ),
        (
            lambda _, coverage: coverage["events"].pop("error"),
            "coverage: events says nothing of error",
        ),
        (
            lambda _, coverage: coverage["include"]["reasoning.encrypted_content"].update(
                status="maybe"
            ),
            "coverage: include reasoning.encrypted_content is maybe",
        ),
    ],
)
def test_the_linter_finds(change: Any, problem: str):
    assert spoilt(change) == [problem]


def test_the_linter_finds_an_example_that_does_not_fit():
    def change(document: dict[str, Any], _: object) -> None:
        document["components"]["examples"]["create_question"]["value"]["temperature"] = "hot"

    (problem,) = spoilt(change)
    assert "/v1/responses" in problem and "example question does not fit" in problem


def test_the_linter_finds_what_is_no_openapi():
    document = copy.deepcopy(source())
    del document["info"]["title"]
    assert lint_spec.problems(document, source_coverage())


# The bundler


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Bundles a small document. Files are given by their place, as YAML texts."""

    def make(**files: str) -> dict[str, Any]:
        texts = {f"schemas/{stem}.yaml": "{}" for stem in SCHEMA_ORDER}
        texts["antiphon.yaml"] = "paths: {/a: {$ref: 'paths/a.yaml#/A'}}"
        texts |= {place.replace("__", "/") + ".yaml": text for place, text in files.items()}
        for place, text in texts.items():
            (tmp_path / place).parent.mkdir(exist_ok=True)
            (tmp_path / place).write_text(text, encoding="utf-8")
        return bundle(tmp_path)

    return make


def refers_to(ref: str) -> str:
    return f"A: {{get: {{schema: {{$ref: '{ref}'}}}}}}"


def test_references_to_other_files_become_references_to_components(tree: Any):
    document = tree(
        paths__a=refers_to("../schemas/common.yaml#/Node"),
        schemas__common="Node: {properties: {next: {$ref: '#/Node', description: Next.}}}",
    )
    node = {"$ref": "#/components/schemas/Node"}
    assert document["paths"] == {"/a": {"get": {"schema": node}}}
    assert document["components"]["schemas"] == {
        "Node": {"properties": {"next": {**node, "description": "Next."}}}
    }


def test_schemas_come_in_the_order_of_their_files_whoever_refers_to_them_first(tree: Any):
    document = tree(
        paths__a=refers_to("../schemas/common.yaml#/Last"),
        schemas__common="Last: {$ref: 'request.yaml#/First'}",
        schemas__request="First: {type: string}",
    )
    assert list(document["components"]["schemas"]) == ["First", "Last"]


def test_a_discriminator_gets_its_mapping_from_the_tags_of_its_branches(tree: Any):
    document = tree(
        paths__a=refers_to("../schemas/common.yaml#/Either"),
        schemas__common="""
            One: {properties: {type: {const: one}}}
            Two: {properties: {type: {const: two}}}
            Either: {oneOf: [{$ref: '#/One'}, {$ref: '#/Two'}], discriminator: {propertyName: type}}
        """,
    )
    assert document["components"]["schemas"]["Either"]["discriminator"]["mapping"] == {
        "one": "#/components/schemas/One",
        "two": "#/components/schemas/Two",
    }


def test_an_example_is_a_component_of_its_files_name_and_taken_as_it_is(tree: Any):
    document = tree(
        paths__a="""
            A: {get: {examples: {x: {$ref: ../examples/sample.yaml}}}}
            B: {schema: {$ref: ../schemas/common.yaml#/Used}}
        """,
        antiphon="paths: {/a: {$ref: 'paths/a.yaml#/A'}, /b: {$ref: 'paths/a.yaml#/B'}}",
        schemas__common="Used: {type: string}",
        examples__sample="value: {$ref: not a reference}",
    )
    assert document["components"]["examples"] == {"sample": {"value": {"$ref": "not a reference"}}}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {
                "paths__a": refers_to("../schemas/common.yaml#/Twice"),
                "schemas__common": "Twice: {$ref: 'errors.yaml#/Twice'}",
                "schemas__errors": "Twice: {type: string}",
            },
            "Twice is defined in common.yaml and in errors.yaml",
        ),
        (
            {
                "paths__a": refers_to("../schemas/common.yaml#/Either"),
                "schemas__common": """
                    One: {properties: {type: {const: one}}}
                    Either:
                      oneOf: [{$ref: '#/One'}]
                      discriminator: {propertyName: type, mapping: {one: '#/One'}}
                """,
            },
            "Either: a mapping is made from the branches' tags",
        ),
        ({"paths__a": refers_to("../schemas/common.yaml#/Nothing")}, "Nothing does not exist"),
        ({"paths__a": refers_to("../schemas/nothing.yaml#/A")}, "nothing.yaml does not exist"),
        ({"paths__a": refers_to("../antiphon.yaml#/A")}, "no place of components"),
        ({"paths__a": "B: {}"}, "paths/a.yaml#/A does not exist"),
        ({"paths__a": ""}, "paths/a.yaml#/A does not exist"),
        (
            {
                "paths__a": refers_to("../schemas/common.yaml#/Used"),
                "schemas__common": "{Used: {type: string}, Unused: {type: string}}",
            },
            "nothing refers to Unused in common.yaml",
        ),
        (
            {
                "paths__a": refers_to("../schemas/extra.yaml#/Lost"),
                "schemas__extra": "Lost: {type: string}",
            },
            "Lost is in a file that SCHEMA_ORDER does not name",
        ),
        (
            {
                "paths__a": refers_to("../schemas/common.yaml#/Either"),
                "schemas__common": """
                    One: {properties: {type: {type: string}}}
                    Either: {oneOf: [{$ref: '#/One'}], discriminator: {propertyName: type}}
                """,
            },
            "has no constant type",
        ),
    ],
)
def test_the_bundler_refuses(tree: Any, files: dict[str, str], message: str):
    with pytest.raises(BundleError, match=message.replace(".", r"\.")):
        tree(**files)
