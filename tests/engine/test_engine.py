"""The engine's loop over a real, tiny Llama and over runners that do what a test needs."""

import asyncio
import threading
from functools import cache
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs
from tiny_models import ScriptedRunner, WholeRunner, engine, run, tiny_llama

from antiphon.engine.engine import Engine, EngineClosed
from antiphon.engine.sequence import EngineStream, SequenceRequest, TokenOutput
from antiphon.turn import Sampling

GREEDY = Sampling(temperature=0)
PROMPTS = [[5], [7, 8, 9], list(range(20, 60)), [280, 3, 3, 3, 250, 11, 12]]


def request(
    prompt: list[int],
    *,
    max_tokens: int = 12,
    sampling: Sampling = GREEDY,
    stop: frozenset[int] = frozenset(),
    top_logprobs: int | None = None,
) -> SequenceRequest:
    return SequenceRequest(prompt, sampling, stop, max_tokens, top_logprobs)


async def outputs(stream: EngineStream) -> list[TokenOutput]:
    return [output async for output in stream]


def tokens_of(streamed: list[TokenOutput]) -> list[int]:
    return [sampled.token for output in streamed for sampled in output.tokens]


def generated(*requests: SequenceRequest, **options: Any) -> list[list[int]]:
    """The tokens of several requests that run at once."""

    async def together(running: Engine) -> list[list[TokenOutput]]:
        return await asyncio.gather(*(outputs(running.submit(one)) for one in requests))

    with engine(**options) as running:
        return [tokens_of(streamed) for streamed in run(together(running))]


def reference(prompt: list[int]) -> list[int]:
    """What transformers' own loop makes of a prompt."""
    return list(_reference(tuple(prompt)))


@cache
def _reference(prompt: tuple[int, ...]) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    made = tiny_llama().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(made[0, len(prompt) :].tolist())


# --- what is made ---


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_greedy_tokens_are_those_of_transformers(prompt):
    assert generated(request(prompt)) == [reference(prompt)]


def test_greedy_tokens_are_the_same_alone_and_among_others():
    assert generated(*map(request, PROMPTS)) == [reference(prompt) for prompt in PROMPTS]


def test_sampled_tokens_are_the_same_alone_and_among_others():
    requests = [
        request(PROMPTS[2], sampling=Sampling(temperature=temperature, seed=seed))
        for temperature, seed in [(1, 1), (1, 2), (2, 1), (0, 1)]
    ]
    alone = [generated(one)[0] for one in requests]
    assert generated(*requests) == alone
    assert len({tuple(tokens) for tokens in alone}) == 4


@pytest.mark.parametrize("max_chunk", [1, 16, 33, 40])
def test_a_prompt_in_chunks_is_the_same_as_in_one(max_chunk):
    assert generated(request(PROMPTS[2]), max_chunk=max_chunk) == [reference(PROMPTS[2])]


def test_log_probabilities_are_those_of_the_module():
    with torch.no_grad():
        expected = tiny_llama()(torch.tensor([PROMPTS[1]])).logits[0, -1].log_softmax(-1)

    async def first(running: Engine) -> TokenOutput:
        stream = running.submit(request(PROMPTS[1], max_tokens=1, top_logprobs=3))
        return (await outputs(stream))[0]

    with engine() as running:
        (sampled,) = run(first(running)).tokens
    values, tokens = expected.topk(3)
    assert [token for token, _ in sampled.top] == tokens.tolist()
    assert [value for _, value in sampled.top] == pytest.approx(values.tolist(), abs=1e-5)
    assert sampled.logprob == pytest.approx(values[0].item(), abs=1e-5)


def test_only_tokens_that_were_made_are_penalised():
    prompt = PROMPTS[1]
    (plain,) = generated(request(prompt, max_tokens=40))
    hated = Sampling(temperature=0, presence_penalty=2, frequency_penalty=2)
    (penalised,) = generated(request(prompt, max_tokens=40, sampling=hated))
    assert penalised[0] == plain[0]
    assert len(set(penalised)) > len(set(plain))
    assert generated(request([plain[0], *prompt], max_tokens=1, sampling=hated)) == generated(
        request([plain[0], *prompt], max_tokens=1)
    )


