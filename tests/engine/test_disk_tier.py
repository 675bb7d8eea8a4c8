"""Prefixes on disk: they come back after a restart, and only what was written ever comes back."""

import asyncio
import math
import os
import random
import stat
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_shapes import new_module, save
from paged_toy import ToyRunner, ToySampler, said
from structlog.testing import capture_logs
from tiny_models import run

from antiphon.engine import block_file
from antiphon.engine.block_file import HEADER_BYTES, DamagedFile, Header
from antiphon.engine.block_manager import BlockManager
from antiphon.engine.disk_tier import DiskTier, DiskTierError
from antiphon.engine.engine import Engine, EngineOptions
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import KernelsUnavailable
from antiphon.engine.loader import LoadedModel, load, read
from antiphon.engine.long_prefixes import RUN_BLOCKS, RUN_TOKENS, LongPrefixes
from antiphon.engine.options import LoadOptions
from antiphon.engine.runners.base import BLOCK_SIZE, BlockStore
from antiphon.engine.sequence import SequenceRequest
from antiphon.models.build import build_models
from antiphon.settings import Settings
from antiphon.turn import Sampling

MIB = 2**20
GREEDY = Sampling(temperature=0)
SIZE = 64


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def nothing(*_: object) -> None:
    """Progress that nobody looks at."""


def files(folder: Path) -> list[Path]:
    """What is kept, the last used first."""
    return sorted(folder.glob("*.kv"), key=lambda file: -file.stat().st_mtime)


@contextmanager
def tier(folder: Path, layout: str = "m", max_bytes: int = MIB, **options: Any) -> Iterator[Any]:
    opened = DiskTier(folder, layout, max_bytes, **options)
    try:
        yield opened
    finally:
        opened.close()
        assert "disk tier" not in {thread.name for thread in threading.enumerate()}


def content(number: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, size, np.uint8)


def found(opened: DiskTier, name: int, size: int = SIZE) -> np.ndarray | None:
    into = np.zeros(size, np.uint8)
    return into if opened.read(name, into) else None


def put(opened: DiskTier, *names: int, **options: Any) -> None:
    """Have the content of these names written, one after the other."""
    for name in names:
        opened.put(name, content(name), **options)
        opened.flush()


def is_content(data: np.ndarray | None, name: int) -> bool:
    return data is not None and data.tobytes() == content(name, len(data)).tobytes()


# --- files ---


def test_what_is_put_is_found_after_a_restart(tmp_path):
    with tier(tmp_path / "p") as first:
        put(first, 1, 2)
        assert is_content(found(first, 1), 1)
    with tier(tmp_path / "p") as second:
        assert is_content(found(second, 1), 1)
        assert is_content(found(second, 2), 2)
        assert found(second, 3) is None


def test_what_waits_is_written_when_the_tier_is_closed(tmp_path):
    with tier(tmp_path / "p") as first:
        for name in range(20):
            first.put(name, content(name))
    with tier(tmp_path / "p") as second:
        assert all(is_content(found(second, name), name) for name in range(20))


def test_a_closed_tier_takes_nothing_and_still_reads(tmp_path):
    with tier(tmp_path / "p") as opened:
        put(opened, 1)
    opened.put(2, content(2))
    opened.touch(1)
    opened.flush()
    assert is_content(found(opened, 1), 1)
    assert len(files(tmp_path / "p")) == 1


def test_files_are_for_this_user_alone_and_named_by_a_hash(tmp_path):
    folder = tmp_path / "made" / "p"
    with tier(folder) as opened:
        put(opened, 1, 2)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.suffix == ".kv" and len(bytes.fromhex(file.stem)) == 16
        assert int(file.stem, 16) not in (1, 2)


def test_a_folder_that_others_may_look_into_is_refused(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(DiskTierError, match=r"chmod 700 .*cache_disk_dir"):
        DiskTier(folder, "m", MIB)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "p").write_text("a file")
    for folder in (tmp_path / "p", tmp_path / "p" / "q"):
        with pytest.raises(DiskTierError, match="cannot be made"):
            DiskTier(folder, "m", MIB)


