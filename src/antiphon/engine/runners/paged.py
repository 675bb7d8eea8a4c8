"""Runs transformers' own forward pass over packed tokens, with keys and values kept in blocks."""

import inspect
from array import array
from collections.abc import Sequence as Layers
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from antiphon.engine.runners.attention import (
    Attention,
    AttentionLayer,
    Batch,
    GatheredAttention,
    LayerCache,
    refuse_unknown,
)
from antiphon.engine.runners.base import BLOCK_SIZE, Scores, Segment
from antiphon.engine.runners.cuda import DecodeGraphs, FlashAttention, flash_function
from antiphon.engine.runners.survey import survey, vocab_size_of, weights_of


class PagedRunner:
    """Runs any model that attends through transformers' attention interface.

    All segments of a step go through the model at once, as one row of tokens. Layers find their
    cache by the order in which they attend, which is the same in every pass.

    The attention function is registered with transformers under a name of this runner's own, so
    that it finds its runner whatever a model passes on to its layers, and several runners can live
    in one process. A module belongs to the runner made last for it, until that is closed.
    Raises `NotPageable` where the model cannot be run like this.
    """

    path = "paged"
    rewinds = True

    def __init__(
        self,
        module: PreTrainedModel,
        *,
        num_blocks: int,
        layers: Layers[AttentionLayer] | None = None,
    ) -> None:
        self.layers = survey(module) if layers is None else layers
        self.num_blocks = num_blocks
        self._weights = weights_of(module)
        self.vocab_size = vocab_size_of(module)
        self.reason = _reason(self.layers)
        self._module: PreTrainedModel | None = module
        self._like = torch.empty(0, dtype=module.dtype, device=module.device)
        flash = flash_function() if self._like.is_cuda else None
        self._attention: Attention = FlashAttention(flash) if flash else GatheredAttention()
        self._caches = [
            # One block more for graphs, which belongs to nobody.
            LayerCache(layer, num_blocks + bool(flash), self._like.dtype, self._like.device)
            for layer in self.layers
        ]
        self.block_bytes = bytes_per_block(self.layers, self._like.dtype)
        self.layout = " ".join([f"paged {self._like.dtype}", *map(_shape, self.layers)])
        self._graphs = self._decode_graphs(module)
        self._chooses_rows = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._batch: Batch | None = None
        self._num_attended = 0
        self._name = f"antiphon-{id(self):x}"
        self._implementation_before = module.config._attn_implementation
        ALL_ATTENTION_FUNCTIONS[self._name] = self._attend
        # No mask is registered under this name: transformers then makes none.
        module.set_attn_implementation(self._name)

    def forward(self, segments: list[Segment]) -> Scores:
        """See `ModelRunner.forward`."""
        with torch.inference_mode():
            logits = self._graphs.run(segments) if self._graphs else None
            if logits is None:
                logits = self._run(Batch(segments, self._like))
            scores: Scores = logits.to("cpu", torch.float32).contiguous().numpy()
        return scores

    def _run(self, batch: Batch) -> torch.Tensor:
        """A pass over a batch; the logits that are wanted, [rows, vocabulary]."""
        assert self._module is not None, "the runner was closed"
        options = {"logits_to_keep": batch.wanted} if self._chooses_rows else {}
        self._batch, self._num_attended = batch, 0
        try:
            output = self._module(
                input_ids=batch.tokens, position_ids=batch.positions, use_cache=False, **options
            )
        finally:
            self._batch = None
        if self._num_attended != len(self._caches):
            raise RuntimeError(
                f"the model attended {self._num_attended} times, not {len(self._caches)}"
            )
        logits: torch.Tensor = output.logits[0]
        return logits if options else logits[batch.wanted]

    def _decode_graphs(self, module: PreTrainedModel) -> DecodeGraphs | None:
        gathers = any(
            layer.has_sinks or layer.key_size != layer.value_size for layer in self.layers
        )
        if gathers or not isinstance(self._attention, FlashAttention):
            return None
        window = int(module.config.get_text_config().max_position_embeddings)
        return DecodeGraphs(
            self._run,
            self._attention,
            self._like,
            scratch_block=self.num_blocks,
            max_blocks=min(-(-window // BLOCK_SIZE), self.num_blocks),
        )

    def read_blocks(self, blocks: "array[int]") -> npt.NDArray[np.uint8]:
        """See `BlockStore.read_blocks`."""
        rows = torch.tensor(blocks, device=self._like.device)
        content = torch.cat([pool[rows].flatten(1) for pool in self._pools()], 1)
        data: npt.NDArray[np.uint8] = content.cpu().view(torch.uint8).numpy()
        return data

    def write_blocks(self, blocks: "array[int]", content: npt.NDArray[np.uint8]) -> None:
        """See `BlockStore.write_blocks`."""
        rows = torch.tensor(blocks, device=self._like.device)
        data = torch.from_numpy(content).view(self._like.dtype).to(self._like.device)
        pools = self._pools()
        parts = data.split([pool[0].numel() for pool in pools], 1)
        for pool, part in zip(pools, parts, strict=True):
            pool[rows] = part.view(len(rows), *pool.shape[1:])

    def _pools(self) -> list[torch.Tensor]:
        """The keys and the values of each layer: [blocks, heads, tokens of a block, size]."""
        return [pool for cache in self._caches for pool in (cache.keys, cache.values)]

    def stats(self) -> dict[str, Any]:
        """See `ModelRunner.stats`."""
        return {"weights": self._weights}

    def close(self) -> None:
        """See `ModelRunner.close`."""
        if self._module is None:
            return
        if self._module.config._attn_implementation == self._name:
            self._module.set_attn_implementation(self._implementation_before)
        del ALL_ATTENTION_FUNCTIONS[self._name]
        self._module = None
        self._caches = []
        self._graphs = None

    def _attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, None]:
        """An attention function of transformers: [1, heads, T, size] in, [1, T, heads, size] out.

        Whether the mask is one that is known and attention is causal was settled by the survey.
        """
        assert self._batch is not None, "the module is run by others than its runner"
        refuse_unknown(options)
        cache, layer = self._caches[self._num_attended], self.layers[self._num_attended]
        self._num_attended += 1
        cache.write(self._batch, key[0].transpose(0, 1), value[0].transpose(0, 1))
        seen = self._attention.attend(
            query[0].transpose(0, 1),
            cache,
            self._batch,
            layer.reach,
            scaling=query.shape[3] ** -0.5 if scaling is None else scaling,
            softcap=softcap,
            sinks=s_aux,
        )
        return seen[None], None


def bytes_per_block(layers: Layers[AttentionLayer], dtype: torch.dtype) -> int:
    """Bytes of one block of the cache, in all layers."""
    return sum(layer.elements_per_block for layer in layers) * int(dtype.itemsize)


def _shape(layer: AttentionLayer) -> str:
    return f"{layer.num_kv_heads}x{layer.key_size}+{layer.value_size}"


def _reason(layers: Layers[AttentionLayer]) -> str:
    windows = sorted({layer.reach.window for layer in layers if layer.reach.window is not None})
    chunks = sorted({layer.reach.chunk for layer in layers if layer.reach.chunk is not None})
    details = [f"windows of {window}" for window in windows]
    details += [f"chunks of {chunk}" for chunk in chunks]
    limited = f" ({', '.join(details)})" if details else ""
    return f"its {len(layers)} attention layers{limited} use transformers' attention interface"
