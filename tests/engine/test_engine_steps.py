"""The engine over the toy of a paged cache: what is said is always what the toy says alone."""

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_toy import ToyRunner, ToySampler, said
from structlog.testing import capture_logs
from tiny_models import engine, run

from antiphon.engine.engine import (
    DeadlineExceeded,
    Engine,
    QueueFull,
    SequenceTooLong,
    StepStuck,
)
from antiphon.engine.sampler import NoTokenAllowed
from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest, TokenOutput
from antiphon.turn import Sampling

GREEDY = Sampling(temperature=0)


def request(prompt: list[int], number: int = 12, **options: Any) -> SequenceRequest:
    given = {"sampling": GREEDY, "stop_tokens": frozenset(), **options}
    return SequenceRequest(prompt, max_tokens=number, **given)


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(f"{seed} {length}").choices(range(64), k=length)


@contextmanager
def toy(runner: ToyRunner | None = None, **options: Any) -> Iterator[Engine]:
    with engine(runner or ToyRunner(), sampler=ToySampler(), **options) as running:
        yield running


async def outputs(stream: EngineStream) -> list[TokenOutput]:
    return [output async for output in stream]


def tokens_of(streamed: list[TokenOutput]) -> list[int]:
    return [sampled.token for output in streamed for sampled in output.tokens]


async def tokens(running: Engine, *requests: SequenceRequest) -> list[list[int]]:
    streams = [running.submit(one) for one in requests]
    return [tokens_of(one) for one in await asyncio.gather(*map(outputs, streams))]


PROMPTS = [prompt(length, seed) for seed, length in enumerate([1, 3, 16, 17, 40, 90, 33, 64] * 2)]
EXPECTED = [said(one, 30) for one in PROMPTS]


# --- always the same ---


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize(
    ("num_blocks", "max_running", "max_chunk"),
    [(400, 16, 256), (400, 3, 16), (14, 16, 256), (9, 16, 32), (8, 2, 20)],
    ids=["room", "few at once", "little room", "least room", "all scarce"],
)
def test_a_greedy_text_is_the_same_in_any_company(num_blocks, max_running, max_chunk, speculate):
    runner = ToyRunner(num_blocks)
    options = {"max_running": max_running, "max_chunk": max_chunk, "speculate": speculate}
    with toy(runner, **options) as running:
        made = run(tokens(running, *(request(one, 30) for one in PROMPTS)))
        stats = running.stats()
    assert made == EXPECTED
    if num_blocks in (9, 400):
        assert (stats["preemptions"] > 0) is (num_blocks == 9)
    assert (stats["speculation"]["accepted_tokens"] > 0) is speculate


def test_a_sequence_alone_never_has_more_than_its_tokens_computed():
    runner = ToyRunner()
    with toy(runner) as running:
        assert run(tokens(running, request(PROMPTS[4], 5))) == [EXPECTED[4][:5]]
    assert runner.steps == [[(0, 40, 1)]] + [[(position, 1, 1)] for position in range(40, 44)]


def test_a_cached_prefix_is_not_computed_again_and_changes_nothing():
    runner = ToyRunner()

    async def turns(running: Engine) -> None:
        first = PROMPTS[5]
        (answer,) = await tokens(running, request(first, 30))
        second = [*first, *answer, 7, 8, 9]
        stream = running.submit(request(second, 20))
        assert tokens_of(await outputs(stream)) == said(second, 20)
        # 119 of the 120 tokens were computed; full blocks of them are found.
        assert stream.cached_tokens == 112
        other = running.submit(request(second, 20, cache_salt="other"))
        assert tokens_of(await outputs(other)) == said(second, 20)
        assert other.cached_tokens == 0

    with toy(runner) as running:
        run(turns(running))


def test_cached_tokens_are_known_with_the_first_output_and_count_the_prompt_alone():
    async def counted(running: Engine) -> list[int]:
        await tokens(running, request(PROMPTS[5]))
        stream = running.submit(request(PROMPTS[5], 3))
        return [stream.cached_tokens async for _ in stream]

    with toy() as running:
        assert run(counted(running)) == [80, 80, 80]


