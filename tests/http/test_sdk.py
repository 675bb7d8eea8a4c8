"""The official SDK, refusing whatever its own types do not know, over a real socket."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI
from serving import scripted


@pytest.fixture
def served(server):
    return server(
        scripted(
            {"reasoning": "The user greets me.", "pieces": 4},
            {"text": "Hello, how are you? 😀", "pieces": 3},
        ),
        scripted({"text": "Hel"}, {"fail": "boom"}, name="failing"),
        scripted({"text": "word " * 50, "pieces": 5}, name="long"),
    )


TEXT = "Hello, how are you? 😀"


def test_create(served):
    response = served.sdk().responses.create(
        model="test-model",
        instructions="Be kind.",
        input=[{"role": "user", "content": "Hi"}],
        metadata={"a": "b"},
        temperature=0.5,
    )
    assert response.output_text == TEXT
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 12, 15)
    assert usage.output_tokens_details.reasoning_tokens == 5
    assert response._request_id.startswith("req_")


def test_raw_stream(served):
    events = list(served.sdk().responses.create(model="test-model", input="Hi", stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == TEXT


def test_stream_helper(served):
    with served.sdk().responses.stream(model="test-model", input="Hi") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == TEXT


def test_async_stream_helper(served):
    async def ask():
        async with AsyncOpenAI(
            base_url=f"{served.url}/v1", api_key="none", _strict_response_validation=True
        ) as client:
            async with client.responses.stream(model="test-model", input="Hi") as stream:
                return await stream.get_final_response()

    assert asyncio.run(ask()).output_text == TEXT


def test_output_goes_back_as_input(served):
    client = served.sdk()
    first = client.responses.create(model="test-model", input="Hi")
    history = [{"role": "user", "content": "Hi"}, *first.output, {"role": "user", "content": "?"}]
    assert client.responses.create(model="test-model", input=history).output_text == TEXT


def test_input_tokens(served):
    client = served.sdk()
    counted = client.responses.input_tokens.count(model="test-model", input="one two three")
    response = client.responses.create(model="test-model", input="one two three")
    assert counted.input_tokens == response.usage.input_tokens == 3


def test_models(served):
    client = served.sdk()
    assert [model.id for model in client.models.list()] == ["test-model", "failing", "long"]
    assert client.models.retrieve("long").owned_by == "antiphon"


def test_a_failure_in_a_stream_is_raised(served):
    stream = served.sdk().responses.create(model="failing", input="x", stream=True)
    with pytest.raises(openai.APIError) as failed:
        list(stream)
    assert failed.value.code == "server_error"


def test_a_cut_answer_says_so(served):
    response = served.sdk().responses.create(model="long", input="x", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"


def test_leaving_a_stream_early_is_no_error(served):
    client = served.sdk()
    with client.responses.create(model="long", input="x", stream=True) as stream:
        assert next(iter(stream)).type == "response.created"
    assert client.responses.create(model="test-model", input="Hi").output_text == TEXT
