"""openai (Python): raw calls, stream helpers, parsing, stored responses."""

import json

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from flows import (
    API_KEY,
    BASE_URL,
    CITY,
    MODEL,
    ONE_CITY,
    TINY,
    TOO_LONG,
    TWO_CITIES,
    WEATHER,
    Flows,
    holds,
    same,
)
from shapes import City, Place

flows = Flows()
client = OpenAI(base_url=BASE_URL, api_key=API_KEY)
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CALCULATOR = {
    "type": "custom",
    "name": "calculator",
    "description": "Calculates.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /[a-z ]+/"},
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str


def calls(response):
    return [item for item in response.output if item.type.endswith("_call")]


def results(response):
    """What the calls of a response gave."""
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": WEATHER[json.loads(call.arguments)["city"]],
        }
        for call in calls(response)
    ]


def refused(kind, **request):
    """The error that a request is refused with."""
    try:
        client.responses.create(**{"model": MODEL, "input": "Say hello.", **request})
    except kind as error:
        return error
    raise AssertionError("it was not refused")


@flows.of("answer")
def create():
    same(
        client.responses.create(model=MODEL, input="Say hello.").output_text,
        "Hello from the script.",
    )


@flows.of("answer")
def create_with_every_option():
    response = client.responses.create(
        model=MODEL,
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "A note."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Say hello."},
        ],
        max_output_tokens=64,
        metadata={"k": "v"},
        temperature=0.2,
        top_p=0.9,
        store=False,
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low"},
        truncation="auto",
        parallel_tool_calls=False,
        top_logprobs=2,
        prompt_cache_key="k1",
        safety_identifier="s1",
        service_tier="auto",
        max_tool_calls=2,
    )
    same(response.output_text, "Hello from the script.")


@flows.of("answer")
def models():
    holds(MODEL in [model.id for model in client.models.list()], "the model is not listed")


@flows.of("answer")
def input_tokens():
    same(
        client.responses.input_tokens.count(model=MODEL, input="Say hello.").input_tokens,
        client.responses.create(model=MODEL, input="Say hello.").usage.input_tokens,
    )


@flows.of("answer")
async def asynchronous():
    async with AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as other:
        response = await other.responses.create(model=MODEL, input="Say hello.")
        same(response.output_text, "Hello from the script.")
        async with other.responses.stream(
            model=MODEL, input="Describe Paris", text_format=City
        ) as stream:
            final = await stream.get_final_response()
        same(final.output_parsed.model_dump(), CITY)


@flows.of("stream")
def raw_stream():
    events = list(client.responses.create(model=MODEL, input="Say hello.", stream=True))
    same(events[0].type, "response.created")
    same(events[-1].type, "response.completed")
    same([event.sequence_number for event in events], list(range(len(events))))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    holds(len(deltas) > 3, "it came in one piece")
    same("".join(deltas), "Hello from the script.")


@flows.of("stream")
def stream_helper():
    with client.responses.stream(model=MODEL, input="I am Ada.") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    same(final.output_text, "Hello Ada.")
    same(final.output[0].content[0].text, "A name.")


@flows.of("tools")
def tool_loop():
    messages = [{"role": "user", "content": "Weather in Paris and Oslo?"}]
    first = client.responses.create(model=MODEL, input=messages, tools=[TOOL])
    same(len(calls(first)), 2)
    messages += [*first.output, *results(first)]
    second = client.responses.create(model=MODEL, input=messages, tools=[TOOL])
    same(second.output_text, TWO_CITIES)


