"""Calls and answers that are not what was asked for, over a real socket."""

import pytest
from asked import AskedModel
from serving import scripted

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
FINISH = {"type": "function", "name": "finish"}
CALL = {"call": "get_weather", "arguments": '{"city":"Oslo"}', "pieces": 4}
FORM = {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}


def failed(served, body):
    """The error of a response that fails in every form, and its last stream."""
    response = served.create(body)
    stream = served.stream(body)
    assert response["status"] == stream.response["status"] == "failed"
    assert response["error"] == stream.response["error"]
    assert response["usage"] == stream.response["usage"]
    assert response["usage"]["input_tokens"] == 1
    (error,) = stream.of("error")
    assert error["error"] == response["error"]
    assert stream.types[-2:] == ["error", "response.failed"]
    assert [item["type"] for item in response["output"]] == [
        item["type"] for item in stream.response["output"]
    ]
    return response["error"], stream


ALLOWED = {
    "type": "allowed_tools",
    "mode": "auto",
    "tools": [{"type": "function", "name": "finish"}],
}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"tools": [FINISH]},
        {"tools": [WEATHER], "tool_choice": "none"},
        {"tools": [WEATHER, FINISH], "tool_choice": {"type": "function", "name": "finish"}},
        {"tools": [WEATHER, FINISH], "tool_choice": ALLOWED},
    ],
)
def test_tool_05_a_call_that_is_not_allowed_is_never_told_of(server, asked):
    served = server(scripted({"text": "Let me look."}, CALL))
    error, stream = failed(served, {"input": "x", **asked})
    assert error["code"] == "invalid_tool_call"
    assert [item["type"] for item in stream.response["output"]] == ["message"]
    assert not [kind for kind in stream.types if "call" in kind]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "finish"}])
def test_tool_05_prose_in_place_of_a_call_fails(server, choice):
    served = server(scripted({"text": "It is nice out."}))
    body = {"input": "x", "tools": [WEATHER, FINISH], "tool_choice": choice}
    error, stream = failed(served, body)
    assert error["code"] == "invalid_tool_call"
    assert stream.response["usage"]["output_tokens"] == 1


def test_strict_arguments_that_do_not_fit_are_never_said_to_be_whole(server):
    served = server(scripted({"call": "get_weather", "arguments": '{"city":5}', "pieces": 4}))
    error, stream = failed(served, {"input": "x", "tools": [WEATHER]})
    assert error["code"] == "invalid_tool_call"
    assert "/city" in error["message"]
    (call,) = stream.response["output"]
    assert call["status"] == "incomplete"
    assert "response.function_call_arguments.done" not in stream.types
    assert "response.function_call_arguments.delta" in stream.types


def test_a_turn_that_ends_inside_a_call_fails(server):
    served = server(scripted({**CALL, "open": True}))
    error, stream = failed(served, {"input": "x", "tools": [WEATHER]})
    assert error["code"] == "invalid_tool_call"
    assert stream.response["output"][0]["status"] == "incomplete"


def test_without_parallel_calls_there_is_one_and_its_usage(server):
    served = server(scripted({"text": "Look."}, CALL, CALL, {"text": "lost"}))
    body = {"input": "x", "tools": [WEATHER]}
    response = served.create({**body, "parallel_tool_calls": False})
    assert response["status"] == "completed"
    message, call = response["output"]
    assert (message["phase"], call["arguments"]) == ("commentary", CALL["arguments"])
    assert response["usage"]["output_tokens"] == 1 + 4
    assert len(served.create(body)["output"]) == 4


def test_a_response_makes_no_more_calls_than_it_may(server):
    served = server(scripted(CALL, CALL, CALL))
    response = served.create({"input": "x", "tools": [WEATHER], "max_tool_calls": 2})
    assert [item["status"] for item in response["output"]] == ["completed"] * 2
    assert (response["status"], response["max_tool_calls"]) == ("completed", 2)
    assert response["usage"]["output_tokens"] == 8


@pytest.mark.parametrize("form", [FORM, {**FORM, "strict": False}, {"type": "json_object"}])
def test_an_answer_without_its_form_fails(server, form):
    served = server(scripted({"text": "Oslo, of course.", "pieces": 4}))
    error, stream = failed(served, {"input": "x", "text": {"format": form}})
    assert error["code"] == "invalid_answer"
    (message,) = stream.response["output"]
    assert message["status"] == "incomplete"
    assert stream.response["usage"]["output_tokens"] == 4


def test_an_answer_that_is_cut_makes_no_claim(server):
    served = server(scripted({"text": '{"city": "Trondheim and all of Norway"}', "pieces": 2}))
    body = {"input": "x", "text": {"format": FORM}, "max_output_tokens": 16}
    stream = served.stream(body)
    assert stream.types[-1] == "response.incomplete"
    assert stream.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert stream.response["output"][0]["status"] == "incomplete"


def test_jso_03_the_form_is_of_the_answer_and_not_of_the_reasoning(server):
    answer = '{"city":"Oslo"}'
    served = server(scripted({"reasoning": "plan: prose"}, {"text": answer, "pieces": 3}))
    for effort, kinds in (("medium", ["reasoning", "message"]), ("none", ["message"])):
        body = {"input": "x", "text": {"format": FORM}, "reasoning": {"effort": effort}}
        stream = served.stream(body)
        assert stream.text() == answer
        assert [item["type"] for item in stream.response["output"]] == kinds
        assert stream.response["status"] == served.create(body)["status"] == "completed"


