"""Tools, answer formats and sealed reasoning, from the request to the answer."""

import json

import pytest
from asked import AskedModel
from serving import scripted

from antiphon.turn import ToolChoice

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
SQL = {
    "type": "custom",
    "name": "sql",
    "format": {"type": "grammar", "syntax": "regex", "definition": "SELECT .*"},
}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find"}, SQL],
}
USER = {"role": "user", "content": "Oslo?"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "3 C"}


def calling(name, arguments="{}"):
    return scripted({"call": name, "arguments": arguments, "pieces": 3})


def test_tool_09_a_call_without_arguments_is_told_with_an_object_everywhere(server):
    tools = [
        {"type": "function", "name": "get_time", "strict": True},
        {"type": "function", "name": "noop", "parameters": None},
        {"type": "function", "name": "empty", "parameters": {}},
    ]
    served = server(scripted({"call": "get_time"}))
    stream = served.stream({"input": "time?", "tools": tools, "tool_choice": "required"})
    deltas = stream.of("response.function_call_arguments.delta")
    assert "".join(event["delta"] for event in deltas) == "{}"
    assert stream.of("response.function_call_arguments.done")[0]["arguments"] == "{}"
    assert stream.response["output"][0]["arguments"] == "{}"
    assert [tool["parameters"] for tool in stream.response["tools"]] == [None, None, {}]


def test_a_custom_tool_s_call_has_events_and_an_item_of_its_own(server):
    served = server(calling("sql", "SELECT 1"))
    client = served.sdk()
    with client.responses.stream(model="test-model", input="hi", tools=[SQL]) as stream:
        events = list(stream)
    deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    assert deltas == ["SEL", "ECT", " 1"]
    (done,) = (e for e in events if e.type == "response.custom_tool_call_input.done")
    assert done.input == "SELECT 1"
    (call,) = events[-1].response.output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "sql", "SELECT 1")


@pytest.mark.parametrize("name", ["find", "sql"])
def test_calls_in_a_namespace_come_back_by_their_own_names(server, name):
    served = server(calling(f"crm__{name}"))
    body = {"input": "hi", "tools": [CRM], "store": False}
    (call,) = served.create(body)["output"]
    assert (call["namespace"], call["name"]) == ("crm", name)
    assert call["type"] == ("custom_tool_call" if name == "sql" else "function_call")
    streamed = served.stream(body)
    (added,) = streamed.of("response.output_item.added")
    assert (added["item"]["namespace"], added["item"]["name"]) == ("crm", name)


def test_calls_of_tools_that_items_bring_come_back_by_their_own_names(server):
    served = server(calling("crm__find"))
    added = {"type": "additional_tools", "role": "developer", "tools": [CRM]}
    response = served.create({"input": [added, USER], "store": False})
    (call,) = response["output"]
    assert (call["namespace"], call["name"]) == ("crm", "find")
    assert response["tools"] == []


def test_tools_that_items_bring_stay_with_the_conversation(server):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model)
    added = {"type": "additional_tools", "role": "developer", "tools": [CRM]}
    first = served.create({"input": [added, USER], "tools": [WEATHER]})
    served.create({"input": "again", "previous_response_id": first["id"]})
    assert [tool.name for tool in model.turns[-1].tools] == ["crm__find", "crm__sql"]
    choice = {"type": "function", "name": "find"}
    body = {"input": "again", "previous_response_id": first["id"], "tool_choice": choice}
    served.create(body)
    assert model.turns[-1].tool_choice == ToolChoice("required", frozenset({"crm__find"}))
    error = served.error({**body, "tool_choice": {"type": "function", "name": "get_weather"}})
    assert error["param"] == "tool_choice"


