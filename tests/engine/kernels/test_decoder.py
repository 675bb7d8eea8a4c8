"""A decoder gives what the same layers in numpy do, however its tokens are put into batches."""

from array import array
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from engine_kernels import Reference

from antiphon.engine.kernels.decoder import (
    Decoder,
    DecoderLayer,
    DecoderShape,
    DecoderWeights,
    KernelError,
    segments_of,
)
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import F32, P4, P8
from antiphon.engine.kernels.weight import Floats, Weight

HIDDEN, FFN, HEADS, KV_HEADS, SIZE, VOCAB = 96, 160, 6, 2, 32, 101
INV_FREQ = (1e4 ** -(np.arange(0, SIZE, 2) / SIZE)).astype(np.float32)
SHAPE = DecoderShape(HIDDEN, FFN, HEADS, KV_HEADS, SIZE, INV_FREQ, eps=1e-5, scale=SIZE**-0.5)


class Maker:
    """Makes random weights."""

    def __init__(self, kernels: Kernels, kind: int, seed: int = 0) -> None:
        self._kernels = kernels
        self._kind = kind
        self._random = np.random.default_rng(seed)

    def weight(self, rows: int, cols: int, *, bias: bool = False) -> Weight:
        values = self._random.standard_normal((rows, cols)).astype(np.float32) / cols**0.5
        plain = self._kind == F32
        weight = self._kernels.plain(values) if plain else self._quantized(values)
        return weight.with_bias(self.norm(rows) * np.float32(0.1)) if bias else weight

    def _quantized(self, values: Floats) -> Weight:
        return self._kernels.quantize(self._kind, values)

    def norm(self, n: int) -> Floats:
        return self._random.uniform(0.5, 1.5, n).astype(np.float32)

    def layer(self, *, bias: bool = False) -> DecoderLayer:
        return DecoderLayer(
            q=self.weight(HEADS * SIZE, HIDDEN, bias=bias),
            k=self.weight(KV_HEADS * SIZE, HIDDEN, bias=bias),
            v=self.weight(KV_HEADS * SIZE, HIDDEN, bias=bias),
            o=self.weight(HIDDEN, HEADS * SIZE, bias=bias),
            gate=self.weight(FFN, HIDDEN),
            up=self.weight(FFN, HIDDEN),
            down=self.weight(HIDDEN, FFN, bias=bias),
            attention_norm=self.norm(HIDDEN),
            ffn_norm=self.norm(HIDDEN),
        )

    def weights(self, layers: list[DecoderLayer] | None = None) -> DecoderWeights:
        layers = layers or [self.layer(), self.layer()]
        table, head = self.weight(VOCAB, HIDDEN), self.weight(VOCAB, HIDDEN)
        return DecoderWeights(layers, table, head, self.norm(HIDDEN))


def tokens(n: int, seed: int = 0) -> npt.NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, VOCAB, n, np.int32)


def compute(
    decoder: Decoder,
    parts: list[tuple[npt.NDArray[np.int32], int, "array[int]"]],
    wanted: list[int] | None = None,
) -> Floats:
    """The scores after each token of some (tokens, first position, block table)."""
    packed = np.concatenate([part[0] for part in parts])
    segments = segments_of([(len(part), position, table) for part, position, table in parts])
    rows = np.arange(len(packed)) if wanted is None else np.array(wanted)
    logits = np.full((len(rows), VOCAB), np.nan, np.float32)
    decoder.forward(packed, segments, rows.astype(np.int32), logits)
    return logits


TABLE = array("i", [5, 1, 4])
OTHER_TABLE = array("i", [0, 3, 2])


def close(scores: Floats, expected: npt.NDArray[np.float64], limit: float) -> bool:
    return bool(np.abs(scores - expected).max() < limit * expected.std())