def test_what_is_said_before_a_call_needs_no_form(server):
    served = server(scripted({"text": "Let me look."}, CALL))
    response = served.create({"input": "x", "tools": [WEATHER], "text": {"format": FORM}})
    assert response["status"] == "completed"
    assert response["output"][0]["phase"] == "commentary"


def test_a_background_response_is_held_to_the_same(server):
    served = server(AskedModel(("", [CALL])))
    made = served.create({"input": "x", "background": True})
    assert served.replay(made["id"]).types[-1] == "response.failed"
    stored = served.stored(made["id"])
    assert (stored["error"]["code"], stored["output"]) == ("invalid_tool_call", [])
    assert stored["usage"]["input_tokens"] == 1


# Searches for tools

SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "number"}},
        "required": ["query"],
        "additionalProperties": False,
    },
}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Helpers.",
    "tools": [{"type": "function", "name": "spawn", "defer_loading": True}],
}
LATER = {"type": "function", "name": "later", "defer_loading": True}


def searching():
    return AskedModel(
        ("agents__spawn", [{"call": "agents__spawn"}]),
        ("spawned", [{"text": "Done."}]),
        ("", [{"call": "tool_search", "arguments": '{"query":"spawn", "limit":3}', "pieces": 5}]),
    )


def test_a_search_for_tools_is_the_clients_to_run(server):
    model = searching()
    served = server(model)
    answer = served.post({"input": "Go.", "tools": [SEARCH, LATER], "stream": True, "store": False})
    assert "antiphon-dropped" not in answer.headers
    stream = served.stream({"input": "Go.", "tools": [SEARCH, LATER], "store": False})
    assert [tool.name for tool in model.turns[-1].tools] == ["tool_search"]
    assert model.turns[-1].tools[0].parameters == SEARCH["parameters"]
    assert stream.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    added = stream.of("response.output_item.added")[0]["item"]
    assert (added["arguments"], added["status"]) == ({}, "in_progress")
    (search,) = stream.response["output"]
    assert search == {
        "type": "tool_search_call",
        "id": added["id"],
        "call_id": added["call_id"],
        "execution": "client",
        "arguments": {"query": "spawn", "limit": 3},
        "status": "completed",
    }
    assert stream.response["tools"][0]["execution"] == "client"


def test_what_a_search_found_may_be_called_in_that_turn_and_later_ones(server):
    model = searching()
    served = server(model)
    (search,) = served.create({"input": "Go.", "tools": [SEARCH]})["output"]
    found = {
        "type": "tool_search_output",
        "call_id": search["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": [AGENTS],
    }
    history = [{"role": "user", "content": "Go."}, search, found]
    made = served.create({"input": history, "tools": [SEARCH]})
    (call,) = made["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "agents", "spawn")
    assert ("call", 'tool_search {"query":"spawn","limit":3}') in model.last
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "spawned"}
    done = served.create({"input": [output], "previous_response_id": made["id"], "tools": [SEARCH]})
    assert done["output"][0]["content"][0]["text"] == "Done."
    assert [tool.name for tool in model.turns[-1].tools] == ["tool_search", "agents__spawn"]


def test_a_search_can_be_continued_by_its_id(server):
    model = searching()
    served = server(model)
    made = served.stream({"input": "Go.", "tools": [SEARCH]}).response
    call_id = made["output"][0]["call_id"]
    found = {"type": "tool_search_output", "call_id": call_id, "tools": [AGENTS]}
    body = {"input": [found], "previous_response_id": made["id"], "tools": [SEARCH]}
    assert served.create(body)["output"][0]["name"] == "spawn"
    items = served.http.get(f"/v1/responses/{made['id']}").json()["output"]
    assert items == made["output"]


def test_a_search_that_is_cut_or_is_no_object_says_nothing_of_what_it_is_for(server):
    served = server(scripted({"call": "tool_search", "arguments": "[1]" * 30, "pieces": 3}))
    body = {"input": "x", "tools": [SEARCH]}
    cut = served.create({**body, "max_output_tokens": 16})
    broken = served.create(body)
    assert (cut["status"], broken["status"]) == ("incomplete", "failed")
    assert broken["error"]["code"] == "invalid_tool_call"
    for response in (cut, broken):
        (search,) = response["output"]
        assert (search["status"], search["arguments"]) == ("incomplete", {})


@pytest.mark.parametrize("execution", [{}, {"execution": "server"}, {"execution": None}])
def test_a_search_that_the_server_would_run_is_left_out_and_all_tools_are_shown(server, execution):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model)
    search = {"type": "tool_search", **execution}
    answer = served.post({"input": "x", "tools": [search, LATER]})
    assert answer.headers["antiphon-dropped"] == "tools[0]"
    assert [tool.name for tool in model.turns[-1].tools] == ["later"]
    assert [tool["type"] for tool in answer.json()["tools"]] == ["function"]


def test_a_search_may_be_among_the_allowed_tools(server):
    model = searching()
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "tool_search"}]}
    body = {"input": "x", "tools": [SEARCH, WEATHER], "tool_choice": allowed}
    assert server(model).create(body)["output"][0]["type"] == "tool_search_call"
    assert model.turns[-1].tool_choice.allowed == {"tool_search"}


def test_the_sdk_reads_a_search(server):
    served = server(searching())
    client = served.sdk()
    response = client.responses.create(model="test-model", input="Go.", tools=[SEARCH])
    assert response.output[0].type == "tool_search_call"
    with client.responses.stream(model="test-model", input="Go.", tools=[SEARCH]) as stream:
        final = stream.get_final_response()
    assert final.output[0].arguments == {"query": "spawn", "limit": 3}