def test_hosted_tools_are_offered_as_functions_where_the_setting_says_so(server):
    served = server(calling("web_search", '{"query":"x"}'), hosted_tools="offer")
    answer = served.post(
        {"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    )
    assert "antiphon-dropped" not in answer.headers
    response = answer.json()
    (tool,) = response["tools"]
    assert (tool["type"], tool["name"]) == ("function", "web_search")
    (call,) = response["output"]
    assert (call["type"], call["name"]) == ("function_call", "web_search")


def test_hosted_tools_are_refused_where_the_setting_says_so(server):
    served = server(scripted({"text": "ok"}), hosted_tools="refuse")
    error = served.error({"input": "hi", "tools": [WEATHER, {"type": "web_search"}]})
    assert (error["code"], error["param"]) == ("invalid_tool", "tools[1].type")


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([USER, CALL], "input[1].call_id"),
        ([USER, CALL, RESULT, RESULT], "input[3].call_id"),
        ([USER, CALL, CALL, RESULT], "input[2].call_id"),
        ([RESULT], "input[0].call_id"),
        ([{**CALL, "call_id": ""}, RESULT], "input[0].call_id"),
        ([{**CALL, "call_id": "x" * 65}, RESULT], "input[0].call_id"),
    ],
)
def test_tool_08_calls_and_results_that_do_not_match_are_refused(plain, items, param):
    assert plain.error({"input": items})["param"] == param


def test_the_strict_rules_are_a_setting(server):
    served = server(scripted({"text": "ok"}), history_rules="strict")
    said = {"role": "assistant", "content": "Let me look."}
    error = served.error({"input": [USER, said, CALL, RESULT]})
    assert (error["code"], error["param"]) == ("invalid_value", "input[1].phase")
    served.create({"input": [USER, {**said, "phase": "commentary"}, CALL, RESULT]})


def test_what_continues_a_response_is_not_held_to_the_order_of_its_own_items(server):
    served = server(calling("get_weather", '{"city":"Oslo"}'), history_rules="strict")
    first = served.create({"input": [USER], "tools": [WEATHER]})
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}
    result = {**RESULT, "call_id": first["output"][0]["call_id"]}
    served.create({"input": [result, thought], "previous_response_id": first["id"]})


@pytest.mark.parametrize("settings", [{}, {"state": "off"}])
def test_reasoning_that_is_not_stored_and_says_nothing_is_refused(server, settings):
    served = server(scripted({"text": "ok"}), **settings)
    error = served.error({"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": []}]})
    assert (error["code"], error["param"]) == ("invalid_value", "input[1].id")
    assert "rs_1" in error["message"]


def test_stored_reasoning_may_be_sent_back_by_its_id(server):
    model = AskedModel(("", [{"reasoning": "plan"}, {"text": "ok"}]))
    served = server(model)
    reasoning, message = served.create({"input": [USER]})["output"]
    bare = {"type": "reasoning", "id": reasoning["id"], "summary": []}
    served.create({"input": [USER, bare, message, USER]})
    assert model.last[1] == ("reasoning", "plan")


@pytest.mark.parametrize("mode", [{}, {"stream": True}, {"background": True}])
def test_jso_01_a_broken_schema_is_refused_before_anything_is_sent(plain, mode):
    broken = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Missing"}}}
    form = {"type": "json_schema", "name": "out", "strict": True, "schema": broken}
    error = plain.error({"input": "hi", "text": {"format": form}, **mode})
    assert (error["code"], error["param"]) == ("invalid_json_schema", "text.format.schema")
    assert "/properties/a" in error["message"] and "$ref" in error["message"]


def closed(**properties):
    names = list(properties)
    fixed = {"required": names, "additionalProperties": False}
    return {"type": "object", "properties": properties, **fixed}


