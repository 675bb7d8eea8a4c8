"""Attention of the kernels against a plain one in double precision."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import AkAttention, AkCache, AkSegment

BLOCK = 16
#: Blocks that a test's cache has: some belong to nobody.
NUM_BLOCKS = 220

Floats = npt.NDArray[np.float32]
#: How many tokens, and the position of the first.
Chunk = tuple[int, int]


@dataclass
class Case:
    """Tokens with queries, keys and values, and how they attend."""

    q: Floats
    k: Floats
    v: Floats
    softcap: float = 0.0
    window: int = 0
    sinks: Floats | None = None

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.q.shape[2])

    @property
    def tokens(self) -> int:
        return len(self.q)


def case(
    tokens: int,
    heads: int = 3,
    kv_heads: int = 1,
    key_size: int = 64,
    value_size: int | None = None,
    seed: int = 0,
    with_sinks: bool = False,
    **settings: Any,
) -> Case:
    rng = np.random.default_rng([seed, tokens, heads, key_size])

    def normal(*shape: int) -> Floats:
        return rng.normal(size=shape).astype(np.float32)

    value_size = value_size or key_size
    k, v = normal(tokens, kv_heads, key_size), normal(tokens, kv_heads, value_size)
    sinks = normal(heads) if with_sinks else None
    return Case(2 * normal(tokens, heads, key_size), k, v, sinks=sinks, **settings)


def expected(case: Case) -> npt.NDArray[np.float64]:
    """Keys and values as half precision has them; the rest in double precision."""
    q, group = case.q.astype(np.float64), case.q.shape[1] // case.k.shape[1]
    k, v = (np.repeat(x.astype(np.float16).astype(np.float64), group, 1) for x in (case.k, case.v))
    scores = np.einsum("ihd,jhd->hij", q, k) * case.scale
    if case.softcap:
        scores = case.softcap * np.tanh(scores / case.softcap)
    back = np.arange(case.tokens)[:, None] - np.arange(case.tokens)
    scores[:, (back < 0) | ((back >= case.window) if case.window else False)] = -np.inf
    if case.sinks is not None:
        sinks = np.broadcast_to(case.sinks[:, None, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, sinks], 2)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights[:, :, : case.tokens], v)


class Paged:
    """A cache whose blocks lie in no order, with stale numbers in it."""

    def __init__(self, kernels: Kernels, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        kv_heads, key_size, value_size = *case.k.shape[1:], case.v.shape[2]
        shape = NUM_BLOCKS, kv_heads, key_size, BLOCK
        self.keys = rng.normal(size=shape).astype(np.float16)
        self.values = rng.normal(size=(*shape[:2], BLOCK, value_size)).astype(np.float16)
        self.blocks = rng.permutation(NUM_BLOCKS).astype(np.int32)
        self.kernels, self.case = kernels, case
        pointers = self.keys.ctypes.data, self.values.ctypes.data
        self.struct = AkCache(*pointers, kv_heads, key_size, value_size, 0)

    def segments(self, chunks: list[Chunk]) -> Any:
        rows = np.cumsum([0, *(n for n, _ in chunks)])
        return (AkSegment * len(chunks))(
            *(
                AkSegment(row, n, start, 0, self.blocks.ctypes.data)
                for row, (n, start) in zip(rows.tolist(), chunks, strict=False)
            )
        )

    def write(self, *chunks: Chunk) -> None:
        k, v = (
            np.concatenate([x[start : start + n] for n, start in chunks])
            for x in (self.case.k, self.case.v)
        )
        self.kernels.write_cache(self.struct, k, v, self.segments(list(chunks)))

    def attend(self, *chunks: Chunk) -> Floats:
        case = self.case
        sinks = None if case.sinks is None else case.sinks.ctypes.data
        settings = AkAttention(case.q.shape[1], case.scale, case.softcap, case.window, sinks)
        q = np.concatenate([case.q[start : start + n] for n, start in chunks])
        return self.kernels.attend(self.struct, settings, q, self.segments(list(chunks)))


def attended(kernels: Kernels, case: Case) -> Floats:
    paged = Paged(kernels, case)
    paged.write((case.tokens, 0))
    return paged.attend((case.tokens, 0))


def check(kernels: Kernels, case: Case) -> None:
    np.testing.assert_allclose(attended(kernels, case), expected(case), rtol=0, atol=1e-5)


# --- what comes out ---


@pytest.mark.parametrize("size", [1, 2, 7, 8, 24, 33, 64, 80, 96, 128, 200, 255, 256])
def test_heads_of_any_size_attend(kernels, size):
    check(kernels, case(150, key_size=size))


@pytest.mark.parametrize(
    ("key_size", "value_size"), [(192, 128), (7, 64), (64, 7), (1, 256), (40, 72)]
)
def test_keys_and_values_may_differ_in_size(kernels, key_size, value_size):
    check(kernels, case(150, key_size=key_size, value_size=value_size))


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8, 16, 100])
def test_any_number_of_heads_share_keys(kernels, group):
    check(kernels, case(70, heads=2 * group, kv_heads=2, key_size=32))


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 700])
def test_prompts_of_any_length_attend(kernels, tokens):
    check(kernels, case(tokens))


def test_a_long_prompt_attends(kernels):
    check(kernels, case(2500, heads=1, key_size=16))


@pytest.mark.parametrize("window", [1, 2, 16, 63, 64, 65, 300, 10_000])
def test_a_window_hides_what_is_further_back(kernels, window):
    check(kernels, case(700, window=window))


@pytest.mark.parametrize("softcap", [1.0, 20.0])
def test_scores_are_capped(kernels, softcap):
    check(kernels, case(300, softcap=softcap))


@pytest.mark.parametrize("window", [0, 30])
def test_sinks_take_part_in_the_softmax_alone(kernels, window):
    check(kernels, case(300, heads=6, kv_heads=2, with_sinks=True, window=window))


@pytest.mark.parametrize("sink", [-1e30, 1e30, 200.0])
def test_a_sink_may_be_as_large_as_it_likes(kernels, sink):
    far = case(40)
    far.sinks = np.full(3, sink, np.float32)
    check(kernels, far)


def test_scores_far_apart_take_all_the_weight(kernels):
    far = case(300)
    far.q *= 1000
    out = attended(kernels, far)
    assert np.isfinite(out).all()
    best = np.einsum("ihd,jd->hij", far.q, far.k[:, 0].astype(np.float16).astype(np.float32))
    best[:, ~np.tri(300, dtype=bool)] = -np.inf
    picked = far.v[best.argmax(2).T, 0].astype(np.float16)
    # The likeliest two are seldom close enough to share.
    assert np.mean(np.abs(out - picked).max(2) < 1e-3) > 0.9


# --- the same to the last bit ---

SHAPES: list[dict[str, Any]] = [
    {"heads": 9, "kv_heads": 3},
    {"heads": 3, "kv_heads": 3, "key_size": 33, "value_size": 20, "window": 90},
    {"heads": 8, "kv_heads": 1, "key_size": 80, "softcap": 10.0, "with_sinks": True},
    {"heads": 15, "kv_heads": 3, "key_size": 24, "window": 300, "with_sinks": True},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_come_out_the_same_alone_in_chunks_and_in_their_prompt(kernels, shape):
    tokens = 600
    prompt = case(tokens, **shape)
    whole = attended(kernels, prompt)
    rng = np.random.default_rng(1)
    paged = Paged(kernels, prompt, seed=1)
    start, parts = 0, []
    while start < tokens:
        n = min(int(rng.choice([1, 2, 5, 17, 40, 130])), tokens - start)
        kernels.set_threads(int(rng.integers(1, 4)))
        paged.write((n, start))
        parts.append(paged.attend((n, start)))
        start += n
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    # What comes after a token is there by now, and does not change it.
    np.testing.assert_array_equal(paged.attend(*((1, i) for i in range(tokens))), whole)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_decoded_alone_is_the_same_as_among_others(kernels, shape):
    prompt = case(900, **shape)
    paged = Paged(kernels, prompt)
    paged.write((900, 0))
    together = paged.attend((1, 899), (1, 100), (4, 640), (1, 0), (33, 300))
    apart = [paged.attend(chunk) for chunk in [(1, 899), (1, 100), (4, 640), (1, 0), (33, 300)]]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_a_long_prompt_is_the_same_whether_or_not_its_spans_are_apart(kernels):
    """Two threads have enough to do without; twenty do not."""
    prompt = case(1000, heads=3, kv_heads=1, key_size=16, value_size=16)
    two = attended(kernels, prompt)
    kernels.set_threads(20)
    np.testing.assert_array_equal(attended(kernels, prompt), two)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(kernels, threads):
    prompt = case(500, heads=9, kv_heads=3)
    two = attended(kernels, prompt)
    kernels.set_threads(threads)
    np.testing.assert_array_equal(attended(kernels, prompt), two)


# --- writing ---


def test_what_is_written_lies_where_the_block_table_says(kernels):
    prompt = case(50, heads=4, kv_heads=2, key_size=5, value_size=3)
    paged = Paged(kernels, prompt)
    paged.write((20, 0))
    paged.write((30, 20))
    for i in range(50):
        block, slot = paged.blocks[i // BLOCK], i % BLOCK
        np.testing.assert_array_equal(paged.keys[block, :, :, slot], prompt.k[i].astype(np.float16))
        np.testing.assert_array_equal(paged.values[block, :, slot], prompt.v[i].astype(np.float16))


def test_nothing_else_is_written(kernels):
    prompt = case(50, heads=4, kv_heads=2, key_size=5, value_size=3)
    paged = Paged(kernels, prompt)
    before = paged.keys.copy(), paged.values.copy()
    paged.write((20, 7))
    written = {(int(paged.blocks[i // BLOCK]), i % BLOCK) for i in range(7, 27)}
    for block in range(NUM_BLOCKS):
        for slot in range(BLOCK):
            if (block, slot) not in written:
                np.testing.assert_array_equal(
                    paged.keys[block, :, :, slot], before[0][block, :, :, slot]
                )
                np.testing.assert_array_equal(
                    paged.values[block, :, slot], before[1][block, :, slot]
                )


@pytest.mark.parametrize("size", [8, 5])
def test_what_half_precision_cannot_hold_becomes_its_largest_number(kernels, size):
    prompt = case(1, heads=1, kv_heads=1, key_size=size)
    prompt.k[0, 0, :5] = [1e9, -1e9, np.inf, -np.inf, np.nan]
    prompt.v[0, 0, :5] = [65519, 65520, -65536, np.nan, 1e-9]
    paged = Paged(kernels, prompt)
    paged.write((1, 0))
    block = paged.blocks[0]
    assert paged.keys[block, 0, :5, 0].tolist() == [65504, -65504, 65504, -65504, 0]
    assert paged.values[block, 0, 0, :5].tolist() == [65504, 65504, -65504, 0, 0]
