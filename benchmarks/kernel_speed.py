"""How fast the native kernels run a decoder of SmolLM2-135M's shape, with random weights.

    python benchmarks/kernel_speed.py [--threads N] [--isa NAME] [--body P4|P6|P8] [--context N]

Prints tokens a second for steps of 1, 4 and 16 sequences and for a prompt, the best of some rounds;
and, for steps, the share of the memory bandwidth that reading the weights once takes. The bandwidth
is measured in the same run and before each figure, for it drifts: it is that of summing up an array
with as many threads, larger than the caches.
"""

import argparse
import os
import threading
import time
from array import array
from collections.abc import Callable

import numpy as np

from antiphon.engine.kernels import structs
from antiphon.engine.kernels.decoder import (
    Decoder,
    DecoderLayer,
    DecoderShape,
    DecoderWeights,
    segments_of,
)
from antiphon.engine.kernels.library import Kernels, load
from antiphon.engine.kernels.weight import Weight

_LAYERS, _HIDDEN, _FFN, _VOCAB = 30, 576, 1536, 49152
_HEADS, _KV_HEADS, _HEAD_SIZE = 9, 3, 64
_FORMATS = {"P4": structs.P4, "P6": structs.P6, "P8": structs.P8}


def best(run: Callable[[], object], seconds: float = 2.0) -> float:
    """Seconds that the quickest of some runs takes."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def bandwidth(threads: int) -> float:
    """Bytes a second that so many threads read together."""
    parts = np.array_split(np.ones(32 << 20, np.float64), threads)

    def read() -> None:
        readers = [threading.Thread(target=part.max) for part in parts]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    return sum(part.nbytes for part in parts) / best(read, 0.5)


class Model:
    """A decoder with random weights, and sequences that have each a part of its cache."""

    def __init__(self, kernels: Kernels, body: str, sequences: int, context: int) -> None:
        self._random = np.random.default_rng(0)
        self._kernels = kernels
        self._body = _FORMATS[body]
        q, kv = _HEADS * _HEAD_SIZE, _KV_HEADS * _HEAD_SIZE
        ones = np.ones(_HIDDEN, np.float32)
        layers = [
            DecoderLayer(
                q=self._weight(q, _HIDDEN),
                k=self._weight(kv, _HIDDEN),
                v=self._weight(kv, _HIDDEN),
                o=self._weight(_HIDDEN, q),
                gate=self._weight(_FFN, _HIDDEN),
                up=self._weight(_FFN, _HIDDEN),
                down=self._weight(_HIDDEN, _FFN),
                attention_norm=ones,
                ffn_norm=ones,
            )
            for _ in range(_LAYERS)
        ]
        values = self._random.standard_normal((_VOCAB, _HIDDEN), np.float32)
        head = kernels.quantize(structs.P8, values)
        self.weights = DecoderWeights(layers, head, head, ones)
        inv_freq = (100000.0 ** -(np.arange(0, _HEAD_SIZE, 2) / _HEAD_SIZE)).astype(np.float32)
        shape = DecoderShape(
            _HIDDEN, _FFN, _HEADS, _KV_HEADS, _HEAD_SIZE, inv_freq, 1e-5, _HEAD_SIZE**-0.5
        )
        per_sequence = context // structs.BLOCK_SIZE + 1
        self._decoder: Decoder = kernels.decoder(shape, self.weights, sequences * per_sequence)
        self._tables = [
            array("i", range(i * per_sequence, (i + 1) * per_sequence)) for i in range(sequences)
        ]
        self._logits = np.empty((sequences, _VOCAB), np.float32)

    def _weight(self, rows: int, cols: int) -> Weight:
        values = self._random.standard_normal((rows, cols), np.float32) * 0.02
        if self._body != structs.P6:
            return self._kernels.quantize(self._body, values)
        # Any bytes make sense as blocks of Q6_K but for the scale, the last two; Q5_0 has rows of
        # 576 columns as well.
        blocks = self._random.integers(0, 256, (rows, cols // 32, 22), np.uint8)
        blocks[..., :2] = np.frombuffer(np.float16(0.005).tobytes(), np.uint8)
        return self._kernels.pack(6, blocks.reshape(-1), rows, cols)

    @property
    def num_bytes(self) -> int:
        """Bytes of weights that a step reads."""
        total = self.weights.head.num_bytes
        for layer in self.weights.layers:
            linears = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
            total += sum(weight.num_bytes for weight in linears)
        return total

    def step(self, sequences: int, position: int) -> Callable[[], None]:
        """One token of each of some sequences."""
        tokens = self._random.integers(0, _VOCAB, sequences, np.int32)
        segments = segments_of([(1, position, table) for table in self._tables[:sequences]])
        rows = np.arange(sequences, dtype=np.int32)
        logits = self._logits[:sequences]
        return lambda: self._decoder.forward(tokens, segments, rows, logits)

    def prompt(self, length: int) -> Callable[[], None]:
        """A whole prompt, and the scores after it."""
        tokens = self._random.integers(0, _VOCAB, length, np.int32)
        segments = segments_of([(length, 0, self._tables[0])])
        rows = np.array([length - 1], np.int32)
        return lambda: self._decoder.forward(tokens, segments, rows, self._logits[:1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--isa")
    parser.add_argument("--body", choices=_FORMATS, default="P4")
    parser.add_argument("--context", type=int, default=64)
    arguments = parser.parse_args()
    kernels = load()
    kernels.set_threads(arguments.threads)
    if arguments.isa:
        kernels.use_isa(arguments.isa)
    model = Model(kernels, arguments.body, 16, max(arguments.context + 1, 512))
    print(
        f"{kernels.isa}, {arguments.threads} threads, {arguments.body}, "
        f"{model.num_bytes / 1e6:.1f} MB of weights, context {arguments.context}"
    )
    for sequences in (1, 4, 16):
        speed = bandwidth(arguments.threads)
        seconds = best(model.step(sequences, arguments.context))
        share = model.num_bytes / seconds / speed
        print(
            f"step of {sequences:2}: {sequences / seconds:6.1f} tokens/s, {seconds * 1e3:6.2f} ms, "
            f"{share:4.0%} of {speed / 1e9:.1f} GB/s"
        )
    for length in (128, 512):
        seconds = best(model.prompt(length))
        print(f"prompt of {length}: {length / seconds:6.1f} tokens/s, {seconds * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