def test_a_sampled_text_is_the_same_with_and_without_guesses_and_others():
    requests = [
        request(one, 40, sampling=Sampling(temperature=temperature, seed=seed))
        for seed, (one, temperature) in enumerate(zip(PROMPTS, [0.2, 0.4, 0.5, 1] * 4, strict=True))
    ]

    def made(*some: SequenceRequest, **options: Any) -> tuple[list[list[int]], int]:
        with toy(ToyRunner(200), max_running=16, **options) as running:
            return run(tokens(running, *some)), running.stats()["speculation"]["accepted_tokens"]

    plain, _ = made(*requests)
    guessed, num_accepted = made(*requests, speculate=True)
    assert plain == guessed
    assert num_accepted > 0
    assert [made(one, speculate=True)[0][0] for one in requests] == plain


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=8),
    shared=st.integers(0, 60),
    number=st.integers(1, 30),
    num_blocks=st.integers(7, 30),
    max_running=st.integers(1, 8),
    max_chunk=st.integers(1, 64),
    speculate=st.booleans(),
    keyed=st.booleans(),
)
def test_any_company_in_any_room_changes_nothing(
    lengths, shared, number, num_blocks, max_running, max_chunk, speculate, keyed
):
    prompts = [
        (prompt(shared) + prompt(length, length))[: num_blocks * 16 - number] for length in lengths
    ]
    options = {"max_running": max_running, "max_chunk": max_chunk, "speculate": speculate}
    with toy(ToyRunner(num_blocks), **options) as running:
        key = "k" if keyed else ""
        requests = [request(one, number, cache_key=key) for one in prompts]
        assert run(tokens(running, *requests)) == [said(one, number) for one in prompts]


def test_guesses_never_make_more_tokens_than_were_asked_for():
    with toy(speculate=True) as running:
        for number in range(1, 40):
            (made,) = run(tokens(running, request(PROMPTS[4], number)))
            assert made == said(PROMPTS[4], number)
        assert running.stats()["speculation"]["accepted_tokens"] > 0


def test_a_stop_token_among_right_guesses_ends_the_sequence():
    whole = said(PROMPTS[4], 60)
    for stop in set(whole):
        with toy(speculate=True) as running:
            stream = request(PROMPTS[4], 60, stop_tokens=frozenset({stop}))
            assert run(tokens(running, stream)) == [whole[: whole.index(stop) + 1]]


# --- grammars ---