# Quantising a value to one or the other of two neighbours, where single precision decides it
# differently than double, is most of what packed weights are off by.
@pytest.mark.parametrize(("kind", "limit"), [(F32, 2e-3), (P8, 0.1), (P4, 0.1)])
def test_scores_are_those_of_the_same_layers_in_numpy(
    kernels: Kernels, kind: int, limit: float
) -> None:
    weights = Maker(kernels, kind).weights()
    expected = Reference(kernels, SHAPE, weights).scores(tokens(37))
    scores = compute(kernels.decoder(SHAPE, weights, 6), [(tokens(37), 0, TABLE)])
    assert close(scores, expected, limit)


def test_every_part_of_the_shape_is_heeded(kernels: Kernels) -> None:
    maker = Maker(kernels, F32)
    norms = {"q_norm": maker.norm(SIZE), "k_norm": maker.norm(SIZE)}
    layers = [
        replace(maker.layer(bias=True), window=5),
        replace(maker.layer(), rotates=False),
        replace(maker.layer(), **norms),
    ]
    weights = maker.weights(layers)
    shape = replace(
        SHAPE,
        inv_freq=INV_FREQ[:10],
        activation="gelu_tanh",
        scale=0.11,
        rope_scale=1.1,
        residual_scale=0.7,
        embedding_scale=3.0,
        logit_scale=0.3,
    )
    expected = Reference(kernels, shape, weights).scores(tokens(23))
    scores = compute(kernels.decoder(shape, weights, 6), [(tokens(23), 0, TABLE)])
    assert close(scores, expected, 2e-3)
    for changed in (
        replace(shape, inv_freq=INV_FREQ),
        replace(shape, activation="silu"),
        replace(shape, rope_scale=1.0),
        replace(shape, residual_scale=1.0),
        replace(shape, embedding_scale=1.0),
        replace(shape, logit_scale=1.0),
    ):
        other = compute(kernels.decoder(changed, weights, 6), [(tokens(23), 0, TABLE)])
        assert not close(other, expected, 2e-3)


def test_formats_may_differ_within_a_layer(kernels: Kernels) -> None:
    one, two = Maker(kernels, P4, 1), Maker(kernels, F32, 2)
    packed, plain = one.layer(), two.layer()
    mixed = [
        replace(packed, v=plain.v, down=plain.down),
        replace(packed, o=plain.o, up=plain.up),
        replace(plain, k=packed.k, gate=packed.gate),
    ]
    weights = two.weights(mixed)
    expected = Reference(kernels, SHAPE, weights).scores(tokens(21))
    for n in (21, 3):
        decoder = kernels.decoder(SHAPE, weights, 6)
        scores = compute(decoder, [(tokens(21)[:n], 0, TABLE)])
        assert close(scores, expected[:n], 0.1)


def test_plain_weights_need_no_whole_tiles(kernels: Kernels) -> None:
    maker = Maker(kernels, F32)
    shape = DecoderShape(20, 27, 3, 1, 10, INV_FREQ[:5], eps=1e-5, scale=0.3)
    layer = DecoderLayer(
        q=maker.weight(30, 20),
        k=maker.weight(10, 20),
        v=maker.weight(10, 20),
        o=maker.weight(20, 30),
        gate=maker.weight(27, 20),
        up=maker.weight(27, 20),
        down=maker.weight(20, 27),
        attention_norm=maker.norm(20),
        ffn_norm=maker.norm(20),
    )
    table = maker.weight(VOCAB, 20)
    weights = DecoderWeights([layer], table, table, maker.norm(20))
    expected = Reference(kernels, shape, weights).scores(tokens(19))
    scores = compute(kernels.decoder(shape, weights, 6), [(tokens(19), 0, TABLE)])
    assert close(scores, expected, 2e-3)


