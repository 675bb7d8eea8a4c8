"""LangChain with `ChatOpenAI(use_responses_api=True)`."""

import openai
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

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
from shapes import City

flows = Flows()


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return WEATHER[city]


def chat(model: str = MODEL, **options) -> ChatOpenAI:
    return ChatOpenAI(
        model=model, base_url=BASE_URL, api_key=API_KEY, use_responses_api=True, **options
    )


def streamed(model, messages):
    """The whole message that a stream adds up to."""
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


def tool_loop_of(answer):
    """What is said in the end where `answer` asks the model."""
    messages = [HumanMessage("Weather in Paris and Oslo?")]
    first = answer(messages)
    same(len(first.tool_calls), 2)
    messages += [first, *(get_weather.invoke(call) for call in first.tool_calls)]
    return answer(messages).text


@flows.of("answer")
def invoke():
    message = chat().invoke([SystemMessage("Be brief."), HumanMessage("Say hello.")])
    same(message.text, "Hello from the script.")
    holds(message.usage_metadata["total_tokens"] > 0, "no usage")
    holds(message.response_metadata["id"].startswith("resp_"), "no id")


@flows.of("stream")
def stream():
    message = streamed(chat(), "Say hello.")
    same(message.text, "Hello from the script.")
    holds(message.usage_metadata["total_tokens"] > 0, "no usage")


@flows.of("stream")
async def asynchronous_stream():
    text = ""
    async for chunk in chat().astream("Say hello."):
        text += chunk.text
    same(text, "Hello from the script.")


@flows.of("tools")
def tool_loop():
    same(tool_loop_of(chat().bind_tools([get_weather]).invoke), TWO_CITIES)


@flows.of("tools")
def streamed_tool_loop():
    model = chat().bind_tools([get_weather])
    same(tool_loop_of(lambda messages: streamed(model, messages)), TWO_CITIES)


@flows.of("tools")
def agent():
    made = create_agent(chat(), [get_weather], system_prompt="Use tools.")
    state = made.invoke({"messages": [{"role": "user", "content": "Weather in Paris?"}]})
    same(state["messages"][-1].text, ONE_CITY)


@flows.of("tools")
def strict_tool_by_name():
    model = chat().bind_tools([get_weather], tool_choice="get_weather", strict=True)
    (call,) = model.invoke("Weather in Paris?").tool_calls
    same(call["args"], {"city": "Paris"})


@flows.of("structured")
def structured_output():
    city = chat().with_structured_output(City).invoke("Describe Paris")
    same(city.model_dump(), CITY)


@flows.of("structured")
def streamed_structured_output():
    *_, city = chat().with_structured_output(City).stream("Describe Paris")
    same(city.model_dump(), CITY)


@flows.of("structured")
def structured_output_by_a_call():
    model = chat().with_structured_output(City, method="function_calling")
    same(model.invoke("Describe Paris as a call of City").model_dump(), CITY)


@flows.of("structured")
def json_mode():
    model = chat().with_structured_output(City, method="json_mode")
    same(model.invoke("Describe Paris in JSON").model_dump(), CITY)


@flows.of("turns")
def history_sent_again():
    first = [HumanMessage("I am Ada.")]
    message = chat().invoke(first)
    same(chat().invoke([*first, message, HumanMessage("Who am I?")]).text, "You are Ada.")


@flows.of("turns")
def reasoning_sent_again():
    model = chat(
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
        verbosity="low",
        service_tier="auto",
        truncation="auto",
        metadata={"a": "b"},
        output_version="responses/v1",
    )
    first = [HumanMessage("I am Ada.")]
    message = model.invoke(first)
    holds(any(block["type"] == "reasoning" for block in message.content), "no reasoning")
    same(model.invoke([*first, message, HumanMessage("Who am I?")]).text, "You are Ada.")


@flows.of("resume")
def previous_response_id():
    model = chat(use_previous_response_id=True)
    first = [HumanMessage("I am Ada.")]
    message = model.invoke(first)
    same(model.invoke([*first, message, HumanMessage("Who am I?")]).text, "You are Ada.")


@flows.of("errors")
def unknown_model():
    same(refused(openai.NotFoundError, chat("nobody"), "Say hello.").code, "model_not_found")


@flows.of("errors")
def input_that_is_too_long():
    refused(ContextOverflowError, chat(TINY), TOO_LONG)


@flows.of("errors")
def busy_server():
    same(chat().invoke("Be busy.").text, "At last.")


@flows.of("errors")
def stream_that_fails():
    try:
        list(chat().stream("Break off."))
    except openai.APIError as error:
        return same(error.code, "server_error")
    raise AssertionError("the failure was not told")


def refused(kind, model, text):
    """The error that a call ends with."""
    try:
        model.invoke(text)
    except kind as error:
        return error
    raise AssertionError("it was not refused")


@flows.of("real")
def a_real_answer():
    holds(streamed(chat(max_tokens=16), "Say hello.").text, "no text")


@flows.of("real")
def a_real_call():
    model = chat().bind_tools([get_weather], tool_choice="get_weather", strict=True)
    (call,) = model.invoke("Weather in Paris?").tool_calls
    same(list(call["args"]), ["city"])


if __name__ == "__main__":
    flows.main()