class Spelled:
    """Allows the tokens of a text in turn, two at each place; the second is the text's. What is
    between `forced` places is forced."""

    def __init__(self, text: list[int], forced: range = range(0), fails_at: int = -1) -> None:
        self.text = text
        self.forced = forced
        self.fails_at = fails_at
        self.place = 0
        self.threads: set[str] = set()

    def fill_mask(self, mask: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.place == self.fails_at:
            raise ValueError("no such place")
        assert not mask.any()
        token = self.text[self.place]
        mask[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token: int) -> None:
        assert token == self.text[self.place]
        self.place += 1

    def forced_tokens(self) -> list[int]:
        if self.place not in self.forced:
            return []
        return self.text[self.place : self.forced.stop]


TEXT = prompt(40, 99)


def test_a_grammar_says_what_may_come_and_leaves_others_alone():
    grammars = [Spelled(TEXT), Spelled(TEXT[::-1])]

    async def said_under(running: Engine) -> list[list[int]]:
        wanted = [request(PROMPTS[n], 30, grammar=grammar) for n, grammar in enumerate(grammars)]
        return await tokens(running, *wanted, request(PROMPTS[2], 30))

    with toy(speculate=True) as running:
        made = run(said_under(running))
    assert made == [TEXT[:30], TEXT[::-1][:30], EXPECTED[2]]
    assert {name.rpartition("_")[0] for g in grammars for name in g.threads} == {"grammar"}
    assert not any(thread.name.startswith("grammar") for thread in threading.enumerate())


@pytest.mark.parametrize("forced", [range(5), range(3, 9), range(20, 40), range(40)], ids=str)
def test_forced_tokens_are_not_drawn_and_are_computed_together(forced):
    runner = ToyRunner()
    with toy(runner) as running:
        one = request(PROMPTS[4], 30, grammar=Spelled(TEXT, forced))
        assert run(tokens(running, one)) == [TEXT[:30]]
    num_forced = len(range(forced.start, min(forced.stop, 30)))
    assert sum(num_scores for step in runner.steps for *_, num_scores in step) == 30 - num_forced
    computed = [length for step in runner.steps for _, length, _ in step]
    # All but the last token, unless nothing was left to draw at all.
    assert sum(computed) == (40 + 29 if num_forced < 30 else 0) - (
        # Tokens forced at the end need not be computed.
        num_forced if forced.stop > 30 and num_forced < 30 else 0
    )


def test_forced_tokens_change_nothing_when_there_is_little_room():
    grammars = [Spelled(prompt(40, seed), range(4, 20)) for seed in range(8)]
    requests = [
        request(one, 30, grammar=grammar)
        for one, grammar in zip(PROMPTS[:8], grammars, strict=True)
    ]
    with toy(ToyRunner(9)) as running:
        assert run(tokens(running, *requests)) == [prompt(40, seed)[:30] for seed in range(8)]
        assert running.stats()["preemptions"] > 0


def test_a_grammar_that_fails_fails_its_sequence_alone():
    async def failing(running: Engine) -> None:
        bad = running.submit(request(PROMPTS[0], 30, grammar=Spelled(TEXT, fails_at=7)))
        fine = running.submit(request(PROMPTS[1], 30))
        seen = []
        with pytest.raises(ValueError, match="no such place"):
            async for output in bad:
                seen.append(output)
        assert tokens_of(seen) == TEXT[:7]
        assert tokens_of(await outputs(fine)) == EXPECTED[1]

    with toy() as running, capture_logs() as logged:
        run(failing(running))
    assert [line["event"] for line in logged] == ["grammar failed"]


# --- delivery ---


def test_a_step_wakes_an_event_loop_once_for_all_its_sequences():
    async def woken(running: Engine) -> int:
        loop = asyncio.get_running_loop()
        streams = [running.submit(request(one, 20)) for one in PROMPTS[:8]]
        calls = 0
        inner = loop.call_soon_threadsafe

        def counted(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += threading.current_thread().name == "engine"
            return inner(*args, **named)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        await asyncio.gather(*map(outputs, streams))
        return calls

    with toy() as running:
        assert run(woken(running)) <= running.num_steps


# --- failures ---


class Fails:
    """Raises in steps that hold a sequence of so many prompt tokens, from some position on."""

    def __init__(self, num_prompt: int, position: int, error: Exception) -> None:
        self.num_prompt, self.position, self.error = num_prompt, position, error
        self.times = 0

    def __call__(self, segments: list[Any]) -> None:
        for segment in segments:
            end = segment.start + len(segment.tokens)
            if segment.sequence.num_prompt == self.num_prompt and end > self.position:
                self.times += 1
                raise self.error


@pytest.mark.parametrize("rewinds", [True, False])
@pytest.mark.parametrize("position", [0, 50, 95])
def test_a_failing_step_fails_who_fails_alone_and_the_others_lose_nothing(position, rewinds):
    boom = Fails(90, position, RuntimeError("boom"))
    runner = ToyRunner(400, before_step=boom)
    runner.rewinds = rewinds

    async def failing(running: Engine) -> None:
        streams = [running.submit(request(one, 30)) for one in PROMPTS[:8]]
        for number, stream in enumerate(streams):
            if number == 5:
                with pytest.raises(RuntimeError, match="boom"):
                    await outputs(stream)
            else:
                assert tokens_of(await outputs(stream)) == EXPECTED[number]

    with toy(runner, max_chunk=32) as running, capture_logs() as logged:
        run(failing(running))
        assert running.stats()["failures"] == 1
    assert boom.times == len(logged) <= 2


def test_a_fault_in_the_bookkeeping_fails_who_is_there_and_the_engine_goes_on():
    async def failing(running: Engine) -> None:
        cache = running._cache
        begin = cache.begin

        def broken(sequence: Sequence) -> None:
            cache.begin = begin
            raise KeyError("lost")

        cache.begin = broken
        with pytest.raises(KeyError):
            await outputs(running.submit(request(PROMPTS[0])))
        assert await tokens(running, request(PROMPTS[1], 30)) == [EXPECTED[1]]

    with toy() as running, capture_logs() as logged:
        run(failing(running))
    assert [line["event"] for line in logged] == ["engine failed"]


def test_scores_that_are_no_numbers_fail_their_sequence_alone():
    class Broken(ToyRunner):
        def forward(self, segments):
            scores = super().forward(segments)
            row = 0
            for segment in segments:
                if segment.sequence.num_prompt == 3 and segment.start > 10:
                    scores[row] = np.nan
                row += segment.num_scores
            return scores

    async def failing(running: Engine) -> None:
        bad, fine = (running.submit(request(PROMPTS[n], 30)) for n in (1, 2))
        with pytest.raises(NoTokenAllowed):
            await outputs(bad)
        assert tokens_of(await outputs(fine)) == EXPECTED[2]

    with toy(Broken()) as running, capture_logs():
        run(failing(running))


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    "error", [MemoryError(), OutOfMemoryError(), RuntimeError("can't allocate memory: 8 bytes")]
)
@pytest.mark.parametrize("rewinds", [True, False])
def test_when_memory_runs_out_fewer_run_and_nothing_is_lost(error, rewinds):
    def small(segments: list[Any]) -> None:
        if len(segments) > 3 or sum(len(segment.tokens) for segment in segments) > 70:
            raise error

    runner = ToyRunner(400, before_step=small)
    runner.rewinds = rewinds
    with toy(runner, max_running=16) as running, capture_logs():
        assert run(tokens(running, *(request(one, 30) for one in PROMPTS))) == EXPECTED
        stats = running.stats()
    assert 0 < stats["memory_errors"] < 12
    assert stats["failures"] == 0


def test_who_has_not_enough_memory_alone_fails_alone():
    boom = Fails(90, 50, MemoryError("no room"))

    async def failing(running: Engine) -> None:
        streams = [running.submit(request(one, 30)) for one in PROMPTS[:8]]
        made = await asyncio.gather(*map(outputs, streams), return_exceptions=True)
        assert isinstance(made.pop(5), MemoryError)
        expected = [*EXPECTED[:5], *EXPECTED[6:8]]
        assert [tokens_of(one) for one in made] == expected

    with toy(ToyRunner(400, before_step=boom)) as running, capture_logs():
        run(failing(running))


def test_a_sequence_that_outgrows_the_cache_fails_alone():
    async def growing(running: Engine) -> None:
        long = running.submit(request(PROMPTS[5], 1000))
        others = [running.submit(request(one, 30)) for one in PROMPTS[:4]]
        seen: list[TokenOutput] = []
        with pytest.raises(SequenceTooLong):
            async for output in long:
                seen.append(output)
        # The last token needs no room any more.
        assert len(tokens_of(seen)) == 10 * 16 - 90 + 1
        for number, other in enumerate(others):
            assert tokens_of(await outputs(other)) == EXPECTED[number]

    with toy(ToyRunner(10)) as running:
        run(growing(running))


def test_a_prompt_that_no_cache_can_hold_is_refused():
    async def submit(running: Engine) -> None:
        with pytest.raises(SequenceTooLong):
            running.submit(request(prompt(161)))
        # What just fits is answered.
        assert await tokens(running, request(prompt(160), 1)) == [said(prompt(160), 1)]

    with toy(ToyRunner(10)) as running:
        run(submit(running))


# --- deadlines, overload, cancelling, stuck steps ---


class Gate:
    """Holds the engine's thread in its next step until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, segments: list[Any]) -> None:
        self.reached.set()
        assert self.opened.wait(30)

    async def hold(self, running: Engine, number: int = 100) -> EngineStream:
        stream = running.submit(request([1], number))
        assert await asyncio.to_thread(self.reached.wait, 30)
        return stream


def test_who_is_past_its_deadline_fails_waiting_or_running():
    gate = Gate()

    async def late(running: Engine) -> None:
        first = await gate.hold(running)
        past = time.monotonic()
        waiting = running.submit(request(PROMPTS[1], deadline=past))
        in_time = running.submit(request(PROMPTS[2], 30, deadline=past + 1000))
        gate.opened.set()
        with pytest.raises(DeadlineExceeded):
            await outputs(waiting)
        first.cancel()
        assert tokens_of(await outputs(in_time)) == EXPECTED[2]

    with toy(ToyRunner(before_step=gate), max_running=1) as running:
        run(late(running))


def test_a_running_sequence_ends_at_its_deadline():
    async def late(running: Engine) -> int:
        stream = running.submit(request([1], 10**6, deadline=time.monotonic() + 0.05))
        with pytest.raises(DeadlineExceeded):
            await outputs(stream)
        return running.num_steps

    with toy(ToyRunner(4096)) as running:
        assert run(late(running)) > 0


def test_when_as_many_wait_as_may_the_next_is_told_when_to_come_back():
    gate = Gate()

    async def overload(running: Engine) -> None:
        streams = [await gate.hold(running, 3)]
        streams += [running.submit(request([2], 3)) for _ in range(1 + 4)]
        for _ in range(2):
            with pytest.raises(QueueFull) as caught:
                running.submit(request([3]))
            assert caught.value.retry_after_seconds >= 1
        gate.opened.set()
        await asyncio.gather(*map(outputs, streams))
        assert await tokens(running, request(PROMPTS[1], 30)) == [EXPECTED[1]]

    with toy(ToyRunner(before_step=gate), max_running=2, max_waiting=4) as running:
        run(overload(running))


def test_a_cancelled_sequence_gives_its_blocks_back_before_the_next_step():
    gate = Gate()
    held: list[int] = []

    async def cancel(running: Engine) -> None:
        stream = await gate.hold(running)
        other = running.submit(request(PROMPTS[5], 2))
        stream.cancel()
        runner.before_step = lambda segments: held.append(running._cache.stats()["used_blocks"])
        gate.opened.set()
        await outputs(other)

    runner = ToyRunner(before_step=gate)
    with toy(runner) as running:
        run(cancel(running))
    assert held == [6, 6]


def test_a_stuck_step_fails_its_streams_and_the_engine_goes_on_when_it_returns():
    gate = Gate()

    async def stuck(running: Engine) -> None:
        stream = await gate.hold(running)
        waiting = running.submit(request(PROMPTS[1], 30))
        with pytest.raises(StepStuck):
            await outputs(stream)
        assert running.stats()["healthy"] is False
        gate.opened.set()
        assert tokens_of(await outputs(waiting)) == EXPECTED[1]
        assert await outputs(stream) == []
        assert running.stats()["healthy"] is True

    options = {"max_running": 1, "step_timeout_seconds": 0.2}
    with toy(ToyRunner(before_step=gate), **options) as running, capture_logs() as logged:
        run(stuck(running))
    assert [line["event"] for line in logged] == ["step stuck"]


def test_a_stuck_engine_can_be_closed():
    gate = Gate()
    runner = ToyRunner(before_step=gate)

    async def close(running: Engine) -> None:
        stream = await gate.hold(running)
        with pytest.raises(StepStuck):
            await outputs(stream)
        await asyncio.to_thread(running.close)
        assert runner.closed == 0
        gate.opened.set()
        await asyncio.to_thread(running._thread.join)

    with toy(runner, step_timeout_seconds=0.2) as running, capture_logs():
        run(close(running))


def test_closing_closes_the_runner_once():
    runner = ToyRunner()
    with toy(runner) as running:
        running.close()
    assert runner.closed == 1


# --- for long ---


def test_nothing_is_left_of_two_thousand_requests():
    async def many(running: Engine, number: int) -> None:
        async def one(seed: int) -> None:
            stream = running.submit(request(prompt(20 + seed % 30, seed), 4, tenant=str(seed % 7)))
            async for _ in stream:
                if seed % 5 == 0:
                    stream.cancel()
                    return

        for first in range(0, number, 50):
            await asyncio.gather(*map(one, range(first, first + 50)))

    def left(kind: type) -> int:
        # By their types: others' objects may do anything when asked for their class.
        return sum(type(thing) is kind for thing in gc.get_objects())

    runner = ToyRunner(100)
    with toy(runner, speculate=True) as running:
        run(many(running, 100))
        gc.collect()
        before, known = len(gc.get_objects()), left(Sequence)
        run(many(running, 2000))
        # A cancelled one leaves when the engine looks next.
        run(tokens(running, request([1], 2)))
        runner.steps.clear()
        gc.collect()
        # The thread's own variables may still name the last one.
        assert left(Sequence) <= known + 1
        assert len(gc.get_objects()) - before < 200
        assert running._cache.stats()["used_blocks"] == 0
