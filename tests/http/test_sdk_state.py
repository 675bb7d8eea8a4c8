"""The official SDK with what is stored, and the stateful flows that real clients were seen to send.

The requests are those of recorded sessions, with ids that the server gave.
"""

import json

import openai
import pytest
from asked import AskedModel
from serving import scripted

CALL = {"call": "get_weather", "arguments": '{"city":"Paris"}'}
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": SCHEMA,
    "strict": False,
}


@pytest.fixture
def model():
    return AskedModel(
        ("21", [{"text": "It is 21 degrees."}]),
        ("Weather", [{"reasoning": "Look it up."}, CALL]),
        ("", [{"text": "Hello."}]),
    )


def said(model):
    return [text for _, text in model.last]


# The SDK


def test_previous_response_id(state, server, model):
    client = server(model, **state).sdk()
    first = client.responses.create(model="test-model", input="My name is Bo.")
    second = client.responses.create(
        model="test-model", input="What is my name?", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    assert said(model) == ["My name is Bo.", "Hello.", "What is my name?"]
    assert client.responses.retrieve(second.id) == second
    items = [item.type for item in client.responses.input_items.list(second.id, order="asc")]
    assert items == ["message"] * 3
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="test-model", input="x", previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == (
        "previous_response_not_found",
        "previous_response_id",
    )


def test_a_streamed_tool_loop_goes_on_from_the_stored_call(state, server, model):
    client = server(model, **state).sdk()
    with client.responses.stream(model="test-model", input="Weather?", tools=[TOOL]) as stream:
        first = stream.get_final_response()
    call = first.output[-1]
    output = [{"type": "input_text", "text": "21C"}]
    with client.responses.stream(
        model="test-model",
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": output}],
        tools=[TOOL],
    ) as stream:
        final = stream.get_final_response()
    assert final.output_text == "It is 21 degrees."
    assert said(model) == ["Weather?", "Look it up.", 'get_weather {"city":"Paris"}', "21C"]


def test_output_goes_back_as_input_and_is_stored_once(state, server, model):
    served = server(model, **state)
    client = served.sdk()
    history = [{"role": "user", "content": "Weather?"}]
    first = client.responses.create(model="test-model", input=history, tools=[TOOL])
    history += first.output
    history += [
        {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "21"}
    ]
    second = client.responses.create(model="test-model", input=history, tools=[TOOL])
    listed = [item.id for item in client.responses.input_items.list(second.id, order="asc")]
    assert listed[1:3] == [item.id for item in first.output]
    # Two questions, as the client gave them no id; reasoning, call, result, answer.
    counts = served.http.get("/v1/status").json()["store"]["counts"]
    assert counts["items"] == 6


def test_a_conversation_goes_through_the_sdk(every_state, server, model):
    client = server(model, **every_state).sdk()
    made = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "hi"}], metadata={"a": "b"}
    )
    answer = client.responses.create(
        model="test-model", input="Say hello.", conversation=made.id, background=True
    )
    list(client.responses.retrieve(answer.id, stream=True))
    done = client.responses.retrieve(answer.id)
    assert done.conversation.id == made.id
    texts = [item.content[0].text for item in client.conversations.items.list(made.id)]
    assert texts == ["Hello.", "Say hello.", "hi"]


# Recorded flows


def test_background_as_the_node_sdk_polls_it(state, server, model):
    served = server(model, **state)
    made = served.create({"model": "test-model", "input": "x", "background": True})
    served.replay(made["id"])
    headers = {"accept": "application/json"}
    polled = served.http.get(f"/v1/responses/{made['id']}", headers=headers).json()
    assert (polled["id"], polled["status"]) == (made["id"], "completed")