@pytest.mark.parametrize(
    ("schema", "place", "keyword"),
    [
        ({"type": "not-a-type"}, "", "type"),
        (closed(a={"$ref": "#/$defs/Missing"}), "/properties/a", "$ref"),
        (
            closed(u={"type": "string", "format": "uri"}, p={"type": "string", "pattern": "("}),
            "/properties/p",
            "pattern",
        ),
        (
            {"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "string"}}},
            "",
            "additionalProperties",
        ),
        (closed(a=closed(b={"type": "object"})), "/properties/a/properties/b", "additional"),
        ({**closed(a={}), "required": []}, "", "required"),
        (closed(a={"not": {"type": "null"}}), "/properties/a", "not"),
        ({"type": "string", "pattern": "(a{100}){100}"}, "", "type"),
    ],
)
def test_jso_01_what_is_wrong_with_a_schema_is_named(server, schema, place, keyword):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model)
    form = {"type": "json_schema", "name": "out", "strict": True, "schema": schema}
    error = served.error({"input": "Fill it", "text": {"format": form}})
    assert (error["code"], error["param"]) == ("invalid_json_schema", "text.format.schema")
    assert f"'{place}'" in error["message"] or not place
    assert keyword in error["message"]
    tool = {"type": "function", "name": "f", "strict": True, "parameters": schema}
    error = served.error({"input": "Fill it", "tools": [WEATHER, tool]})
    assert (error["code"], error["param"]) == ("invalid_json_schema", "tools[1].parameters")
    assert keyword in error["message"]
    assert model.turns == []


def test_jso_06_layers_upon_layers_are_refused_at_once(plain):
    schema = '{"anyOf":[' * 5000 + "{}" + "]}" * 5000
    form = f'{{"type":"json_schema","name":"x","strict":true,"schema":{schema}}}'
    error = plain.error(f'{{"input":"x","text":{{"format":{form}}}}}')
    assert error["code"] in ("invalid_json", "invalid_json_schema")


def test_jso_01_a_schema_without_a_name_is_refused(plain):
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert plain.error({"input": "hi", "text": {"format": form}})["param"] == "text.format.name"


def test_the_sdk_parses_what_it_declared(server):
    pydantic = pytest.importorskip("pydantic")

    class City(pydantic.BaseModel):
        city: str

    served = server(scripted({"text": json.dumps({"city": "Ålesund"})}))
    response = served.sdk().responses.parse(model="test-model", input="hi", text_format=City)
    assert response.output_parsed == City(city="Ålesund")
    assert response.text.format.type == "json_schema" and response.text.format.strict


def test_codex_finishes_a_loop_of_a_function_a_namespace_and_a_patch(server):
    patch = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n"
    model = AskedModel(
        ("written", [{"text": "Done."}]),
        ("closed", [{"text": "A file.", "pieces": 3}, {"call": "apply_patch", "arguments": patch}]),
        ("", [{"call": "agents__close", "arguments": '{"target":"1"}'}]),
    )
    served = server(model)
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"}
    tools = [
        WEATHER,
        {"type": "custom", "name": "apply_patch", "format": grammar},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]},
        {"type": "web_search", "external_web_access": False},
    ]
    history = [{"type": "message", "role": "user", "content": "Go."}]
    body = {"tools": tools, "store": False, "parallel_tool_calls": True, "tool_choice": "auto"}

    def turn(*results):
        history.extend(results)
        stream = served.stream({**body, "input": history})
        items = [event["item"] for event in stream.of("response.output_item.done")]
        history.extend(items)
        return items

    (close,) = turn()
    assert (close["namespace"], close["name"]) == ("agents", "close")
    output = {"type": "function_call_output", "call_id": close["call_id"], "output": "closed"}
    remark, patching = turn(output)
    assert (remark["phase"], patching["type"]) == ("commentary", "custom_tool_call")
    assert patching["input"] == patch
    output = {
        "type": "custom_tool_call_output",
        "call_id": patching["call_id"],
        "output": [{"type": "input_text", "text": "written"}],
    }
    (answer,) = turn(output)
    assert answer["content"][0]["text"] == "Done."
    assert ("call", 'agents__close {"target":"1"}') in model.last
