"""What kernels should give, in numpy."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from antiphon.engine.kernels.decoder import DecoderLayer, DecoderShape, DecoderWeights
from antiphon.engine.kernels.library import Kernels
from antiphon.engine.kernels.structs import F32
from antiphon.engine.kernels.weight import Weight

Floats = npt.NDArray[np.float32]


def quantized_inputs(x: Floats) -> Floats:
    """Inputs rounded to 255 steps in blocks of 32, as packed weights take them."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    inverse = np.float32(127) / np.where(largest > 0, largest, np.float32(np.inf))
    q = np.rint(blocks * inverse)
    rounded: Floats = (q * (largest / np.float32(127)).astype(np.float64)).reshape(x.shape)
    return rounded


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + eps) * weight


def rotated(x: Floats, positions: npt.NDArray[np.int32], inv_freq: Floats, scale: float) -> Floats:
    """x [m, heads, size], the first 2 * len(inv_freq) values of each head rotated."""
    half = len(inv_freq)
    angles = (positions[:, None].astype(np.float32) * inv_freq)[:, None, :].astype(np.float64)
    cosines, sines = np.cos(angles) * scale, np.sin(angles) * scale
    a, b = x[..., :half], x[..., half : 2 * half]
    turned = [a * cosines - b * sines, b * cosines + a * sines, x[..., 2 * half :]]
    return np.concatenate(turned, axis=-1)


def activated(x: Floats, activation: str) -> Floats:
    if activation == "silu":
        return x / (1 + np.exp(-x.astype(np.float64)))
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)
    return 0.5 * x * (1 + np.tanh(inner))


class Reference(NamedTuple):
    """A decoder's whole sequences in double precision."""

    kernels: Kernels
    shape: DecoderShape
    weights: DecoderWeights

    def scores(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """[len(tokens), vocabulary]"""
        shape = self.shape
        rows = self.kernels.unpack_rows(self.weights.embedding, range(self.weights.embedding.rows))
        x = rows[tokens].astype(np.float64) * shape.embedding_scale
        for layer in self.weights.layers:
            x = x + shape.residual_scale * self._attention(layer, x)
            y = rms_norm(x, layer.ffn_norm, shape.eps)
            gate = activated(self._linear(layer.gate, y), shape.activation)
            up = self._linear(layer.up, y)
            x = x + shape.residual_scale * self._linear(layer.down, gate * up)
        x = rms_norm(x, self.weights.norm, shape.eps)
        return self._linear(self.weights.head, x) * shape.logit_scale

    def _linear(self, weight: Weight, x: Floats) -> Floats:
        values = self.kernels.unpack_rows(weight, range(weight.rows)).astype(np.float64)
        if weight.format > F32 + 2:
            x = quantized_inputs(x.astype(np.float32))
        y: Floats = x @ values.T
        return y if weight.bias is None else y + weight.bias

    def _attention(self, layer: DecoderLayer, x: Floats) -> Floats:
        shape, m = self.shape, len(x)
        y = rms_norm(x, layer.attention_norm, shape.eps)
        q = self._linear(layer.q, y).reshape(m, shape.heads, -1)
        k = self._linear(layer.k, y).reshape(m, shape.kv_heads, -1)
        v = self._linear(layer.v, y).reshape(m, shape.kv_heads, -1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, shape.eps), rms_norm(k, layer.k_norm, shape.eps)
        positions = np.arange(m, dtype=np.int32)
        if layer.rotates:
            q = rotated(q, positions, shape.inv_freq, shape.rope_scale)
            k = rotated(k, positions, shape.inv_freq, shape.rope_scale)
        group = shape.heads // shape.kv_heads
        k = k.astype(np.float16).astype(np.float64).repeat(group, axis=1)
        v = v.astype(np.float16).astype(np.float64).repeat(group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) * shape.scale
        age = positions[:, None] - positions[None, :]
        seen = (age >= 0) & ((age < layer.window) if layer.window else True)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self._linear(layer.o, np.einsum("hqk,khd->qhd", p, v).reshape(m, -1))