# --- how it ends ---


def last(streamed: list[TokenOutput]) -> str | None:
    assert all(output.finish_reason is None for output in streamed[:-1])
    return streamed[-1].finish_reason


@pytest.mark.parametrize("number", [1, 2, 5])
def test_generation_ends_after_so_many_tokens(number):
    with engine(ScriptedRunner([7])) as running:
        streamed = run(_outputs(running, request([1], max_tokens=number)))
        assert tokens_of(streamed) == [7] * number
        assert last(streamed) == "length"
        assert running.num_steps == number


def test_a_stop_token_ends_generation_and_is_among_the_tokens():
    with engine(ScriptedRunner([7, 8, 9, 7])) as running:
        streamed = run(_outputs(running, request([1], stop=frozenset({9, 100}))))
        assert tokens_of(streamed) == [7, 8, 9]
        assert last(streamed) == "stop"
        assert running.num_steps == 3


def test_a_stop_token_at_the_last_place_counts_as_a_stop():
    with engine(ScriptedRunner([7, 9])) as running:
        streamed = run(_outputs(running, request([1], max_tokens=2, stop=frozenset({9}))))
        assert last(streamed) == "stop"


def test_a_stop_token_in_the_prompt_stops_nothing():
    with engine(ScriptedRunner([7])) as running:
        streamed = run(_outputs(running, request([9, 9], max_tokens=3, stop=frozenset({9}))))
        assert tokens_of(streamed) == [7, 7, 7]


def test_a_stream_that_ended_stays_ended():
    async def read(running: Engine) -> None:
        stream = running.submit(request([1], max_tokens=1))
        assert len(await outputs(stream)) == 1
        assert await outputs(stream) == []

    with engine(ScriptedRunner([7])) as running:
        run(read(running))


async def _outputs(running: Engine, one: SequenceRequest) -> list[TokenOutput]:
    return await outputs(running.submit(one))


# --- cancelling ---


class Gate:
    """Holds the engine's thread in one step of one sequence until it is opened."""

    def __init__(self, sequence: int, step: int) -> None:
        self._held = (sequence, step)
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self, sequence: int, step: int) -> None:
        if (sequence, step) == self._held:
            self._reached.set()
            assert self._opened.wait(30)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._opened.set()


def test_a_cancelled_sequence_takes_no_further_step():
    gate = Gate(0, 2)
    runner = ScriptedRunner([7], before_step=gate)

    async def cancel(running: Engine) -> None:
        stream = running.submit(request([1], max_tokens=1000))
        await gate.reached()
        stream.cancel()
        gate.open()
        # Another sequence shows that the loop went on.
        await outputs(running.submit(request([1], max_tokens=5)))

    with engine(runner) as running:
        run(cancel(running))
        assert [step for number, step in runner.steps if number == 0] == [0, 1, 2]
        assert running.num_steps == 3 + 5


def test_a_sequence_cancelled_while_its_prompt_is_computed_takes_no_further_step():
    starts: list[int] = []
    gate = Gate(0, 1)

    def watch(segments):
        starts.append(segments[0].start)
        gate(0, len(starts) - 1)

    async def cancel(running: Engine) -> None:
        stream = running.submit(request(list(range(40))))
        await gate.reached()
        stream.cancel()
        gate.open()
        await outputs(running.submit(request([1], max_tokens=1)))

    with engine(WholeRunner(tiny_llama(), before_step=watch), max_chunk=16) as running:
        run(cancel(running))
    assert starts == [0, 16, 0]


def test_a_sequence_cancelled_while_it_waits_never_starts():
    gate = Gate(0, 1)
    runner = ScriptedRunner([7], [8], before_step=gate)

    async def cancel(running: Engine) -> list[TokenOutput]:
        first = running.submit(request([1], max_tokens=3))
        await gate.reached()
        waiting = running.submit(request([2], max_tokens=3))
        last_one = running.submit(request([3], max_tokens=3))
        waiting.cancel()
        gate.open()
        await outputs(first)
        return await outputs(last_one)

    with engine(runner, max_running=1) as running:
        assert tokens_of(run(cancel(running))) == [8, 8, 8]
        assert runner.steps == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


# --- turns of several ---


