"""The attention kernels against what the processor can do.

    python benchmarks/attention.py [THREADS]

The shape is SmolLM2's: 9 heads of 64 sharing 3 of keys and values. Prompts of 2,000 and 4,000
tokens, in GFLOP/s (the half that is masked is not counted as work) and as a share of what a loop of
nothing but fused multiply-adds of eight floats makes in the same run; goal: 60 %. Single tokens at
those contexts, one and sixteen at a time, in GB/s of keys and values; goal: the memory's bandwidth,
as `copy` has it. All are the best of several runs, in CPU time over the number of threads: a
machine that is busy with something else spoils that least.
"""

import ctypes as c
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from antiphon.engine.kernels.compile import compiler
from antiphon.engine.kernels.library import Kernels, load
from antiphon.engine.kernels.structs import BLOCK_SIZE, AkAttention, AkCache, AkSegment

HEADS, KV_HEADS, SIZE = 9, 3, 64

_PEAK = """
typedef float v8f __attribute__((vector_size(32)));
#define EACH(DO) DO(a) DO(b) DO(c) DO(d) DO(e) DO(f) DO(g) DO(h) DO(i) DO(j)
float peak(long n) {
  v8f x = {.5f}, y = {1.f}, sum = {0};
#define BEGIN(v) v8f v = {0};
#define STEP(v) v = v * x + y; KEEP(v)
#define END(v) sum += v;
  EACH(BEGIN)
  while (n-- > 0) { EACH(STEP) }
  EACH(END)
  return sum[0];
}
"""
#: Has the compiler believe that a vector changes, so that it neither skips steps nor joins them.
_KEEP = {"x86_64": "x", "aarch64": "w"}
_FLOPS = 10 * 8 * 2


def best(action: Callable[[], object], runs: int, threads: int = 1) -> float:
    """Seconds of the quickest run, each thread's."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times) / threads


def peak(threads: int) -> float:
    """Multiplications and additions a second that all threads together can do."""
    with tempfile.TemporaryDirectory() as directory:
        source, library = Path(directory, "peak.c"), Path(directory, "peak.so")
        source.write_text(_PEAK)
        keep = f'-DKEEP(v)=__asm__ volatile("" : "+{_KEEP[platform.machine()]}"(v));'
        flags = ["-xc", "-O3", "-march=native", "-shared", "-fPIC", keep]
        subprocess.run([*(compiler() or ["cc"]), *flags, source, "-o", library], check=True)
        loop = c.CDLL(str(library)).peak
        loop.argtypes, loop.restype = (c.c_long,), c.c_float
    n = 10_000_000

    def everywhere() -> None:
        others = [threading.Thread(target=loop, args=(n,)) for _ in range(threads - 1)]
        for other in others:
            other.start()
        loop(n)
        for other in others:
            other.join()

    return threads * n * _FLOPS / best(everywhere, 5, threads)


def copied() -> float:
    """Bytes a second of one thread's copying of what no cache holds, reading and writing."""
    source, target = np.ones(2**26, np.uint8), np.zeros(2**26, np.uint8)
    return 2 * source.nbytes / best(lambda: np.copyto(target, source), 5)


class Prompt:
    """A prompt in the cache, its blocks in no order."""

    def __init__(self, kernels: Kernels, tokens: int) -> None:
        rng = np.random.default_rng(0)
        num_blocks = -(-tokens // BLOCK_SIZE)
        self._kernels, self._tokens = kernels, tokens
        self._cached = np.zeros((2, num_blocks, KV_HEADS, SIZE * BLOCK_SIZE), np.float16)
        self._blocks = rng.permutation(num_blocks).astype(np.int32)
        keys, values = (x.ctypes.data for x in self._cached)
        self._cache = AkCache(keys, values, KV_HEADS, SIZE, SIZE, 0)
        self._attention = AkAttention(HEADS, SIZE**-0.5, 0, 0, None)
        self._q = rng.normal(size=(tokens, HEADS, SIZE)).astype(np.float32)
        self._kv = rng.normal(size=(2, tokens, KV_HEADS, SIZE)).astype(np.float32)
        self.write()

    def _segment(self, n: int) -> AkSegment:
        return AkSegment(0, n, self._tokens - n, 0, self._blocks.ctypes.data)

    def write(self) -> None:
        segments = (AkSegment * 1)(self._segment(self._tokens))
        self._kernels.write_cache(self._cache, self._kv[0], self._kv[1], segments)

    def prefill(self) -> None:
        segments = (AkSegment * 1)(self._segment(self._tokens))
        self._kernels.attend(self._cache, self._attention, self._q, segments)

    def decode(self, sequences: int) -> None:
        """The last token, as so many sequences that share the prompt."""
        segments = (AkSegment * sequences)(*[self._segment(1)] * sequences)
        for row in range(sequences):
            segments[row].row = row
        self._kernels.attend(self._cache, self._attention, self._q[:sequences], segments)

    @property
    def flops(self) -> float:
        return 4 * SIZE * HEADS * self._tokens * (self._tokens + 1) / 2

    @property
    def num_bytes(self) -> int:
        return 2 * 2 * KV_HEADS * SIZE * self._tokens


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count() or 1
    kernels = load()
    kernels.set_threads(threads)
    limit = peak(threads)
    print(f"{kernels.isa}, {threads} threads: {limit / 1e9:.0f} GFLOP/s, ", end="")
    print(f"copy {copied() / 1e9:.1f} GB/s on one")
    for tokens in (2000, 4000):
        prompt = Prompt(kernels, tokens)
        print(f"{tokens} tokens")
        write = best(prompt.write, 10, threads)
        print(f"  write cache  {write * 1e3:8.2f} ms")
        prefill = best(prompt.prefill, 20, threads)
        speed = prompt.flops / prefill
        print(f"  prefill      {prefill * 1e3:8.2f} ms  {speed / 1e9:6.1f} GFLOP/s", end="")
        print(f"  {speed / limit:4.0%} of peak")
        for sequences in (1, 16):
            decode = best(partial(prompt.decode, sequences), 50, threads)
            rate = sequences * prompt.num_bytes / decode
            print(f"  decode x {sequences:<2}  {decode * 1e3:8.3f} ms  {rate / 1e9:6.1f} GB/s")


if __name__ == "__main__":
    main()