def test_files_of_another_layout_are_neither_used_nor_touched(tmp_path):
    with tier(tmp_path / "p", "one") as one:
        put(one, 1)
    with tier(tmp_path / "p", "other") as other:
        assert found(other, 1) is None
        other.put(1, content(2))
        other.flush()
        assert is_content(found(other, 1), 2)
    with tier(tmp_path / "p", "one") as one:
        assert is_content(found(one, 1), 1)


def test_a_file_in_the_place_of_another_is_no_hit(tmp_path):
    with tier(tmp_path / "p") as opened:
        put(opened, 1)
        (first,) = files(tmp_path / "p")
        put(opened, 2)
        (second,) = set(files(tmp_path / "p")) - {first}
        first.replace(second)
        assert found(opened, 2) is None
        assert found(opened, 1) is None
    assert files(tmp_path / "p") == []


def test_content_of_another_size_is_no_hit(tmp_path):
    with tier(tmp_path / "p") as opened:
        put(opened, 1)
        assert found(opened, 1, SIZE - 1) is None
        assert found(opened, 1) is None


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Ways to damage a file."""
    at = draw(st.integers(0, HEADER_BYTES + SIZE - 1))
    kind = draw(st.sampled_from(["bit", "cut", "more", "zero", "noise", "empty"]))
    bit = 1 << draw(st.integers(0, 7))
    noise = draw(st.binary(min_size=1, max_size=300))
    return {
        "bit": lambda data: data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :],
        "cut": lambda data: data[:at],
        "more": lambda data: data + noise,
        "zero": lambda data: data[:at] + bytes(len(data) - at),
        "noise": lambda data: data[:at] + noise + data[at + len(noise) :],
        "empty": lambda data: b"",
    }[kind]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(damage=damages(), restart=st.booleans())
def test_a_damaged_file_is_a_miss_and_goes(tmp_path_factory, damage, restart):
    folder = tmp_path_factory.mktemp("damage") / "p"
    opened = DiskTier(folder, "m", MIB)
    try:
        put(opened, 1)
        (file,) = files(folder)
        before = file.read_bytes()
        file.write_bytes(damage(before))
        if restart:
            opened.close()
            opened = DiskTier(folder, "m", MIB)
        if file.exists() and file.read_bytes() == before:  # Zeros in the place of zeros.
            assert is_content(found(opened, 1), 1)
            return
        assert found(opened, 1) is None
        assert not file.exists()
        put(opened, 1)
        assert is_content(found(opened, 1), 1)
    finally:
        opened.close()


@given(data=st.binary(max_size=2 * HEADER_BYTES))
def test_a_header_of_any_bytes_is_damaged(data):
    with pytest.raises(DamagedFile):
        Header.unpack(data)


def test_a_file_that_vanished_is_a_miss(tmp_path):
    with tier(tmp_path / "p") as opened, capture_logs() as logs:
        put(opened, 1, 2)
        for file in files(tmp_path / "p"):
            file.unlink()
        assert found(opened, 1) is None
        opened.touch(2)
        opened.flush()
        assert found(opened, 2) is None
        put(opened, 1)
        assert is_content(found(opened, 1), 1)
    assert logs == []


def test_a_file_that_cannot_be_written_is_dropped_and_told_once(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with tier(tmp_path / "p") as opened:
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(os, "replace", full)
            put(opened, 1, 2)
        assert [log["reason"] for log in logs] == ["No space left on device"]
        assert list((tmp_path / "p").iterdir()) == []
        put(opened, 1)
        assert is_content(found(opened, 1), 1)


def test_files_that_were_never_finished_go_when_nobody_can_be_writing_them(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir(mode=0o700)
    for name, age in (("old", 4000), ("young", 10)):
        (folder / f"{name}.partial").write_bytes(b"x")
        os.utime(folder / f"{name}.partial", (time.time() - age,) * 2)
    (folder / "notes.txt").write_text("somebody else's")
    with tier(folder):
        assert {file.name for file in folder.iterdir()} == {"young.partial", "notes.txt"}


# --- bounds ---


def num_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_there_is_never_more_than_may_be_and_what_was_used_longest_ago_goes(tmp_path):
    clock = Clock()
    bound = 8 * (HEADER_BYTES + SIZE)
    with tier(tmp_path / "p", max_bytes=bound, clock=clock) as opened:
        for name in range(40):
            clock.now += 1
            put(opened, name)
            assert num_bytes(tmp_path / "p") <= bound
            if name:
                opened.touch(0)
                opened.flush()
        kept = [name for name in range(40) if name in opened]
        assert all(is_content(found(opened, name), name) for name in kept)
    assert kept[0] == 0 and kept[1:] == list(range(40 - len(kept) + 1, 40))
    assert len(kept) >= 7


def test_a_smaller_bound_is_kept_from_the_start(tmp_path):
    with tier(tmp_path / "p") as opened:
        put(opened, *range(10))
    bound = 3 * (HEADER_BYTES + SIZE)
    with tier(tmp_path / "p", max_bytes=bound) as opened:
        assert num_bytes(tmp_path / "p") == bound
        assert [name for name in range(10) if name in opened] == [7, 8, 9]


def test_what_is_larger_than_all_that_may_be_is_not_written(tmp_path):
    with tier(tmp_path / "p", max_bytes=HEADER_BYTES + SIZE - 1) as opened:
        put(opened, 1)
        assert 1 not in opened
    assert files(tmp_path / "p") == []


def test_tiers_of_two_layouts_count_together(tmp_path):
    bound = 6 * (HEADER_BYTES + SIZE)
    with tier(tmp_path / "p", "one", bound) as one:
        put(one, *range(4))
    other = DiskTier(tmp_path / "p", "other", bound)
    put(other, *range(3))
    other.close()
    assert num_bytes(tmp_path / "p") <= bound
    with tier(tmp_path / "p", "one", bound) as one:
        assert [name for name in range(4) if name in one] == [2, 3]


def test_the_queue_is_bounded_and_nobody_waits_for_the_disk(tmp_path, monkeypatch):
    held, real = threading.Event(), block_file.write

    def slowly(*arguments: Any) -> None:
        assert held.wait(30)
        real(*arguments)

    monkeypatch.setattr(block_file, "write", slowly)
    with tier(tmp_path / "p", max_pending_bytes=3 * SIZE) as opened:
        for name in range(10):
            assert opened.wants(name, SIZE) is (name < 3)
            opened.put(name, content(name))
            assert not opened.wants(name, SIZE)
        assert opened.stats()["dropped"] > 0
        held.set()
        opened.flush()
        assert [name for name in range(10) if name in opened] == [0, 1, 2]
        put(opened, 9)
        assert is_content(found(opened, 9), 9)


def test_one_that_is_larger_than_the_queue_is_written_alone(tmp_path):
    with tier(tmp_path / "p", max_pending_bytes=1) as opened:
        put(opened, 1, 2)
        assert 1 in opened and 2 in opened


# --- expiry ---


def test_what_expired_is_a_miss_and_gone_after_a_restart(tmp_path):
    clock = Clock()
    with tier(tmp_path / "p", clock=clock) as opened:
        put(opened, 1, expires_at=clock.now + 10)
        put(opened, 2, expires_at=clock.now + 20)
        put(opened, 3)
        clock.now += 10
        assert found(opened, 1) is None and 1 not in opened
        assert is_content(found(opened, 2), 2)
    clock.now += 10
    with tier(tmp_path / "p", clock=clock) as opened:
        assert [name for name in (1, 2, 3) if name in opened] == [3]
    assert len(files(tmp_path / "p")) == 1


def test_use_puts_expiry_off_but_never_brings_it_nearer(tmp_path):
    clock = Clock()
    with tier(tmp_path / "p", clock=clock) as opened:
        put(opened, 1, 2, expires_at=clock.now + 10)
        opened.touch(1, clock.now + 30)
        opened.touch(2, clock.now + 5)
    clock.now += 9
    with tier(tmp_path / "p", clock=clock) as opened:
        assert is_content(found(opened, 2), 2)
        clock.now += 20
        assert found(opened, 2) is None
        assert is_content(found(opened, 1), 1)


def test_what_expired_can_be_put_again(tmp_path):
    clock = Clock()
    with tier(tmp_path / "p", clock=clock) as opened:
        put(opened, 1, expires_at=clock.now + 10)
        clock.now += 10
        put(opened, 1)
        assert is_content(found(opened, 1), 1)


def test_the_folder_is_looked_through_while_the_server_runs(tmp_path, monkeypatch):
    clock, looked = Clock(), threading.Semaphore(0)
    monkeypatch.setattr("antiphon.engine.disk_tier._SWEEP_SECONDS", 0.01)
    with tier(tmp_path / "p", clock=clock) as opened:
        put(opened, 1, expires_at=clock.now + 10)
        real = opened._sweep
        monkeypatch.setattr(opened, "_sweep", lambda: (real(), looked.release()))
        clock.now += 10
        # The second one began after the time had passed.
        assert looked.acquire(timeout=30) and looked.acquire(timeout=30)
        assert files(tmp_path / "p") == []


# --- the engine over the toy ---


class DiskToy(ToyRunner):
    """The toy, with blocks that can be taken out and put back."""

    layout = "toy"
    block_bytes = 16 * BLOCK_SIZE

    def _slots(self, blocks: "array[int]") -> np.ndarray:
        return np.array(blocks)[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE)

    def read_blocks(self, blocks: "array[int]") -> np.ndarray:
        slots = self._slots(blocks)
        kept = [pool[slots].view(np.uint8) for pool in (self._values, self._tokens)]
        return np.concatenate(kept, 1)

    def write_blocks(self, blocks: "array[int]", content: np.ndarray) -> None:
        assert content.shape == (len(blocks), self.block_bytes)
        slots, half = self._slots(blocks), self.block_bytes // 2
        self._values[slots] = np.ascontiguousarray(content[:, :half]).view(np.uint64)
        self._tokens[slots] = np.ascontiguousarray(content[:, half:]).view(np.int64)


@contextmanager
def toy(
    folder: Path,
    runner: ToyRunner | None = None,
    *,
    layout: str = "toy",
    max_bytes: int = 64 * MIB,
    clock: Callable[[], float] = time.time,
    min_tokens: int = RUN_TOKENS,
    **options: Any,
) -> Iterator[Engine]:
    """An engine over the toy that keeps prefixes in a folder."""
    runner = runner or DiskToy(128)
    cache = BlockManager(runner.num_blocks, "toy")
    opened = runner.tier = DiskTier(folder, layout, max_bytes, clock=clock)
    cache.long_prefixes = LongPrefixes(opened, runner, min_tokens=min_tokens, clock=clock)
    with started(runner, cache, ToySampler(), **options) as running:
        yield running


@contextmanager
def started(runner: Any, cache: Any, sampler: Any, **options: Any) -> Iterator[Engine]:
    running = Engine(runner, cache, sampler, EngineOptions(**{"speculate": False, **options}))
    try:
        yield running
    finally:
        running.close()
        names = {thread.name for thread in threading.enumerate()}
        assert not {"engine", "watchdog", "disk tier"} & names
        assert cache.stats()["used_blocks"] == 0


def request(prompt: list[int], number: int = 8, **options: Any) -> SequenceRequest:
    given = {"sampling": GREEDY, "stop_tokens": frozenset(), "private": False, **options}
    return SequenceRequest(prompt, max_tokens=number, **given)


def prompt(length: int, seed: int = 0, vocab_size: int = 64) -> list[int]:
    return random.Random(seed).choices(range(vocab_size), k=length)


def generated(running: Engine, *requests: SequenceRequest) -> list[tuple[list[int], int]]:
    """What is said to requests that run at once, and how many tokens of each were cached."""

    async def one(wanted: SequenceRequest) -> tuple[list[int], int]:
        stream = running.submit(wanted)
        made = [sampled.token async for output in stream for sampled in output.tokens]
        return made, stream.cached_tokens

    async def together() -> list[tuple[list[int], int]]:
        return await asyncio.gather(*map(one, requests))

    return run(together())


@pytest.mark.parametrize(
    ("length", "cached"), [(255, 0), (256, 0), (257, 256), (600, 512), (769, 768)]
)
def test_a_long_prefix_is_found_after_a_restart(tmp_path, length, cached):
    asked = request(prompt(length))
    expected = said(prompt(length), 8)
    for expected_cached in (0, cached):
        with toy(tmp_path / "p") as running:
            assert generated(running, asked) == [(expected, expected_cached)]
            assert running.stats()["cache"]["hit_tokens"] == expected_cached


def test_generated_tokens_are_kept_too(tmp_path):
    first = prompt(200)
    with toy(tmp_path / "p") as running:
        ((answer, _),) = generated(running, request(first, 100))
    turn = [*first, *answer, 5]
    with toy(tmp_path / "p") as running:
        assert generated(running, request(turn)) == [(said(turn, 8), 256)]


def test_short_prefixes_are_not_kept(tmp_path):
    with toy(tmp_path / "p", min_tokens=2 * RUN_TOKENS) as running:
        generated(running, request(prompt(500)))
        assert files(tmp_path / "p") == []
        generated(running, request(prompt(513)))
    assert len(files(tmp_path / "p")) == 2


def test_nothing_is_written_or_read_for_private_requests(tmp_path):
    asked = request(prompt(600), private=True)
    with toy(tmp_path / "p") as running:
        generated(running, asked)
    assert list((tmp_path / "p").iterdir()) == []
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(600)))
    before = {file: file.stat() for file in files(tmp_path / "p")}
    assert len(before) == 2
    with toy(tmp_path / "p") as running:
        assert generated(running, asked) == [(said(prompt(600), 8), 0)]
    assert {file: file.stat() for file in files(tmp_path / "p")} == before


def test_what_was_private_first_is_kept_for_one_who_is_not(tmp_path):
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(600), private=True))
        assert generated(running, request(prompt(600))) == [(said(prompt(600), 8), 592)]
    with toy(tmp_path / "p") as running:
        assert generated(running, request(prompt(600))) == [(said(prompt(600), 8), 512)]


def test_other_salts_layouts_and_models_find_nothing(tmp_path):
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(600), cache_salt="a"))
    for layout, salt, cached in [("toy", "b", 0), ("toy 2", "a", 0), ("toy", "a", 512)]:
        with toy(tmp_path / "p", layout=layout) as running:
            asked = request(prompt(600), cache_salt=salt)
            assert generated(running, asked) == [(said(prompt(600), 8), cached)]


def test_what_expired_is_computed_again_after_a_restart(tmp_path):
    clock = Clock()
    asked = request(prompt(300), keep_seconds=60)
    for seconds, cached in [(0, 0), (59, 256), (59, 256), (60, 0)]:
        clock.now += seconds
        with toy(tmp_path / "p", clock=clock) as running:
            assert generated(running, asked) == [(said(prompt(300), 8), cached)]


def test_use_in_memory_keeps_what_is_on_disk(tmp_path):
    clock = Clock()
    asked = request(prompt(300), keep_seconds=60)
    with toy(tmp_path / "p", clock=clock) as running:
        for _ in range(4):
            generated(running, asked)
            clock.now += 50
    with toy(tmp_path / "p", clock=clock) as running:
        assert generated(running, asked) == [(said(prompt(300), 8), 256)]


def test_what_was_evicted_comes_back_from_disk(tmp_path):
    runner = DiskToy(48)
    with toy(tmp_path / "p", runner) as running:
        for seed in (1, 2, 3, 1):
            made = generated(running, request(prompt(600, seed)))
            runner.tier.flush()
        assert made == [(said(prompt(600, 1), 8), 512)]
        starts = [start for step in runner.steps for start, number, _ in step if number > 1]
        assert starts.count(512) == 4 and starts.count(0) == 3


def test_the_rest_of_a_run_is_read_behind_what_is_in_memory(tmp_path):
    runner = DiskToy(48)
    with toy(tmp_path / "p", runner) as running:
        generated(running, request(prompt(600)))
        runner.tier.flush()
        # Takes the room of the end of the first.
        generated(running, request(prompt(300, 1)))
        assert running.stats()["cache"]["evicted_blocks"] == 9
        read: list[int] = []
        real = runner.write_blocks
        runner.write_blocks = lambda blocks, data: (read.append(len(blocks)), real(blocks, data))
        assert generated(running, request(prompt(600))) == [(said(prompt(600), 8), 512)]
    assert read == [4]


def test_nothing_is_read_for_a_sequence_that_has_no_room(tmp_path):
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(300)))
    read: list[int] = []
    runner = DiskToy(40)
    real = runner.write_blocks
    runner.write_blocks = lambda blocks, data: (read.append(len(blocks)), real(blocks, data))
    with toy(tmp_path / "p", runner, max_chunk=64) as running:
        first = request(prompt(500, 1), 100)
        made = generated(running, first, request(prompt(300)), request(prompt(301, 4)))
    assert [tokens for tokens, _ in made] == [
        said(prompt(500, 1), 100),
        said(prompt(300), 8),
        said(prompt(301, 4), 8),
    ]
    assert read == [RUN_BLOCKS]


def test_a_damaged_prefix_is_computed_again(tmp_path):
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(900)))
    # The beginning was touched last.
    first, second, third = files(tmp_path / "p")
    data = bytearray(second.read_bytes())
    data[-1] ^= 1
    second.write_bytes(data)
    for cached in (256, 768):
        with toy(tmp_path / "p") as running:
            assert generated(running, request(prompt(900))) == [(said(prompt(900), 8), cached)]
    assert first.exists() and second.exists() and third.exists()


@pytest.mark.parametrize("method", ["read_blocks", "write_blocks"])
def test_a_runner_that_cannot_move_blocks_costs_nobody_an_answer(tmp_path, method):
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    if method == "write_blocks":
        with toy(tmp_path / "p") as running:
            generated(running, request(prompt(300)))
    runner = DiskToy(48)
    setattr(runner, method, fail)
    with toy(tmp_path / "p", runner) as running, capture_logs() as logs:
        assert generated(running, request(prompt(300))) == [(said(prompt(300), 8), 0)]
        assert running.stats()["failures"] == 0
    assert [log["log_level"] for log in logs] == ["error"]


def test_blocks_may_be_used_again_before_their_content_is_written(tmp_path, monkeypatch):
    held, real = threading.Event(), block_file.write

    def slowly(*arguments: Any) -> None:
        assert held.wait(30)
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(block_file, "write", slowly)
        with toy(tmp_path / "p", DiskToy(24)) as running:
            for seed in range(5):
                generated(running, request(prompt(300, seed)))
            assert files(tmp_path / "p") == []
            held.set()
    with toy(tmp_path / "p") as running:
        for seed in range(5):
            expected = said(prompt(300, seed), 8)
            assert generated(running, request(prompt(300, seed))) == [(expected, 256)]


def test_evictions_while_files_are_written_and_deleted_change_no_answer(tmp_path):
    # Room for four of the prefixes' runs in memory and for six on disk.
    bound = 6 * (RUN_BLOCKS * DiskToy.block_bytes + HEADER_BYTES)
    asked = [[*prompt(RUN_TOKENS, seed % 3), *prompt(280, seed)] for seed in range(9)]
    expected = [said(one, 12) for one in asked]
    cached = 0
    for number in range(3):
        order = random.Random(number).sample(range(9), 9)
        with toy(tmp_path / "p", DiskToy(80), max_bytes=bound, speculate=True) as running:
            made = generated(running, *(request(asked[n], 12) for n in order))
        assert [tokens for tokens, _ in made] == [expected[n] for n in order]
        assert num_bytes(tmp_path / "p") <= bound
        cached += sum(found for _, found in made)
    assert cached > 0


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    turns=st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(1, 40)),
        min_size=2,
        max_size=8,
    ),
    num_blocks=st.sampled_from([80, 100]),
    restart=st.integers(0, 7),
    private=st.integers(0, 7),
)
def test_answers_are_the_same_with_and_without_the_disk(
    tmp_path_factory, turns, num_blocks, restart, private
):
    folder = tmp_path_factory.mktemp("turns") / "p"
    asked = [
        [*(token for piece in pieces for token in prompt(RUN_TOKENS, piece)), *prompt(rest, 9)]
        for pieces, rest in turns
    ]
    for part in (asked[:restart], asked[restart:]):
        with toy(folder, DiskToy(num_blocks)) as running:
            for number, one in enumerate(part):
                wanted = request(one, 4, private=number == private)
                assert generated(running, wanted)[0][0] == said(one, 4)


# --- real models ---


def has_kernels() -> bool:
    try:
        library.load()
    except KernelsUnavailable:
        return False
    return True


needs_kernels = pytest.mark.skipif(not has_kernels(), reason="the kernels were not compiled")
PATHS = [pytest.param("native", marks=needs_kernels), "paged"]


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every self-test was passed, which has tests of its own."""
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.__enter__", lambda test: test)
    monkeypatch.setattr("antiphon.engine.native.load._SelfTest.passed_by", lambda *_: "it is right")