@pytest.mark.parametrize("kind", [F32, P8, P4])
def test_scores_are_the_same_to_the_last_bit_in_any_batch(kernels: Kernels, kind: int) -> None:
    weights = Maker(kernels, kind).weights()
    one, two = tokens(40), tokens(33, 1)
    decoder = kernels.decoder(SHAPE, weights, 6)
    whole = compute(decoder, [(one, 0, TABLE)])
    other = compute(decoder, [(two, 0, OTHER_TABLE)])
    for threads in (1, 2, 3):
        kernels.set_threads(threads)
        decoder = kernels.decoder(SHAPE, weights, 6)
        first = compute(decoder, [(one[:7], 0, TABLE)])
        # A token and a piece of a prompt, then two pieces, then two tokens at a time.
        second = compute(decoder, [(one[7:8], 7, TABLE), (two[:19], 0, OTHER_TABLE)])
        third = compute(decoder, [(one[8:35], 8, TABLE), (two[19:28], 19, OTHER_TABLE)])
        last = [
            compute(decoder, [(one[i : i + 1], i, TABLE), (two[j : j + 1], j, OTHER_TABLE)])
            for i, j in zip(range(35, 40), range(28, 33), strict=True)
        ]
        parts = [first, second[:1], third[:27], *(pair[:1] for pair in last)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        parts = [second[1:], third[27:], *(pair[1:] for pair in last)]
        np.testing.assert_array_equal(np.concatenate(parts), other)


def test_only_wanted_scores_are_computed(kernels: Kernels) -> None:
    decoder = kernels.decoder(SHAPE, Maker(kernels, P4).weights(), 6)
    whole = compute(decoder, [(tokens(20), 0, TABLE)])
    for wanted in ([19], [3, 19], list(range(0, 20, 2)), [7] * 25, []):
        scores = compute(decoder, [(tokens(20), 0, TABLE)], wanted)
        np.testing.assert_array_equal(scores, whole[wanted])
    few = compute(decoder, [(tokens(20)[:2], 0, TABLE)], [1, 0, 1, 1])
    np.testing.assert_array_equal(few, whole[[1, 0, 1, 1]])


def test_the_last_layers_output_is_given_on_demand(kernels: Kernels) -> None:
    weights = Maker(kernels, F32).weights()
    decoder = kernels.decoder(SHAPE, weights, 6)
    segments = segments_of([(9, 0, TABLE)])
    rows, logits = np.arange(9, dtype=np.int32), np.empty((9, VOCAB), np.float32)
    hidden = np.empty((9, HIDDEN), np.float32)
    decoder.forward(tokens(9), segments, rows, logits, hidden)
    normed = kernels.rms_norm(hidden, weights.norm, SHAPE.eps)
    np.testing.assert_array_equal(kernels.linear(weights.head, normed), logits)


def test_malformed_batches_are_refused(kernels: Kernels) -> None:
    decoder = kernels.decoder(SHAPE, Maker(kernels, F32).weights(), 6)
    with pytest.raises(KernelError):  # A token outside the vocabulary.
        compute(decoder, [(np.array([VOCAB], np.int32), 0, TABLE)])
    with pytest.raises(KernelError):  # A block outside the cache.
        compute(decoder, [(tokens(3), 0, array("i", [6]))])
    with pytest.raises(KernelError):
        compute(decoder, [(tokens(3), -1, TABLE)])
    with pytest.raises(KernelError):
        compute(decoder, [(tokens(3), 0, TABLE)], [3])
    with pytest.raises(KernelError):  # Segments of fewer tokens than there are.
        segments, rows = segments_of([(2, 0, TABLE)]), np.zeros(1, np.int32)
        decoder.forward(tokens(3), segments, rows, np.empty((1, VOCAB), np.float32))
    with pytest.raises(ValueError, match="room for"):
        segments, rows = segments_of([(3, 0, TABLE)]), np.zeros(1, np.int32)
        decoder.forward(tokens(3), segments, rows, np.empty((2, VOCAB), np.float32))


def test_weights_that_do_not_fit_the_shape_are_refused(kernels: Kernels) -> None:
    weights = Maker(kernels, F32).weights()
    for shape in (replace(SHAPE, hidden=64), replace(SHAPE, ffn=32), replace(SHAPE, kv_heads=4)):
        with pytest.raises(KernelError):
            compute(kernels.decoder(shape, weights, 6), [(tokens(3), 0, TABLE)])
