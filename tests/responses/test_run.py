"""A response being made: how it ends, and that it does."""

import asyncio
import contextlib
from typing import Any

import pytest
from said import SaidGeneration, Step, in_a_loop
from structlog.testing import capture_logs
from writing import STOP, as_read, new_builder, of, response_of, types

from antiphon import errors
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.run import Run
from antiphon.turn import CallStart, Finish, TextDelta


def run_of(*steps: Step, keep_alive_seconds: float = 100, builder: Any = None) -> Run:
    builder = builder or new_builder()
    return Run(SaidGeneration(steps), builder, builder.log, keep_alive_seconds=keep_alive_seconds)


async def events_until(run: Run, count: int) -> list[dict[str, Any]]:
    """The first `count` events, once they are there."""
    while len(run.log.events) < count:
        assert await run.log.frames_from(len(run.log.events))
    return as_read(run.log)[:count]


# To the end


@in_a_loop
async def test_what_the_model_says_is_written_and_the_log_closed():
    run = run_of(TextDelta("Hel"), TextDelta("lo"), STOP)
    await run.start()
    assert run.ended and run.log.closed
    assert run.outcome == "completed"
    assert response_of(as_read(run.log))["output"][0]["content"][0]["text"] == "Hello"


@in_a_loop
async def test_the_response_is_announced_before_the_model_is_asked():
    run = run_of(asyncio.Event())
    task = run.start()
    assert types(as_read(run.log)) == ["created", "in_progress"]
    task.cancel()


@in_a_loop
async def test_nothing_is_read_after_the_models_finish():
    generation = SaidGeneration([TextDelta("a"), STOP, TextDelta("b")])
    builder = new_builder()
    run = Run(generation, builder, builder.log, keep_alive_seconds=100)
    await run.start()
    assert generation.ended.is_set()
    assert len(of(as_read(run.log), "output_text.delta")) == 1


@in_a_loop
async def test_usage_is_the_models_at_the_end():
    run = run_of(TextDelta("a"), TextDelta("b"), STOP)
    await run.start()
    usage = response_of(as_read(run.log))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (3, 2)


@in_a_loop
async def test_the_result_is_the_response_of_the_last_event():
    run = run_of(TextDelta("a"), Finish("length"))
    await run.start()
    assert run.result() == response_of(as_read(run.log))
    assert run.outcome == "incomplete"


@in_a_loop
async def test_the_result_before_the_end_is_what_there_is():
    said = asyncio.Event()
    run = run_of(TextDelta("Hel"), said, STOP)
    task = run.start()
    await events_until(run, 5)
    result = run.result()
    assert result["status"] == "in_progress"
    assert result["output"][0]["content"][0]["text"] == "Hel"  # type: ignore[typeddict-item]
    said.set()
    await task


# Failure


