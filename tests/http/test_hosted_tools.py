"""Tools of hosted services, in the three ways that a server may deal with them."""

import pytest
from asked import AskedModel

FUNCTION = {"type": "function", "name": "look"}
HOSTED = [
    {"type": "web_search"},
    {"type": "web_search_preview", "search_context_size": "low"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation"},
    {"type": "local_shell"},
    {"type": "mcp", "server_label": "m", "server_url": "https://example.com"},
]
ARGUMENTS = {
    "web_search": '{"query":"x"}',
    "file_search": '{"query":"x"}',
    "code_interpreter": '{"code":"1"}',
    "image_generation": '{"prompt":"a cat"}',
}


def named(tool):
    return tool["type"].removesuffix("_preview")


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_tool_01_by_default_a_hosted_tool_is_left_out_and_named(server, tool):
    model = AskedModel(("", [{"text": "ok"}]))
    answer = server(model).post({"input": "x", "tools": [FUNCTION, tool], "stream": True})
    assert answer.status_code == 200
    assert answer.headers["antiphon-dropped"] == "tools[1]"
    assert [offered.name for offered in model.turns[-1].tools] == ["look"]


@pytest.mark.parametrize("tool", HOSTED[:5], ids=lambda tool: tool["type"])
def test_tool_01_a_hosted_tool_may_be_offered_for_the_client_to_run(server, tool):
    name = named(tool)
    model = AskedModel(
        ("found", [{"text": "Done."}]),
        ("", [{"call": name, "arguments": ARGUMENTS[name], "pieces": 4}]),
    )
    served = server(model, hosted_tools="offer")
    stream = served.stream({"input": "x", "tools": [FUNCTION, tool]})
    assert "antiphon-dropped" not in stream.headers
    assert [offered.name for offered in model.turns[-1].tools] == ["look", name]
    (call,) = stream.response["output"]
    assert (call["type"], call["name"]) == ("function_call", name)
    assert stream.of("response.function_call_arguments.done")[0]["arguments"] == ARGUMENTS[name]
    assert [tool["type"] for tool in stream.response["tools"]] == ["function"] * 2
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "found"}
    body = {"input": [output], "previous_response_id": stream.response["id"], "tools": [tool]}
    assert served.create(body)["output"][0]["content"][0]["text"] == "Done."


@pytest.mark.parametrize("tool", HOSTED[5:], ids=lambda tool: tool["type"])
def test_tool_01_what_cannot_be_a_function_is_left_out_where_others_are_offered(server, tool):
    model = AskedModel(("", [{"text": "ok"}]))
    answer = server(model, hosted_tools="offer").post({"input": "x", "tools": [tool, FUNCTION]})
    assert answer.headers["antiphon-dropped"] == "tools[0]"
    assert [offered.name for offered in model.turns[-1].tools] == ["look"]


@pytest.mark.parametrize("mode", [{}, {"stream": True}, {"background": True}])
@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_tool_01_a_hosted_tool_may_be_refused(server, tool, mode):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model, hosted_tools="refuse")
    error = served.error({"input": "x", "tools": [FUNCTION, tool], **mode})
    assert (error["code"], error["param"]) == ("invalid_tool", "tools[1].type")
    assert tool["type"] in error["message"]
    assert model.turns == []


def test_hosted_tools_that_items_bring_are_dealt_with_in_the_same_way(server):
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}
    user = {"role": "user", "content": "x"}
    model = AskedModel(("", [{"text": "ok"}]))
    dropped = server(model).post({"input": [added, user]})
    assert dropped.headers["antiphon-dropped"] == "input[0].tools[0]"
    server(model, hosted_tools="offer").create({"input": [added, user]})
    assert [len(turn.tools) for turn in model.turns] == [0, 1]
    error = server(model, hosted_tools="refuse").error({"input": [added, user]})
    assert error["param"] == "input[0].tools[0].type"


def test_two_hosted_tools_that_would_be_one_function_are_refused(server):
    served = server(AskedModel(("", [{"text": "ok"}])), hosted_tools="offer")
    error = served.error({"input": "x", "tools": HOSTED[:2]})
    assert (error["code"], error["param"]) == ("invalid_value", "tools[1].name")