def test_more_sequences_than_may_run_wait_in_the_order_they_came():
    gate = Gate(0, 0)
    runner = ScriptedRunner([7], before_step=gate)

    async def together(running: Engine) -> None:
        streams = [running.submit(request([1], max_tokens=4)) for _ in range(5)]
        await gate.reached()
        gate.open()
        await asyncio.gather(*map(outputs, streams))

    with engine(runner, max_running=2) as running:
        run(together(running))
    first_steps = [number for number, step in runner.steps if step == 0]
    assert first_steps == sorted(first_steps)
    running_now: set[int] = set()
    for number, step in runner.steps:
        running_now.add(number)
        assert len(running_now) <= 2
        if step == 3:
            running_now.remove(number)


# --- failures ---


def test_a_failing_step_fails_its_own_sequence_with_its_error_and_no_other():
    boom = RuntimeError("boom")
    runner = ScriptedRunner([7, 7, boom], [8])

    async def together(running: Engine) -> None:
        failing, fine = (running.submit(request([1], max_tokens=6)) for _ in range(2))
        seen = []
        with pytest.raises(RuntimeError) as caught:
            async for output in failing:
                seen.append(output)
        assert caught.value is boom
        assert tokens_of(seen) == [7, 7]
        assert await outputs(failing) == []
        assert tokens_of(await outputs(fine)) == [8] * 6
        # And the loop goes on.
        assert tokens_of(await outputs(running.submit(request([1], max_tokens=1)))) == [8]

    with engine(runner) as running, capture_logs() as logged:
        run(together(running))
    # It was tried once more, alone.
    assert [step for number, step in runner.steps if number == 0] == [0, 1, 2, 2]
    assert [line["event"] for line in logged] == ["step failed", "step failed"]


def test_use_02_an_error_in_the_module_reaches_the_sequence():
    async def beyond_the_vocabulary(running: Engine) -> None:
        with pytest.raises(IndexError):
            await outputs(running.submit(request([10**6])))

    with engine() as running, capture_logs():
        run(beyond_the_vocabulary(running))


# --- closing ---


def test_closing_ends_running_and_waiting_sequences():
    gate = Gate(0, 1)

    async def close(running: Engine) -> None:
        streams = [running.submit(request([1], max_tokens=10**9)) for _ in range(3)]
        await gate.reached()
        closing = asyncio.create_task(asyncio.to_thread(running.close))
        gate.open()
        await closing
        for stream in streams:
            with pytest.raises(EngineClosed):
                await outputs(stream)

    with engine(ScriptedRunner([7], before_step=gate), max_running=1) as running:
        run(close(running))


def test_closing_ends_a_sequence_that_was_submitted_during_the_last_step():
    async def close(running: Engine, gate: Gate) -> None:
        first = running.submit(request([1], max_tokens=10**9))
        await gate.reached()
        late = running.submit(request([1], max_tokens=1))
        # What `close` does first, before the engine's thread can look at what was submitted.
        running._closing.set()
        gate.open()
        await asyncio.to_thread(running.close)
        for stream in (first, late):
            with pytest.raises(EngineClosed):
                await outputs(stream)

    gate = Gate(0, 0)
    with engine(ScriptedRunner([7], before_step=gate)) as running:
        run(close(running, gate))


def test_a_closed_engine_takes_no_sequence():
    async def submit(running: Engine) -> None:
        with pytest.raises(EngineClosed):
            running.submit(request([1]))

    with engine(ScriptedRunner([7])) as running:
        running.close()
        run(submit(running))
        assert running.num_steps == 0


def test_an_idle_engine_closes_and_may_be_closed_twice():
    with engine(ScriptedRunner([7])) as running:
        running.close()
        running.close()


def test_a_loop_that_is_gone_does_not_stop_the_engine():
    gate = Gate(0, 1)

    async def leave(running: Engine) -> None:
        running.submit(request([1], max_tokens=3))
        await gate.reached()

    async def stay(running: Engine) -> list[TokenOutput]:
        return await outputs(running.submit(request([1], max_tokens=2)))

    with engine(ScriptedRunner([7], before_step=gate)) as running:
        run(leave(running))
        gate.open()
        assert tokens_of(run(stay(running))) == [7, 7]