@in_a_loop
async def test_err_02_a_model_that_breaks_fails_the_response_and_the_cause_stays_in_the_log():
    run = run_of(TextDelta("Hel"), RuntimeError("the secret cause"))
    with capture_logs() as lines:
        await run.start()
    events = as_read(run.log)
    assert types(events)[-2:] == ["error", "failed"]
    assert run.outcome == "failed" and run.log.closed
    assert "secret" not in str(events)
    response = response_of(events)
    assert response["error"]["message"] == "The model failed while it answered."
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert response["output"][0]["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == 1
    assert [line["event"] for line in lines] == ["run failed"]


@in_a_loop
async def test_a_model_that_raises_an_error_for_the_client_is_taken_at_its_word():
    run = run_of(errors.InvalidPrompt("The template refuses it.", param="input"))
    await run.start()
    event = as_read(run.log)[-2]
    assert (event["code"], event["message"], event["param"]) == (
        "invalid_prompt",
        "The template refuses it.",
        "input",
    )


@in_a_loop
async def test_err_05_a_model_that_stops_without_saying_how_has_failed():
    run = run_of(TextDelta("Hello"))
    await run.start()
    assert response_of(as_read(run.log))["status"] == "failed"


@in_a_loop
async def test_a_turn_that_ends_inside_a_call_fails_the_run():
    run = run_of(CallStart(0, "f"), STOP)
    await run.start()
    assert run.outcome == "failed"


@pytest.mark.parametrize("before", [(), (TextDelta("ok"),)])
@in_a_loop
async def test_str_07_what_the_log_refuses_fails_the_response_and_ends_its_stream(before: Any):
    run = run_of(*before, TextDelta("\ud800"), STOP)
    await run.start()
    events = as_read(run.log)
    assert types(events)[-2:] == ["error", "failed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@in_a_loop
async def test_a_response_that_cannot_even_fail_still_ends():
    class Broken(ResponseBuilder):
        def fail(self, *_: Any) -> None:
            raise RuntimeError("broken")

    sound = new_builder()
    broken = Broken(sound._response, sound.log)
    run = run_of(RuntimeError("first"), builder=broken)
    with capture_logs() as lines:
        await run.start()
    assert run.log.closed and run.outcome == "cancelled"
    assert lines[-1]["event"] == "run could not be ended properly"


# Cancelling and stopping


@in_a_loop
async def test_net_02_a_cancelled_run_stops_the_model_and_ends_without_a_last_word():
    generation = SaidGeneration([TextDelta("Hel"), asyncio.Event()])
    builder = new_builder()
    run = Run(generation, builder, builder.log, keep_alive_seconds=100)
    task = run.start()
    events = await events_until(run, 5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert generation.ended.is_set()
    assert run.log.closed and run.outcome == "cancelled"
    assert as_read(run.log) == events
    assert await run.log.frames_from(5) == []


@in_a_loop
async def test_a_run_that_is_cancelled_before_its_first_step_lets_its_readers_end():
    run = run_of(TextDelta("a"), STOP)
    task = run.start()
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert run.ended
    assert await run.log.frames_from(2) == []


@in_a_loop
async def test_a_stopped_run_fails_with_the_reason_for_those_who_still_read():
    generation = SaidGeneration([TextDelta("Hel"), asyncio.Event()])
    builder = new_builder()
    run = Run(generation, builder, builder.log, keep_alive_seconds=100)
    task = run.start()
    await events_until(run, 5)
    reason = errors.ShuttingDown("The server is shutting down.")
    run.stop(reason)
    await task
    events = as_read(run.log)
    assert generation.ended.is_set() and run.log.closed
    assert run.stop_reason is reason and run.outcome == "failed"
    assert events[-2]["code"] == "server_shutting_down"
    assert response_of(events)["output"][0]["status"] == "incomplete"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@in_a_loop
async def test_cancelling_what_has_ended_changes_nothing():
    run = run_of(TextDelta("a"), STOP)
    run.cancel()
    await run.start()
    run.cancel()
    assert run.outcome == "completed"


# Keeping alive


@in_a_loop
async def test_net_01_a_silent_model_has_its_response_repeated_until_it_speaks():
    said = asyncio.Event()
    run = run_of(TextDelta("Hel"), said, TextDelta("lo"), STOP, keep_alive_seconds=0.001)
    task = run.start()
    events = await events_until(run, 8)
    repeated = [e for e in events if e["type"] == "response.in_progress"][1:]
    assert len(repeated) >= 3
    assert all(e["response"]["output"][0]["content"][0]["text"] == "Hel" for e in repeated)
    said.set()
    await task
    events = as_read(run.log)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert response_of(events)["output"][0]["content"][0]["text"] == "Hello"


@in_a_loop
async def test_net_01_the_response_is_repeated_before_the_first_word_as_well():
    said = asyncio.Event()
    run = run_of(said, STOP, keep_alive_seconds=0.001)
    task = run.start()
    assert types(await events_until(run, 4)) == ["created", *["in_progress"] * 3]
    said.set()
    await task


@in_a_loop
async def test_nothing_is_repeated_once_a_run_has_ended():
    def timers() -> set[asyncio.TimerHandle]:
        loop: Any = asyncio.get_running_loop()
        return {handle for handle in loop._scheduled if not handle.cancelled()}

    before = timers()
    for steps in ((TextDelta("a"), STOP), (RuntimeError("broken"),)):
        run = run_of(*steps)
        task = run.start()
        await events_until(run, 3)
        await task
        assert timers() == before
