"""OpenAI Agents SDK (Python): runs, handoffs, sessions."""

import agents
import openai
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, SQLiteSession, function_tool
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

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

agents.set_tracing_disabled(True)
flows = Flows()
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return WEATHER[city]


def agent(model: str = MODEL, **options) -> Agent:
    return Agent(
        name="Agent", model=OpenAIResponsesModel(model=model, openai_client=client), **options
    )


async def raised(kind, run):
    """The error that a run ends with."""
    try:
        await run
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


@flows.of("answer")
async def run():
    result = await Runner.run(agent(instructions="Be brief."), "Say hello.")
    same(result.final_output, "Hello from the script.")


@flows.of("stream")
async def streamed_run():
    result = Runner.run_streamed(agent(), "Say hello.")
    deltas = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    same("".join(deltas), "Hello from the script.")
    same(result.final_output, "Hello from the script.")


@flows.of("tools")
async def tool_loop():
    result = await Runner.run(agent(tools=[get_weather]), "Weather in Paris and Oslo?")
    same((result.final_output, len(result.raw_responses)), (TWO_CITIES, 2))


@flows.of("tools")
async def streamed_tool_loop():
    result = Runner.run_streamed(agent(tools=[get_weather]), "Weather in Paris?")
    names = [
        event.name
        async for event in result.stream_events()
        if event.type == "run_item_stream_event"
    ]
    same(result.final_output, ONE_CITY)
    for name in ("reasoning_item_created", "tool_called", "tool_output"):
        holds(name in names, f"{name} is not in {names}")


@flows.of("tools")
async def tool_loop_with_every_setting():
    settings = ModelSettings(
        temperature=0.3,
        top_p=0.9,
        max_tokens=100,
        truncation="auto",
        reasoning=Reasoning(effort="low", summary="auto"),
        verbosity="low",
        metadata={"a": "b"},
        store=False,
        response_include=["reasoning.encrypted_content"],
        parallel_tool_calls=True,
        tool_choice="required",
        top_logprobs=1,
        extra_body={"my_field": 1},
        prompt_cache_retention="24h",
    )
    result = await Runner.run(
        agent(tools=[get_weather], model_settings=settings), "Weather in Paris?"
    )
    same(result.final_output, ONE_CITY)


@flows.of("tools")
async def handoff():
    spanish = Agent(name="Spanish", model=OpenAIResponsesModel(model=MODEL, openai_client=client))
    result = await Runner.run(agent(handoffs=[spanish]), "Hola")
    same((result.last_agent.name, result.final_output), ("Spanish", "Buenos dias."))


@flows.of("structured")
async def output_type():
    result = await Runner.run(agent(output_type=City), "Describe Paris")
    same(result.final_output.model_dump(), CITY)


@flows.of("structured")
async def streamed_output_type():
    result = Runner.run_streamed(agent(output_type=City), "Describe Paris")
    async for _ in result.stream_events():
        pass
    same(result.final_output.model_dump(), CITY)


@flows.of("turns")
async def history_sent_again():
    first = await Runner.run(agent(tools=[get_weather]), "I am Ada. Weather in Paris?")
    messages = [*first.to_input_list(), {"role": "user", "content": "Who am I?"}]
    same((await Runner.run(agent(), messages)).final_output, "You are Ada.")


@flows.of("turns")
async def session_of_ones_own():
    session = SQLiteSession("one")
    await Runner.run(agent(), "I am Ada.", session=session)
    result = await Runner.run(agent(), "Who am I?", session=session)
    same(result.final_output, "You are Ada.")


@flows.of("resume")
async def previous_response_id():
    first = await Runner.run(
        agent(tools=[get_weather]),
        "I am Ada. Weather in Paris?",
        auto_previous_response_id=True,
    )
    second = await Runner.run(agent(), "Who am I?", previous_response_id=first.last_response_id)
    same(second.final_output, "You are Ada.")


@flows.of("resume")
async def conversation():
    made = await client.conversations.create()
    for said, answer in (("Weather in Paris?", ONE_CITY), ("I am Ada.", "Hello Ada.")):
        result = await Runner.run(agent(tools=[get_weather]), said, conversation_id=made.id)
        same(result.final_output, answer)


@flows.of("resume")
async def conversations_session():
    session = agents.OpenAIConversationsSession(openai_client=client)
    await Runner.run(agent(), "I am Ada.", session=session)
    result = await Runner.run(agent(), "Who am I?", session=session)
    same(result.final_output, "You are Ada.")


@flows.of("errors")
async def unknown_model():
    error = await raised(openai.NotFoundError, Runner.run(agent("nobody"), "Say hello."))
    same(error.code, "model_not_found")


@flows.of("errors")
async def input_that_is_too_long():
    error = await raised(openai.BadRequestError, Runner.run(agent(TINY), TOO_LONG))
    same(error.code, "context_length_exceeded")


@flows.of("errors")
async def busy_server():
    same((await Runner.run(agent(), "Be busy.")).final_output, "At last.")


@flows.of("errors")
async def stream_that_fails():
    result = Runner.run_streamed(agent(), "Break off.")

    async def read():
        async for _ in result.stream_events():
            pass

    error = await raised(Exception, read())
    holds("server" in str(error).lower() or "fail" in str(error).lower(), repr(error))


@flows.of("real")
async def a_real_answer():
    settings = ModelSettings(max_tokens=400)
    result = Runner.run_streamed(agent(model_settings=settings), "Say hello.")
    async for _ in result.stream_events():
        pass
    holds(result.final_output, "no text")


@flows.of("real")
async def a_real_object():
    result = await Runner.run(agent(output_type=Place), "What is Paris?")
    holds(result.final_output.kind, "no kind")


if __name__ == "__main__":
    flows.main()