def model_of(tmp_path: Path, **options: Any) -> LoadedModel:
    options = {"cache_bytes": 4 * MIB, "prefix_bytes": 8 * MIB, **options}
    wanted = LoadOptions(cache_dir=tmp_path, prefix_dir=tmp_path / "p", **options)
    return load(read(str(tmp_path / "model"), nothing), wanted, nothing)


def answer(model: LoadedModel, asked: SequenceRequest) -> tuple[list[int], int]:
    with started(model.runner, model.cache, model.sampler) as running:
        ((tokens, cached),) = generated(running, asked)
    return tokens, cached


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return save(tmp_path / "model", new_module())


@pytest.mark.usefixtures("tested", "saved")
@pytest.mark.parametrize("path", PATHS)
def test_a_model_says_the_same_after_a_restart_from_disk(tmp_path, path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = request(prompt(400, vocab_size=256), 20)
    without = model_of(tmp_path, engine=path, prefix_bytes=0)
    expected, _ = answer(without, asked)
    assert not (tmp_path / "p").exists()
    assert len(set(expected)) > 3
    for cached in (0, 256):
        model = model_of(tmp_path, engine=path)
        assert model.runner.path == path
        assert answer(model, asked) == (expected, cached)


@pytest.mark.usefixtures("tested", "saved")
@pytest.mark.parametrize("path", PATHS)
def test_blocks_come_back_as_they_were_in_another_place(tmp_path, path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    runner = model_of(tmp_path, engine=path, prefix_bytes=0).runner
    assert isinstance(runner, BlockStore)
    others = array("i", [0, 2, 4, 6, 8])
    before = runner.read_blocks(others)
    random_bytes = np.random.default_rng(0).integers(0, 100, (3, runner.block_bytes), np.uint8)
    runner.write_blocks(array("i", [5, 1, 7]), random_bytes)
    assert (runner.read_blocks(array("i", [7, 5])) == random_bytes[[2, 0]]).all()
    assert (runner.read_blocks(others) == before).all()
    runner.close()


@needs_kernels
@pytest.mark.usefixtures("tested")
def test_a_model_that_changed_finds_nothing_of_what_it_was(tmp_path, saved):
    asked = request(prompt(300, vocab_size=256))
    assert answer(model_of(tmp_path), asked)[1] == 0
    assert answer(model_of(tmp_path, quantize="int8"), asked)[1] == 0
    assert answer(model_of(tmp_path), asked)[1] == 256
    save(saved, new_module(rms_norm_eps=1e-2))
    assert answer(model_of(tmp_path), asked)[1] == 0


@pytest.mark.usefixtures("saved")
def test_a_model_without_blocks_says_that_it_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with capture_logs() as logs:
        model = model_of(tmp_path, engine="universal")
    assert "prefixes not kept on disk" in {log["event"] for log in logs}
    assert answer(model, request(prompt(300, vocab_size=256)))[1] == 0
    assert not (tmp_path / "p").exists()


@needs_kernels
@pytest.mark.usefixtures("tested")
@pytest.mark.parametrize(
    ("given", "folder"),
    [({}, None), ({"cache_disk_mib": 8}, "prefixes"), ({"cache_disk_mib": 8}, "else")],
)
def test_the_settings_say_whether_and_where_prefixes_are_kept(tmp_path, saved, given, folder):
    if folder == "else":
        given = {**given, "cache_disk_dir": tmp_path / "else"}
    wanted = Settings(model=str(saved), cache_dir=tmp_path, cache_mib=4, **given)
    (model,) = build_models(wanted, nothing)
    asyncio.run(model.close())
    made = {name for name in ("prefixes", "else") if (tmp_path / name).exists()}
    assert made == ({folder} if folder else set())


def test_expiry_is_for_ever_where_nobody_says_otherwise(tmp_path):
    with toy(tmp_path / "p") as running:
        generated(running, request(prompt(300)))
    (file,) = files(tmp_path / "p")
    assert block_file.read_header(file).expires_at == math.inf
