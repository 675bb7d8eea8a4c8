"""llm, the command line tool."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from flows import (
    API_KEY,
    BASE_URL,
    CITY,
    MODEL,
    ONE_CITY,
    TINY,
    TOO_LONG,
    TWO_CITIES,
    Flows,
    holds,
    same,
)

flows = Flows()
home = Path(tempfile.mkdtemp(prefix="llm-"))
FUNCTIONS = """
def get_weather(city: str) -> str:
    "The weather of a city."
    return {"Paris": "21 degrees in Paris", "Oslo": "3 degrees in Oslo"}[city]
"""
(home / "extra-openai-models.yaml").write_text(
    f"""
- model_id: antiphon
  model_name: {MODEL}
  api_base: "{BASE_URL}"
  api_key_name: antiphon
  responses: true
  reasoning: true
  supports_schema: true
  supports_tools: true
"""
)


def llm(*arguments: str, fails: bool = False) -> str:
    """What the command prints, or what it says as it fails."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("llm")), *arguments],
        env={**os.environ, "LLM_USER_PATH": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if (done.returncode != 0) != fails:
        raise AssertionError(f"it ended with {done.returncode}: {done.stdout}{done.stderr}")
    return (done.stderr if fails else done.stdout).strip()


def endpoint(*arguments: str, model: str = MODEL, **options: bool) -> str:
    return llm(
        *("openai", "endpoint", BASE_URL, "--responses", "--key", API_KEY, "-m", model),
        *arguments,
        **options,
    )


def configured(*arguments: str) -> str:
    """What a model from the settings file says, which reasons."""
    options = ("--key", API_KEY, "-o", "reasoning_effort", "low")
    return llm("-m", "antiphon", *options, *arguments)


@flows.of("answer")
def prompt():
    answer = endpoint("Say hello.", "-s", "Be brief.", "--no-stream", "-o", "temperature", "0.2")
    same(answer, "Hello from the script.")


@flows.of("answer")
def models():
    listed = llm("openai", "endpoint", BASE_URL, "--key", API_KEY, "--models")
    holds(MODEL in listed, f"it is not listed: {listed}")


@flows.of("stream")
def streamed_prompt():
    same(endpoint("Say hello."), "Hello from the script.")


@flows.of("tools")
def tool_loop():
    answer = endpoint("Temperature of Paris?", "--functions", FUNCTIONS, "--no-stream")
    holds(answer.endswith(ONE_CITY), answer)


@flows.of("tools")
def streamed_tool_loop_with_reasoning():
    # Only where an effort is asked for does llm send reasoning back with its content.
    answer = configured("Weather in Paris and Oslo?", "--functions", FUNCTIONS)
    holds(answer.endswith(TWO_CITIES), answer)


@flows.of("structured")
def schema():
    answer = endpoint("Describe Paris", "--schema", "name, population int")
    same(json.loads(answer), CITY)


@flows.of("turns")
def history_sent_again():
    answer = configured("I am Ada.")
    holds(answer.endswith("Hello Ada."), answer)
    answer = llm("-c", "--key", API_KEY, "Who am I?")
    holds(answer.endswith("You are Ada."), answer)


@flows.of("errors")
def unknown_model():
    holds("There is no model" in endpoint("Hi", model="nobody", fails=True), "another error")


@flows.of("errors")
def input_that_is_too_long():
    holds("context" in endpoint(TOO_LONG, model=TINY, fails=True), "another error")


@flows.of("errors")
def busy_server():
    same(endpoint("Be busy."), "At last.")


@flows.of("errors")
def stream_that_fails():
    endpoint("Break off.", fails=True)


@flows.of("real")
def a_real_answer():
    holds(endpoint("Say hello.", "-o", "max_tokens", "400"), "no text")


if __name__ == "__main__":
    flows.main()
