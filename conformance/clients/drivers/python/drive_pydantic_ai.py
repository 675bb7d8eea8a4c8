"""pydantic-ai with `OpenAIResponsesModel`."""

from pydantic_ai import Agent, ModelHTTPError, NativeOutput, PromptedOutput
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

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
provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return WEATHER[city]


def agent(model: str = MODEL, **options) -> Agent:
    return Agent(OpenAIResponsesModel(model, provider=provider), **options)


async def raised(kind, run):
    """The error that a run ends with."""
    try:
        await run
    except kind as error:
        return error
    raise AssertionError("nothing was raised")


@flows.of("answer")
async def run():
    result = await agent(instructions="Be brief.").run("Say hello.")
    same(result.output, "Hello from the script.")
    holds(result.usage.output_tokens > 0, "no usage")


@flows.of("stream")
async def streamed_run():
    async with agent().run_stream("Say hello.") as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    holds(len(texts) > 1, "it came in one piece")
    same("".join(texts), "Hello from the script.")


@flows.of("tools")
async def tool_loop():
    result = await agent(tools=[get_weather]).run("Weather in Paris and Oslo?")
    same((result.output, len(result.all_messages())), (TWO_CITIES, 4))


@flows.of("tools")
async def stepwise_tool_loop():
    async with agent(tools=[get_weather]).iter("Weather in Paris?") as steps:
        names = [type(step).__name__ async for step in steps]
    same(steps.result.output, ONE_CITY)
    same(names.count("CallToolsNode"), 2)


@flows.of("tools")
async def tool_loop_that_stores_nothing():
    settings = OpenAIResponsesModelSettings(
        temperature=0.1,
        max_tokens=50,
        top_p=0.9,
        parallel_tool_calls=False,
        openai_reasoning_effort="low",
        openai_reasoning_summary="auto",
        openai_truncation="auto",
        openai_text_verbosity="low",
        openai_store=False,
        openai_user="u",
        openai_service_tier="auto",
        openai_include_encrypted_content=True,
        openai_logprobs=True,
        openai_top_logprobs=1,
        openai_prompt_cache_key="k",
        openai_send_reasoning_ids=True,
        extra_body={"my": 1},
    )
    result = await agent(tools=[get_weather], model_settings=settings).run("Weather in Paris?")
    same(result.output, ONE_CITY)


@flows.of("structured")
async def output_by_a_call():
    result = await agent(output_type=City).run("Describe Paris as a call of final_result")
    same(result.output.model_dump(), CITY)


@flows.of("structured")
async def streamed_output_by_a_call():
    prompt = "Describe Paris as a call of final_result"
    async with agent(output_type=City).run_stream(prompt) as result:
        output = await result.get_output()
    same(output.model_dump(), CITY)


@flows.of("structured")
async def native_output():
    result = await agent(output_type=NativeOutput(City)).run("Describe Paris")
    same(result.output.model_dump(), CITY)


@flows.of("structured")
async def prompted_output():
    result = await agent(output_type=PromptedOutput(City)).run("Describe Paris in JSON")
    same(result.output.model_dump(), CITY)


@flows.of("turns")
async def history_sent_again():
    asked = agent(tools=[get_weather])
    first = await asked.run("I am Ada. Weather in Paris?")
    second = await asked.run("Who am I?", message_history=first.all_messages())
    same(second.output, "You are Ada.")


@flows.of("resume")
async def previous_response_id():
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    asked = agent(tools=[get_weather], model_settings=settings)
    first = await asked.run("I am Ada. Weather in Paris?")
    second = await asked.run("Who am I?", message_history=first.all_messages())
    same(second.output, "You are Ada.")


@flows.of("errors")
async def unknown_model():
    error = await raised(ModelHTTPError, agent("nobody").run("Say hello."))
    same(error.status_code, 404)


@flows.of("errors")
async def input_that_is_too_long():
    await raised(ModelContextWindowExceededError, agent(TINY).run(TOO_LONG))


@flows.of("errors")
async def busy_server():
    same((await agent().run("Be busy.")).output, "At last.")


@flows.of("errors")
async def stream_that_fails():
    async def read():
        async with agent().run_stream("Break off.") as result:
            async for _ in result.stream_text():
                pass

    same((await raised(ModelHTTPError, read())).status_code, 500)


@flows.of("real")
async def a_real_answer():
    settings = OpenAIResponsesModelSettings(max_tokens=400)
    async with agent(model_settings=settings).run_stream("Say hello.") as result:
        holds(await result.get_output(), "no text")


@flows.of("real")
async def a_real_object():
    for kind in (Place, NativeOutput(Place)):
        result = await agent(output_type=kind).run("What is Paris?")
        holds(result.output.kind, "no kind")


if __name__ == "__main__":
    flows.main()