@flows.of("tools")
def tool_loop_that_stores_nothing():
    options = {
        "model": MODEL,
        "tools": [TOOL],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    first = client.responses.create(input=messages, **options)
    messages += [item.model_dump(exclude={"id"}) for item in first.output] + results(first)
    same(client.responses.create(input=messages, **options).output_text, ONE_CITY)


@flows.of("tools")
def streamed_tool_loop():
    with client.responses.stream(
        model=MODEL, input="Weather in Paris?", tools=[TOOL], tool_choice="required"
    ) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    holds(kinds.count("response.function_call_arguments.delta") > 1, "arguments in one piece")
    with client.responses.stream(
        model=MODEL, previous_response_id=first.id, input=results(first), tools=[TOOL]
    ) as stream:
        same(stream.get_final_response().output_text, ONE_CITY)


@flows.of("tools")
def custom_tool():
    first = client.responses.create(model=MODEL, input="Compute it.", tools=[CALCULATOR])
    (call,) = calls(first)
    same((call.type, call.input), ("custom_tool_call", "six times seven"))
    result = {
        "type": "custom_tool_call_output",
        "call_id": call.call_id,
        "output": "forty-two",
    }
    second = client.responses.create(
        model=MODEL, previous_response_id=first.id, input=[result], tools=[CALCULATOR]
    )
    same(second.output_text, "It is 42.")


@flows.of("tools")
def parsed_tool_call():
    response = client.responses.parse(
        model=MODEL,
        input="Weather in Paris?",
        tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")],
    )
    (call,) = calls(response)
    same(call.parsed_arguments.city, "Paris")


@flows.of("structured")
def parse():
    response = client.responses.parse(model=MODEL, input="Describe Paris", text_format=City)
    same(response.output_parsed.model_dump(), CITY)


@flows.of("structured")
def parsed_stream():
    with client.responses.stream(model=MODEL, input="Describe Paris", text_format=City) as stream:
        final = stream.get_final_response()
    same(final.output_parsed.model_dump(), CITY)


@flows.of("turns")
def history_sent_again():
    messages = [{"role": "user", "content": "I am Ada."}]
    messages += client.responses.create(model=MODEL, input=messages).output
    messages.append({"role": "user", "content": "Who am I?"})
    same(client.responses.create(model=MODEL, input=messages).output_text, "You are Ada.")


@flows.of("turns")
def sealed_reasoning_sent_again():
    options = {"model": MODEL, "store": False, "include": ["reasoning.encrypted_content"]}
    messages = [{"role": "user", "content": "Think of a number."}]
    first = client.responses.create(input=messages, **options)
    messages += [item.model_dump(exclude={"id", "content"}) for item in first.output[:1]]
    messages.append({"role": "assistant", "content": first.output_text})
    holds(messages[1]["encrypted_content"], "nothing is sealed")
    messages.append({"role": "user", "content": "Which number?"})
    same(client.responses.create(input=messages, **options).output_text, "It was 17.")


@flows.of("turns")
def history_of_a_shell():
    printed = {"stdout": "21 degrees", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    patch = {"type": "create_file", "path": "a.txt", "diff": "+21\n"}
    items = [
        {"type": "shell_call", "call_id": "call_1", "action": {"commands": ["weather"]}},
        {"type": "shell_call_output", "call_id": "call_1", "output": [printed]},
        {"type": "apply_patch_call", "call_id": "call_2", "operation": patch},
        {"type": "apply_patch_call_output", "call_id": "call_2", "status": "completed"},
        {"role": "user", "content": "Say hello."},
    ]
    response = client.responses.create(model=MODEL, input=items)
    same(response.output_text, "Hello from the script.")
    kept = [item.type for item in client.responses.input_items.list(response.id, order="asc")]
    same(kept, [*(item["type"] for item in items[:4]), "message"])


@flows.of("resume")
def previous_response_id():
    first = client.responses.create(model=MODEL, input="I am Ada.")
    second = client.responses.create(model=MODEL, input="Who am I?", previous_response_id=first.id)
    same(second.output_text, "You are Ada.")


@flows.of("resume")
def conversation():
    made = client.conversations.create(metadata={"a": "b"})
    for said, answer in (("I am Ada.", "Hello Ada."), ("Who am I?", "You are Ada.")):
        response = client.responses.create(model=MODEL, input=said, conversation=made.id)
        same(response.output_text, answer)
    same(len(list(client.conversations.items.list(made.id))), 5)


@flows.of("resume")
def stream_picked_up():
    seen = []
    stream = client.responses.create(
        model=MODEL, input="Count slowly.", background=True, stream=True
    )
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    answer = seen[0].response.id
    rest = client.responses.retrieve(answer, stream=True, starting_after=seen[-1].sequence_number)
    seen += rest
    same([event.sequence_number for event in seen], list(range(len(seen))))
    text = "".join(e.delta for e in seen if e.type == "response.output_text.delta")
    same(text, "one two three four five six seven eight nine ten")
    with client.responses.stream(response_id=answer, starting_after=3) as helper:
        same(next(iter(helper)).sequence_number, 4)
        same(helper.get_final_response().output_text, text)


@flows.of("resume")
def stored_response():
    made = client.responses.create(model=MODEL, input="Say hello.")
    same(client.responses.retrieve(made.id).output_text, "Hello from the script.")
    same([item.type for item in client.responses.input_items.list(made.id)], ["message"])
    client.responses.delete(made.id)
    try:
        client.responses.retrieve(made.id)
    except openai.NotFoundError:
        return
    raise AssertionError("it was not deleted")


@flows.of("resume")
def cancelled_in_the_background():
    made = client.responses.create(model=MODEL, input="Count slowly.", background=True)
    same(client.responses.cancel(made.id).status, "cancelled")


@flows.of("errors")
def wrong_key():
    try:
        OpenAI(base_url=BASE_URL, api_key="wrong").models.list()
    except openai.AuthenticationError as error:
        return same(error.code, "invalid_api_key")
    raise AssertionError("it was let in")


@flows.of("errors")
def unknown_model():
    same(refused(openai.NotFoundError, model="nobody").code, "model_not_found")


@flows.of("errors")
def wrong_value():
    error = refused(openai.BadRequestError, temperature=9)
    same((error.param, error.type), ("temperature", "invalid_request_error"))


@flows.of("errors")
def input_that_is_too_long():
    error = refused(openai.BadRequestError, model=TINY, input=TOO_LONG)
    same(error.code, "context_length_exceeded")


@flows.of("errors")
def picture():
    image = {"type": "input_image", "detail": "auto", "image_url": PIXEL}
    said = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, image]}
    error = refused(openai.BadRequestError, input=[said])
    same((error.code, error.param), ("unsupported_value", "input[0].content[1].type"))


