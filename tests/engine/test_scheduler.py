"""Who takes part in which step: budgets, fairness, room and who gives way."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.block_manager import BlockManager
from antiphon.engine.scheduler import Scheduler, Work
from antiphon.engine.sequence import EngineStream, Sequence, SequenceRequest
from antiphon.engine.step_costs import StepCosts
from antiphon.turn import Sampling

#: Streams want a loop; nothing is ever sent through these.
LOOP = asyncio.new_event_loop()
LOOP.close()

ROW, TOKEN = 0.010, 0.001  # Seconds.


class Bench:
    """A scheduler whose steps are taken at once: a speaking sequence is given any token."""

    def __init__(
        self,
        num_blocks: int = 1000,
        *,
        max_running: int = 16,
        max_chunk: int = 256,
        row: float = ROW,
        token: float = TOKEN,
        learnt: bool = False,
    ) -> None:
        self.cache = BlockManager(num_blocks)
        self.costs = StepCosts()
        self.scheduler = Scheduler(
            self.cache, self.costs, None, max_running=max_running, max_chunk=max_chunk
        )
        self.now = 0.0
        self.num_made = 0
        self.row, self.token = row, token
        if learnt:
            for rows in range(1, 17):
                self.costs.learn(rows, 0, row)
            self.costs.learn(0, 100, 100 * token)

    def add(self, length: int, number: int = 5, **options: Any) -> Sequence:
        self.num_made += 1
        # No two prompts begin with the same.
        tokens = [self.num_made, *range(1000, 1000 + length - 1)]
        request = SequenceRequest(tokens, Sampling(), frozenset(), number, **options)
        sequence = Sequence(request, EngineStream(LOOP))
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[Work]:
        works = self.scheduler.schedule(self.now)
        for sequence, num_tokens, _, num_scores in works:
            assert sequence.num_computed + num_tokens <= len(sequence.blocks) * 16
            sequence.num_computed += num_tokens
            assert num_scores == (sequence.num_pending == 0)
        self.now += self.seconds(works)
        self.scheduler.done(works, self.seconds(works))
        for sequence, _, _, num_scores in works:
            self.cache.publish(sequence)
            if num_scores and sequence.append(7) is not None:
                self.scheduler.remove(sequence)
        return works

    def seconds(self, works: list[Work]) -> float:
        """What a step takes: so much for its rows, however many, and for each token of prompts."""
        num_prompt = sum(work.num_tokens for work in works if work.num_tokens > 1)
        num_rows = len([work for work in works if work.num_tokens == 1])
        return self.row * min(num_rows, 1) + self.token * num_prompt

    def speaking(self, number: int) -> list[Sequence]:
        """So many sequences that speak for long."""
        sequences = [self.add(1, 10**6) for _ in range(number)]
        self.step()
        return sequences


def parts(works: list[Work]) -> list[tuple[Sequence, int]]:
    return [(work.sequence, work.num_tokens) for work in works]


# --- budgets ---


def test_while_nobody_speaks_prompts_fill_the_step_together():
    bench = Bench(max_chunk=100)
    first, second, third = bench.add(30), bench.add(30), bench.add(70)
    # What is cut ends with a block.
    assert parts(bench.step()) == [(first, 30), (second, 30), (third, 32)]
    assert parts(bench.step()) == [(first, 1), (second, 1), (third, 38)]


def test_a_long_prompt_lengthens_the_steps_of_those_who_speak_by_less_than_their_own_length():
    bench = Bench(row=0.050, token=0.001, learnt=True)
    speaking = bench.speaking(3)
    long = bench.add(2000)
    while long.num_generated == 0:
        works = bench.step()
        assert [work.sequence for work in works] == [*speaking, long]
        assert bench.seconds(works) <= 1.8 * 0.050
        # 40 tokens, up to the end of a block.
        assert works[3].num_tokens in (32, 2000 % 32)


def test_prompts_progress_by_a_block_however_dear_they_are():
    bench = Bench(row=0.010, token=10.0, learnt=True)
    bench.speaking(1)
    bench.add(64)
    assert [[work.num_tokens for work in bench.step()] for _ in range(3)] == [[1, 16]] * 3


def test_the_more_wait_for_the_fewer_who_speak_the_longer_may_a_step_get():
    bench = Bench(row=0.050, token=0.001, learnt=True)
    bench.speaking(2)
    for _ in range(8):
        bench.add(100)
    # 0.8 of a step is worth 40 tokens; four wait for each who speaks.
    assert [work.num_tokens for work in bench.step()] == [1, 1, 100, 48]


def test_who_speaks_and_has_a_few_tokens_to_catch_up_goes_before_prompts():
    bench = Bench(max_chunk=32)
    (speaking,) = bench.speaking(1)
    long = bench.add(100)
    bench.step()
    for _ in range(8):
        speaking.append(7)
    assert parts(bench.step())[0] == (speaking, 9)
    assert long.num_computed > 0


# --- who is next ---


def order_of_starts(bench: Bench, sequences: list[Sequence]) -> list[int]:
    started: list[int] = []
    while len(started) < len(sequences):
        for work in bench.step():
            if work.sequence in sequences and sequences.index(work.sequence) not in started:
                started.append(sequences.index(work.sequence))
    return started


def test_a_higher_priority_starts_first_and_its_equals_as_they_came():
    bench = Bench(max_running=1)
    sequences = [bench.add(5, priority=priority) for priority in (0, -1, 5, 0, 5)]
    assert order_of_starts(bench, sequences) == [2, 4, 0, 3, 1]


def test_tenants_take_turns():
    bench = Bench(max_running=1)
    sequences = [bench.add(5, tenant=tenant) for tenant in "aaaaabbc"]
    assert order_of_starts(bench, sequences) == [0, 5, 7, 1, 6, 2, 3, 4]


def test_a_tenant_with_long_prompts_gets_as_many_tokens_as_one_with_short_ones():
    bench = Bench(max_running=1)
    sequences = [bench.add(200, tenant="long") for _ in range(10)]
    sequences += [bench.add(20, tenant="short") for _ in range(50)]
    started = order_of_starts(bench, sequences)
    early = started[: started.index(4)]
    assert sum(number < 10 for number in early) == 4
    assert 25 <= sum(number >= 10 for number in early) <= 40


def test_a_short_prompt_of_another_tenant_overtakes_a_long_one_that_runs():
    bench = Bench(max_chunk=32)
    long = bench.add(1000, tenant="a")
    bench.step()
    short = bench.add(40, tenant="b")
    for _ in range(4):
        bench.step()  # They share: two steps each.
    assert short.num_generated > 0
    assert long.num_generated == 0


def test_who_was_away_has_saved_up_no_claim():
    bench = Bench(max_running=1)
    there = [bench.add(5, tenant="there") for _ in range(20)]
    guest = bench.add(5, tenant="guest")
    assert order_of_starts(bench, [*there[:10], guest])[1] == 10
    later = [bench.add(5, tenant="guest") for _ in range(10)]
    started = order_of_starts(bench, [*there[10:], *later])[:8]
    assert 3 <= sum(number >= 10 for number in started) <= 5


def test_who_had_much_and_comes_back_at_once_does_not_begin_anew():
    bench = Bench(max_running=1)
    poor = [bench.add(100, tenant="poor") for _ in range(10)]
    rich = bench.add(1000, tenant="rich")
    while rich.num_generated < 5:
        bench.step()
    again = bench.add(10, tenant="rich")
    number = sum(one.num_generated < 5 for one in poor)
    while not again.num_generated:
        bench.step()
    assert number - sum(one.num_generated < 5 for one in poor) >= 5


def test_only_so_many_run_at_once():
    bench = Bench(max_running=3)
    for _ in range(8):
        bench.add(5)
    while bench.step():
        assert bench.scheduler.num_running <= 3
    assert bench.scheduler.num_waiting == 0


# --- room ---


def test_a_sequence_starts_when_its_whole_prompt_and_a_little_more_have_room():
    bench = Bench(10)
    bench.add(65, 10**6)
    bench.step()
    # 5 blocks are left, and it takes 4 and the 2 that keep others from being set back at once.
    second, third = bench.add(49), bench.add(48)
    bench.step()
    assert (second.num_computed, third.num_computed) == (0, 0)
    bench.scheduler.remove(second)
    bench.step()
    assert third.num_computed > 0


def test_who_found_no_room_is_not_tried_again_before_some_is_free():
    bench = Bench(8)
    first = bench.add(60, 20)
    bench.step()
    waiting = bench.add(70)
    begun: list[Sequence] = []
    begin = bench.cache.begin
    bench.cache.begin = lambda one: (begun.append(one), begin(one))[1]  # type: ignore
    while first.num_generated < 20:
        bench.step()
    bench.step()
    assert begun == [waiting, waiting]
    assert waiting.num_generated == 1


def test_the_last_of_the_lowest_priority_gives_way_and_starts_again_first():
    bench = Bench(10)
    sequences = [bench.add(30, 1000, priority=priority) for priority in (1, 0, 1)]
    bench.step()
    waiting = bench.add(30, 1000)
    preempted: list[int] = []
    while len(preempted) < 2:
        before = [one.num_computed for one in sequences]
        bench.step()
        for number, one in enumerate(sequences):
            if one.num_computed < before[number]:
                preempted.append(number)
    # The middle one is of the lowest priority, then it is the one that came last.
    assert preempted == [1, 2]
    assert waiting.num_computed == 0
    kept = len(sequences[1].tokens)
    assert kept > 30 and sequences[1].num_generated == kept - 30
    for number in (0, 2):
        bench.scheduler.remove(sequences[number])
    assert bench.step()[0].sequence is sequences[1]
    assert sequences[1].stream.cached_tokens == 0


def test_a_sequence_that_fits_in_no_cache_is_given_up_and_the_rest_goes_on():
    bench = Bench(3)
    long, short = bench.add(100), bench.add(10)
    assert bench.step() == []
    assert bench.scheduler.take_too_long() == [long]
    assert bench.scheduler.take_too_long() == []
    assert parts(bench.step()) == [(short, 10)]


def test_removing_gives_everything_back():
    bench = Bench(20, max_running=2)
    sequences = [bench.add(40) for _ in range(4)]
    bench.step()
    for one in sequences:
        bench.scheduler.remove(one)
        bench.scheduler.remove(one)
    assert bench.cache.stats()["used_blocks"] == 0
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (0, 0)
    assert bench.step() == []


@settings(deadline=None, max_examples=60)
@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(1, 60),  # Tokens of the prompt,
            st.integers(1, 30),  # tokens to make,
            st.sampled_from("abc"),
            st.integers(0, 2),  # priority,
            st.integers(0, 5),  # and steps until the next comes.
        ),
        min_size=1,
        max_size=20,
    ),
    num_blocks=st.integers(6, 30),
    max_running=st.integers(1, 6),
    max_chunk=st.integers(1, 64),
)
def test_everybody_comes_to_their_end_in_any_room(arrivals, num_blocks, max_running, max_chunk):
    bench = Bench(num_blocks, max_running=max_running, max_chunk=max_chunk)
    sequences = []
    for length, number, tenant, priority, pause in arrivals:
        sequences.append(bench.add(length, number, tenant=tenant, priority=priority))
        for _ in range(pause):
            bench.step()
    for _ in range(5000):
        if all(one.num_generated == one.request.max_tokens for one in sequences):
            break
        assert bench.step(), "nobody takes part, and not all are done"
        assert bench.scheduler.num_running <= max_running
    else:
        pytest.fail("not all came to their end")
    assert bench.scheduler.take_too_long() == []
    assert bench.cache.stats()["used_blocks"] == 0
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (0, 0)
    assert not bench.scheduler._places and not bench.scheduler._shares._served


# --- steps that failed ---


def test_after_a_failed_step_each_is_run_alone_until_it_is_past_it():
    bench = Bench(max_chunk=64)
    first, second = bench.add(20), bench.add(60)
    works = bench.scheduler.schedule(0)
    assert parts(works) == [(first, 20), (second, 32)]
    bench.scheduler.suspect(works)
    bench.scheduler.set_back(works)
    third = bench.add(5)
    alone = [bench.step() for _ in range(2)]
    assert [len(step) for step in alone] == [1, 1]
    assert {step[0].sequence for step in alone} == {first, second}
    assert third in [work.sequence for work in bench.step()]


def test_after_a_memory_error_half_go_on_and_more_come_back_with_time():
    bench = Bench(max_running=8, max_chunk=256)
    sequences = [bench.add(10, 1000) for _ in range(8)]
    bench.step()
    assert bench.scheduler.shed(bench.now)
    assert [work.sequence for work in bench.step()] == sequences[:4]
    assert bench.scheduler.shed(bench.now)
    for number in (2, 4, 8, 8):
        for _ in range(4):
            bench.step()
        assert bench.scheduler.num_running == number
        bench.now += 10
    assert {len(one.tokens) > 11 for one in sequences} == {True}


def test_when_nothing_smaller_is_left_memory_cannot_be_shed():
    bench = Bench(max_chunk=64)
    long = bench.add(100)
    works = bench.step()
    lengths = [works[0].num_tokens]
    while bench.scheduler.shed(bench.now):
        lengths.append(bench.scheduler.schedule(bench.now)[0].num_tokens)
    assert lengths == [64, 32, 16]
    assert long.num_computed == 64