@pytest.mark.parametrize("stream", [False, True])
def test_item_reference_as_the_ai_sdk_sends_it(every_state, server, model, stream):
    served = server(model, **every_state)
    asked = {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
    body = {"model": "test-model", "input": [asked], "tools": [TOOL], "tool_choice": "auto"}
    first = served.stream(body).response if stream else served.create(body)
    reasoning, call = first["output"]
    loop = [
        asked,
        {"type": "item_reference", "id": reasoning["id"]},
        {
            "type": "function_call",
            "call_id": call["call_id"],
            "name": "get_weather",
            "arguments": call["arguments"],
        },
        {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": json.dumps({"temp": 21, "city": "Paris"}),
        },
    ]
    body["input"] = loop
    second = served.stream(body).response if stream else served.create(body)
    assert said(model)[:3] == ["Weather?", "Look it up.", 'get_weather {"city":"Paris"}']
    body["input"] = [
        *loop,
        {"type": "item_reference", "id": second["output"][0]["id"]},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ]
    third = served.stream(body).response if stream else served.create(body)
    assert said(model)[-2:] == ["It is 21 degrees.", "and?"]
    assert third["status"] == "completed"


def test_a_tool_loop_as_the_agent_framework_continues_it(every_state, server, model):
    served = server(model, **every_state)
    tool = {"name": "get_weather", "parameters": SCHEMA, "type": "function", "strict": False}
    first = served.create(
        {
            "model": "test-model",
            "stream": False,
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Weather?"}],
                }
            ],
            "include": ["reasoning.encrypted_content"],
            "tool_choice": "auto",
            "tools": [tool],
        }
    )
    result = {"call_id": first["output"][-1]["call_id"], "type": "function_call_output"}
    served.create(
        {
            "model": "test-model",
            "stream": False,
            "input": [{**result, "output": "21C in Paris"}],
            "previous_response_id": first["id"],
            "tool_choice": "auto",
            "tools": [tool],
        }
    )
    assert said(model) == [
        "Weather?",
        "Look it up.",
        'get_weather {"city":"Paris"}',
        "21C in Paris",
    ]


def test_a_conversation_as_the_agents_sdk_for_js_loops_in_it(every_state, server, model):
    served = server(model, **every_state)
    made = served.post({}, "/v1/conversations").json()["id"]
    body = {
        "model": "test-model",
        "input": [{"role": "user", "content": "Weather?"}],
        "include": [],
        "tools": [{**TOOL, "strict": True}],
        "conversation": made,
        "stream": False,
    }
    first = served.create(body)
    call = first["output"][-1]
    body["input"] = [
        {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": "21C in Paris",
            "status": "completed",
        }
    ]
    served.create(body)
    assert said(model)[-2:] == ['get_weather {"city":"Paris"}', "21C in Paris"]
    items = served.http.get(f"/v1/conversations/{made}/items?order=asc").json()["data"]
    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]


def test_a_session_as_the_agents_sdk_keeps_it(every_state, server, model):
    served = server(model, **every_state)
    made = served.post({"items": []}, "/v1/conversations").json()["id"]
    path = f"/v1/conversations/{made}/items"

    def turn(text):
        listed = served.http.get(f"{path}?order=asc").json()["data"]
        asked = {"content": text, "role": "user"}
        added = served.post({"items": [asked]}, path)
        assert added.status_code == 200, added.text
        answer = served.create(
            {"model": "test-model", "input": [*listed, asked], "include": [], "tools": []}
        )
        added = served.post({"items": answer["output"]}, path)
        assert added.status_code == 200, added.text

    turn("My name is Bo")
    turn("Name?")
    assert said(model) == ["My name is Bo", "Hello.", "Name?"]
    items = served.http.get(f"{path}?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in items] == [
        "My name is Bo",
        "Hello.",
        "Name?",
        "Hello.",
    ]
    last = items[-1]["id"]
    assert served.http.delete(f"{path}/{last}").status_code == 200
    assert served.http.get(f"{path}/{last}").status_code == 404


def test_nothing_but_what_is_documented_is_said_to_strict_clients(server):
    served = server(scripted({"text": "ok"}))
    live = served.stream({"input": "x", "background": True})
    assert set(live.types) <= {
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    }