@flows.of("errors")
def file():
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,"}
    error = refused(openai.BadRequestError, input=[{"role": "user", "content": [file]}])
    same((error.code, error.param), ("unsupported_value", "input[0].content[0].type"))


@flows.of("errors")
def compaction():
    made = {"type": "compaction", "encrypted_content": "nobody's"}
    error = refused(openai.BadRequestError, input=[made, {"role": "user", "content": "Hi"}])
    same((error.code, error.param), ("unsupported_value", "input[0].type"))
    try:
        client.responses.compact(model=MODEL, input="Hi")
    except openai.APIStatusError as error:
        return same(error.status_code, 405)
    raise AssertionError("it was compacted")


@flows.of("errors")
def too_few_tokens():
    error = refused(openai.BadRequestError, max_output_tokens=1)
    same((error.code, error.param), ("integer_below_min_value", "max_output_tokens"))


@flows.of("errors")
def busy_server():
    same(client.responses.create(model=MODEL, input="Be busy.").output_text, "At last.")


@flows.of("errors")
def stream_that_fails():
    try:
        for _ in client.responses.create(model=MODEL, input="Break off.", stream=True):
            pass
    except openai.APIError as error:
        return same(error.code, "server_error")
    raise AssertionError("the failure was not told")


@flows.of("errors")
def answer_that_is_cut():
    response = client.responses.create(
        model=MODEL, input="Count slowly.", max_output_tokens=16, extra_body={"ignored": 1}
    )
    same((response.status, response.incomplete_details), ("completed", None))
    response = client.responses.create(model=MODEL, input=TOO_LONG, max_output_tokens=16)
    same(response.incomplete_details.reason, "max_output_tokens")


@flows.of("real")
def a_real_answer():
    response = client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=16)
    holds(response.output_text, "no text")
    with client.responses.stream(
        model=MODEL,
        input="Count to three.",
        previous_response_id=response.id,
        max_output_tokens=16,
    ) as stream:
        deltas = [event for event in stream if event.type == "response.output_text.delta"]
    holds(len(deltas) > 1, "no stream")


@flows.of("real")
def a_real_call():
    response = client.responses.create(
        model=MODEL,
        input="Weather in Paris?",
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = calls(response)
    same(list(json.loads(call.arguments)), ["city"])


@flows.of("real")
def a_real_object():
    with client.responses.stream(model=MODEL, input="What is Paris?", text_format=Place) as stream:
        holds(stream.get_final_response().output_parsed.kind, "no kind")


if __name__ == "__main__":
    flows.main()
