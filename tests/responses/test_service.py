"""The operations on responses, without a transport."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import SaidModel, in_a_loop
from structlog.testing import capture_logs
from writing import STOP, as_read, types

from antiphon import errors
from antiphon.metrics import Metrics
from antiphon.models.base import Model
from antiphon.models.router import Router
from antiphon.models.scripted import ScriptedGeneration, ScriptedModel
from antiphon.principal import ANONYMOUS
from antiphon.responses.admission import HistoryBudget
from antiphon.responses.context import ContextLoader
from antiphon.responses.gate import Dropped, Gate
from antiphon.responses.intake import Intake
from antiphon.responses.log import EventLog
from antiphon.responses.observer import Observer
from antiphon.responses.request import RequestReader
from antiphon.responses.service import ResponseService, Started
from antiphon.settings import SceneSettings, Settings, StepSettings
from antiphon.spec import packaged_contract
from antiphon.turn import Message, TextDelta, Turn


def service_of(*models: Model, metrics: Metrics | None = None, **options: Any) -> ResponseService:
    """A service that stores nothing."""
    contract = packaged_contract()
    reader = RequestReader(Router(models or [SaidModel(TextDelta("Hello"), STOP)], {}))
    settings = Settings(**options)
    return ResponseService(
        contract,
        Intake(Gate(contract, stateless=True), reader, stores=False, options=settings),
        ContextLoader(None, HistoryBudget(10**6)),
        None,
        Observer(metrics or Metrics(), log_content=settings.log_content),
        keep_alive_seconds=settings.keep_alive_seconds,
    )


class Remembering(ScriptedModel):
    """A scripted model that remembers the turns it agreed to answer, and those it did not."""

    def __init__(self, context_window: int) -> None:
        scene = SceneSettings(steps=(StepSettings(text="ok"),))
        super().__init__("remembering", [scene], context_window=context_window)
        self.accepted: list[Turn] = []
        self.refused = 0

    async def prepare(self, turn: Turn) -> ScriptedGeneration:
        try:
            generation = await super().prepare(turn)
        except errors.ContextLengthExceeded:
            self.refused += 1
            raise
        self.accepted.append(turn)
        return generation


def log_of(started: Started) -> EventLog:
    """The events of a response that is not stored."""
    assert isinstance(started.answer.tail, EventLog)
    return started.answer.tail


async def ended(started: Started) -> dict[str, Any]:
    """The response, once it has ended."""
    return dict(await started.answer.result())


async def refusal(service: ResponseService, body: dict[str, Any]) -> errors.APIError:
    with pytest.raises(errors.APIError) as caught:
        await service.create(ANONYMOUS, body)
    return caught.value


# Making a response


@in_a_loop
async def test_a_response_is_made_in_the_background_of_whoever_asked():
    service = service_of()
    started = await service.create(ANONYMOUS, {"input": "hi"})
    assert types(as_read(log_of(started))) == ["created", "in_progress"]
    response = await ended(started)
    assert response["status"] == "completed"
    assert response["model"] == "said"
    assert not started.streams and started.dropped == []


@in_a_loop
async def test_what_was_left_out_and_whether_to_stream_is_told():
    started = await service_of().create(
        ANONYMOUS, {"input": "hi", "stream": True, "store": True, "zz": 1}
    )
    assert started.streams
    assert started.dropped == [Dropped("store", "store"), Dropped("zz", "unknown field")]
    assert (await ended(started))["store"] is False


@in_a_loop
async def test_inp_03_nulls_are_no_reason_to_do_anything_else():
    schema = packaged_contract().document["components"]["schemas"]["CreateResponse"]
    nulls = {**dict.fromkeys(schema["properties"]), "input": "hi"}
    service = service_of()
    first = await ended(await service.create(ANONYMOUS, nulls))
    second = await ended(await service.create(ANONYMOUS, {"input": "hi"}))
    volatile = {"id", "created_at", "completed_at", "output"}
    assert {k: v for k, v in first.items() if k not in volatile} == {
        k: v for k, v in second.items() if k not in volatile
    }


@in_a_loop
async def test_everything_that_is_wrong_is_known_before_a_response_begins():
    model = SaidModel(STOP)
    service = service_of(model)
    for body, kind in (
        ({"input": "hi", "background": True}, errors.UnsupportedParameter),
        ({"input": "hi", "previous_response_id": "resp_1"}, errors.UnsupportedParameter),
        ({"input": "hi", "conversation": "conv_1"}, errors.UnsupportedParameter),
        ({"input": "hi", "max_tokens": 5}, errors.UnknownParameter),
        ({"input": "hi", "model": "none"}, errors.ModelNotFound),
        ({"input": []}, errors.InvalidValue),
        ({}, errors.MissingParameter),
    ):
        assert type(await refusal(service, body)) is kind
    assert model.generations == []


@in_a_loop
async def test_a_model_that_cannot_answer_a_turn_refuses_the_request():
    error = await refusal(service_of(Remembering(4)), {"input": "one two three four"})
    assert type(error) is errors.ContextLengthExceeded


@in_a_loop
async def test_counting_gives_what_a_response_would_report_and_makes_none():
    service = service_of(Remembering(100))
    body = {"input": "one two three", "instructions": "four five"}
    counted = await service.count_input_tokens(ANONYMOUS, {**body, "personality": "friendly"})
    assert counted.input_tokens == 5
    assert counted.dropped == [Dropped("personality", "personality")]
    response = await ended(await service.create(ANONYMOUS, body))
    assert response["usage"]["input_tokens"] == 5


# The smallest limit


@pytest.mark.parametrize("limit", [1, 15, 15.0])
@in_a_loop
async def test_err_05_limits_below_the_smallest_are_refused(limit: float):
    error = await refusal(service_of(), {"input": "hi", "max_output_tokens": limit})
    assert (type(error), error.param) == (errors.IntegerBelowMinimum, "max_output_tokens")
    assert "at least 16" in error.message


@in_a_loop
async def test_the_smallest_limit_is_a_setting():
    service = service_of(min_output_tokens=3)
    for limit in (3, 16, 16.0):
        response = await ended(
            await service.create(ANONYMOUS, {"input": "hi", "max_output_tokens": limit})
        )
        assert response["max_output_tokens"] == limit
    error = await refusal(service, {"input": "hi", "max_output_tokens": 2})
    assert type(error) is errors.IntegerBelowMinimum


# Input that is too long


def conversation(*messages: tuple[str, int]) -> list[dict[str, Any]]:
    """Messages of so many words each, every one different."""
    return [
        {"role": role, "content": " ".join(f"m{number}w{word}" for word in range(words))}
        for number, (role, words) in enumerate(messages)
    ]


def numbers(messages: Sequence[Message]) -> list[int]:
    """Which messages of a conversation these are."""
    return [int(message.text.split("w")[0].removeprefix("m")) for message in messages]


FORTY = conversation(("developer", 10), *[("user", 125), ("assistant", 125)] * 19, ("user", 125))


@in_a_loop
async def test_err_04_input_that_is_too_long_is_refused_with_both_numbers():
    model = Remembering(2048)
    for body in ({"input": FORTY}, {"input": FORTY, "truncation": "disabled"}):
        error = await refusal(service_of(model), body)
        assert isinstance(error, errors.ContextLengthExceeded)
        assert (error.code, error.param) == ("context_length_exceeded", "input")
        assert "4885" in error.message and "2048" in error.message
    assert model.refused == 2


@in_a_loop
async def test_err_04_truncation_drops_the_fewest_of_the_oldest_messages():
    model = Remembering(2048)
    body = {"input": FORTY, "truncation": "auto", "instructions": "Be brief."}
    response = await ended(await service_of(model).create(ANONYMOUS, body))
    assert response["status"] == "completed"
    # 10 words of the developer's, 2 of the instructions, and 16 messages of 125.
    assert response["usage"]["input_tokens"] == 2012
    turn = model.accepted[-1]
    assert turn.instructions == "Be brief."
    assert numbers(turn.messages) == [0, *range(24, 40)]


@in_a_loop
async def test_err_04_nothing_is_dropped_from_what_fits():
    model = Remembering(5000)
    body = {"input": FORTY, "truncation": "auto"}
    await ended(await service_of(model).create(ANONYMOUS, body))
    assert len(model.accepted) == 1
    assert numbers(model.accepted[0].messages) == list(range(40))


@pytest.mark.parametrize(
    "messages",
    [
        [("user", 50)],
        [("system", 5), ("user", 50)],
        [("user", 5), ("assistant", 5), ("user", 50)],
        [("system", 50)],
        [("system", 50), ("user", 1), ("user", 1)],
    ],
)
@in_a_loop
async def test_err_04_what_may_not_be_dropped_and_is_too_long_is_refused(messages: Any):
    model = Remembering(40)
    body = {"input": conversation(*messages), "truncation": "auto"}
    error = await refusal(service_of(model), body)
    assert type(error) is errors.ContextLengthExceeded
    assert model.accepted == []


@in_a_loop
async def test_err_04_text_as_input_is_one_message_and_never_dropped():
    body = {"input": "one two three four five", "truncation": "auto"}
    error = await refusal(service_of(Remembering(4)), body)
    assert type(error) is errors.ContextLengthExceeded


@in_a_loop
async def test_err_04_counting_counts_what_truncation_leaves():
    counted = await service_of(Remembering(2048)).count_input_tokens(
        ANONYMOUS, {"input": FORTY, "truncation": "auto"}
    )
    assert counted.input_tokens == 2010


ROLES = st.sampled_from(["system", "user", "assistant"])
MESSAGES = st.lists(st.tuples(ROLES, st.integers(1, 9)), min_size=1, max_size=9)


@settings(max_examples=150, deadline=None)
@given(messages=MESSAGES, window=st.integers(2, 40), wanted=st.integers(1, 8))
def test_err_04_truncation_leaves_what_trying_one_by_one_would_leave(
    messages: Any, window: int, wanted: int
):
    words = [count for _, count in messages]
    leading = next((n for n, (role, _) in enumerate(messages) if role != "system"), len(messages))
    choices = [
        [*range(leading), *range(leading + dropped, len(messages))]
        for dropped in range(max(1, len(messages) - leading))
    ]
    fitting = [kept for kept in choices if sum(words[n] for n in kept) < window]
    model = Remembering(window)
    body = {"input": conversation(*messages), "truncation": "auto", "max_output_tokens": wanted}

    async def main() -> None:
        service = service_of(model, min_output_tokens=1)
        if fitting:
            await service.count_input_tokens(ANONYMOUS, body)
            assert numbers(model.accepted[-1].messages) == fitting[0]
        else:
            assert type(await refusal(service, body)) is errors.ContextLengthExceeded

    asyncio.run(main())


@in_a_loop
async def test_a_long_history_is_cut_in_few_tries():
    model = Remembering(100)
    body = {"input": conversation(*[("user", 10)] * 1000), "truncation": "auto"}
    await service_of(model).count_input_tokens(ANONYMOUS, body)
    assert len(model.accepted) + model.refused <= 12
    assert numbers(model.accepted[-1].messages) == list(range(991, 1000))


# Draining


@in_a_loop
async def test_a_service_that_drains_begins_nothing_new():
    service = service_of()
    assert service.accepting
    await service.drain(100)
    assert not service.accepting
    error = await refusal(service, {"input": "hi"})
    assert isinstance(error, errors.ShuttingDown)
    assert error.status == 503 and int(error.headers["retry-after"]) > 0


@in_a_loop
async def test_a_drain_lets_responses_end_by_themselves():
    said = asyncio.Event()
    service = service_of(SaidModel(said, TextDelta("Hello"), STOP))
    started = await service.create(ANONYMOUS, {"input": "hi"})
    draining = asyncio.create_task(service.drain(100))
    await asyncio.sleep(0)
    assert not service.accepting and not draining.done()
    said.set()
    await draining
    assert types(as_read(log_of(started)))[-1] == "completed"


@in_a_loop
async def test_a_drain_fails_what_has_not_ended_after_the_grace():
    model = SaidModel(TextDelta("Hel"), asyncio.Event())
    service = service_of(model)
    begun = [await service.create(ANONYMOUS, {"input": "hi"}) for _ in range(3)]
    await service.drain(0)
    for started, generation in zip(begun, model.generations, strict=True):
        log = log_of(started)
        assert log.closed and generation.ended.is_set()
        assert types(as_read(log))[-2:] == ["error", "failed"]
        assert as_read(log)[-2]["code"] == "server_shutting_down"


@in_a_loop
async def test_what_was_being_prepared_when_the_drain_began_is_not_begun():
    ready = asyncio.Event()
    model = SaidModel(STOP, ready=ready)
    service = service_of(model)
    creating = asyncio.create_task(service.create(ANONYMOUS, {"input": "hi"}))
    await model.preparing.wait()
    await service.drain(0)
    ready.set()
    with pytest.raises(errors.ShuttingDown):
        await creating


@in_a_loop
async def test_ops_01_a_service_forgets_responses_that_have_ended():
    service = service_of(SaidModel(RuntimeError("broken")), SaidModel(STOP, name="sound"))
    for body in ({"input": "hi"}, {"input": "hi", "model": "sound"}):
        started = await service.create(ANONYMOUS, body)
        await ended(started)
    cancelled = await service.create(ANONYMOUS, {"input": "hi"})
    cancelled.answer.leave()
    await service.drain(100)
    assert service._runs == {}


# What is counted and logged


@in_a_loop
async def test_responses_are_counted_by_how_they_end():
    metrics = Metrics()
    never = asyncio.Event()
    service = service_of(
        SaidModel(TextDelta("a"), TextDelta("b"), STOP, name="sound"),
        SaidModel(TextDelta("a"), RuntimeError("broken"), name="broken"),
        SaidModel(TextDelta("a"), never, name="slow"),
        metrics=metrics,
    )
    for model in ("sound", "sound", "broken"):
        await ended(await service.create(ANONYMOUS, {"input": "hi", "model": model}))
    slow = await service.create(ANONYMOUS, {"input": "hi", "model": "slow"})
    while log_of(slow).next_number < 5:
        await log_of(slow).frames_from(log_of(slow).next_number)
    text = metrics.text().decode()
    assert 'antiphon_responses_running{model="slow"} 1.0' in text
    assert 'antiphon_responses_running{model="sound"} 0.0' in text
    slow.answer.leave()
    await service.drain(100)
    text = metrics.text().decode()
    for line in (
        'antiphon_responses_running{model="slow"} 0.0',
        'antiphon_responses_total{model="sound",outcome="completed"} 2.0',
        'antiphon_responses_total{model="broken",outcome="failed"} 1.0',
        'antiphon_responses_total{model="slow",outcome="cancelled"} 1.0',
        'antiphon_tokens_total{kind="input",model="sound"} 6.0',
        'antiphon_tokens_total{kind="output",model="sound"} 4.0',
        'antiphon_tokens_total{kind="output",model="slow"} 1.0',
    ):
        assert line in text


@in_a_loop
async def test_what_is_left_out_is_counted_by_name():
    metrics = Metrics()
    service = service_of(metrics=metrics)
    body = {"input": "hi", "store": True, "a": 1, "b": 2, "tools": [{"type": "my_own"}]}
    await ended(await service.create(ANONYMOUS, body))
    text = metrics.text().decode()
    assert 'antiphon_dropped_total{name="store"} 1.0' in text
    assert 'antiphon_dropped_total{name="unknown field"} 2.0' in text
    assert 'antiphon_dropped_total{name="unknown tool"} 1.0' in text
    assert "my_own" not in text


@in_a_loop
async def test_prompts_and_answers_are_logged_only_if_that_is_wanted():
    body = {"input": "my secret question"}
    for wanted in (False, True):
        service = service_of(SaidModel(TextDelta("my secret answer"), STOP), log_content=wanted)
        with capture_logs() as lines:
            await ended(await service.create(ANONYMOUS, body))
            await service.drain(100)
        assert ("secret question" in str(lines)) is wanted
        assert ("secret answer" in str(lines)) is wanted
        assert any(line["event"] == "response" for line in lines)
