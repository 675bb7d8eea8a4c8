"""litellm: `responses()`, and the bridge from its chat completions."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Else it fetches a list at its import.

import json

import litellm

from flows import (
    API_KEY,
    BASE_URL,
    CITY,
    MODEL,
    ONE_CITY,
    TINY,
    TOO_LONG,
    WEATHER,
    Flows,
    holds,
    same,
)
from shapes import City

litellm.telemetry = False
flows = Flows()
WHERE = {"api_base": BASE_URL, "api_key": API_KEY}
RESPONSES = {"model": f"openai/{MODEL}", **WHERE}
BRIDGE = {"model": f"openai/responses/{MODEL}", **WHERE}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS}


def text(response):
    return "".join(
        part.text for item in response.output if item.type == "message" for part in item.content
    )


@flows.of("answer")
def responses():
    response = litellm.responses(input="Say hello.", instructions="Be brief.", **RESPONSES)
    same(text(response), "Hello from the script.")


@flows.of("answer")
async def asynchronous_with_options():
    response = await litellm.aresponses(
        input=[{"role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}],
        temperature=0.1,
        max_output_tokens=20,
        reasoning={"effort": "low"},
        metadata={"a": "b"},
        store=False,
        include=["reasoning.encrypted_content"],
        **RESPONSES,
    )
    same(text(response), "Hello from the script.")


@flows.of("answer")
def completion():
    answer = litellm.completion(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say hello."},
        ],
        **BRIDGE,
    )
    same(answer.choices[0].message.content, "Hello from the script.")


@flows.of("stream")
def stream():
    *_, last = litellm.responses(input="Say hello.", stream=True, **RESPONSES)
    same(text(last.response), "Hello from the script.")


@flows.of("stream")
def streamed_completion():
    chunks = litellm.completion(
        messages=[{"role": "user", "content": "Say hello."}], stream=True, **BRIDGE
    )
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks]
    same("".join(deltas), "Hello from the script.")


@flows.of("tools")
def tool_loop():
    tools = [{"type": "function", **FUNCTION}]
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    first = litellm.responses(input=messages, tools=tools, tool_choice="auto", **RESPONSES)
    (call,) = (item for item in first.output if item.type == "function_call")
    result = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": WEATHER[json.loads(call.arguments)["city"]],
    }
    second = litellm.responses(
        previous_response_id=first.id, input=[result], tools=tools, **RESPONSES
    )
    same(text(second), ONE_CITY)


@flows.of("tools")
def tool_loop_of_completions():
    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    message = litellm.completion(messages=messages, tools=tools, **BRIDGE).choices[0].message
    (call,) = message.tool_calls
    result = WEATHER[json.loads(call.function.arguments)["city"]]
    messages += [
        message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]
    answer = litellm.completion(messages=messages, tools=tools, **BRIDGE)
    same(answer.choices[0].message.content, ONE_CITY)


@flows.of("structured")
def text_format():
    response = litellm.responses(input="Describe Paris", text_format=City, **RESPONSES)
    same(json.loads(text(response)), CITY)


@flows.of("turns")
def history_sent_again():
    messages = [{"role": "user", "content": "I am Ada."}]
    answer = litellm.completion(messages=messages, **BRIDGE).choices[0].message
    messages += [answer.model_dump(), {"role": "user", "content": "Who am I?"}]
    same(
        litellm.completion(messages=messages, **BRIDGE).choices[0].message.content,
        "You are Ada.",
    )


@flows.of("resume")
def previous_response_id():
    first = litellm.responses(input="I am Ada.", **RESPONSES)
    second = litellm.responses(input="Who am I?", previous_response_id=first.id, **RESPONSES)
    same(text(second), "You are Ada.")


@flows.of("resume")
def stored_response():
    made = litellm.responses(input="Say hello.", **RESPONSES)
    stored = {"response_id": made.id, "custom_llm_provider": "openai", **WHERE}
    same(litellm.get_responses(**stored).status, "completed")
    holds(litellm.list_input_items(**stored), "no input items")
    holds(litellm.delete_responses(**stored).deleted, "it was not deleted")


@flows.of("resume")
def cancelled_in_the_background():
    made = litellm.responses(input="Count slowly.", background=True, **RESPONSES)
    stored = {"response_id": made.id, "custom_llm_provider": "openai", **WHERE}
    same(litellm.cancel_responses(**stored).status, "cancelled")


@flows.of("errors")
def unknown_model():
    try:
        litellm.responses(input="Say hello.", **{**RESPONSES, "model": "openai/nobody"})
    except litellm.NotFoundError:
        return
    raise AssertionError("it was not refused")


@flows.of("errors")
def input_that_is_too_long():
    try:
        litellm.responses(input=TOO_LONG, **{**RESPONSES, "model": f"openai/{TINY}"})
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("it was not refused")


@flows.of("errors")
def busy_server():
    # litellm waits as it was told for `num_retries` only, and asks once otherwise.
    response = litellm.responses(input="Be busy.", num_retries=2, **RESPONSES)
    same(text(response), "At last.")


@flows.of("real")
def a_real_answer():
    response = litellm.responses(input="Say hello.", max_output_tokens=16, **RESPONSES)
    holds(text(response), "no text")


if __name__ == "__main__":
    flows.main()
