"""Decides whether the native kernels can run a checkpoint, and makes them ready."""

from types import TracebackType

import structlog

from antiphon.engine import memory
from antiphon.engine.block_manager import BlockManager
from antiphon.engine.checkpoints.checkpoint import Checkpoint, Progress
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import Kernels, KernelsUnavailable
from antiphon.engine.native import selftest
from antiphon.engine.native.structure import OtherShape, Structure, structure_of
from antiphon.engine.native.weights import NativeModel, NativeWeights
from antiphon.engine.options import LoadOptions
from antiphon.engine.runners.base import BLOCK_SIZE
from antiphon.engine.runners.native import NativeRunner

_logger = structlog.get_logger("antiphon.engine")

#: How alike the kernels and transformers' layers have to be. Eight bits of an activation cost
#: less than this; a wrong rotation or a wrong order of rows costs nearly all of it.
_ALIKE = {"none": 0.99, "int8": 0.985, "int4": 0.8}
_MIB = 2**20


class NativeRefused(Exception):
    """The kernels cannot run the model, or should not. Says why."""


def load_native(
    checkpoint: Checkpoint, options: LoadOptions, progress: Progress
) -> tuple[NativeRunner, BlockManager]:
    """Make a checkpoint ready for the kernels. Raises `NativeRefused`, or `LoadError`."""
    try:
        kernels = library.load()
        structure = structure_of(checkpoint.config, checkpoint.tensors)
    except (KernelsUnavailable, OtherShape) as error:
        raise NativeRefused(str(error)) from error
    kernels.set_threads(options.threads)
    available = memory.available_bytes()
    cache_bytes = options.cache_bytes or default_cache_bytes(
        structure.kv_bytes * checkpoint.context_window, available
    )
    memory.check_room(str(checkpoint.path), checkpoint.size + cache_bytes, available)
    num_blocks = max(cache_bytes // (structure.kv_bytes * BLOCK_SIZE), 1)
    with _SelfTest(checkpoint, structure, kernels, options) as test:
        model = NativeWeights(kernels, checkpoint, options.quantize).model(structure, progress)
        found = test.passed_by(model, progress)
    runner = NativeRunner(
        model.decoder(kernels, num_blocks),
        reason=f"It is of the Llama shape, and {found}.",
        weights=f"{model.kinds}, computed by {kernels.isa} kernels on {_threads(options.threads)}",
    )
    return runner, BlockManager(num_blocks, str(checkpoint.path))


def default_cache_bytes(context_bytes: int, available: int | None) -> int:
    """Room for keys and values where no setting says it: two contexts, at least 256 MiB, at most a
    quarter of what is free."""
    wanted = max(2 * context_bytes, 256 * _MIB)
    return wanted if available is None else min(wanted, available // 4)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


class _SelfTest:
    """The self-test of one model. transformers' layers begin to run when it is entered, beside
    whatever is done until the result is asked for."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        structure: Structure,
        kernels: Kernels,
        options: LoadOptions,
    ) -> None:
        self._path = checkpoint.path
        self._structure = structure
        self._kernels = kernels
        self._least = _ALIKE[options.quantize]
        self._folder = options.cache_dir / "self-tests"
        self._key = selftest.key_of(library.PATH, kernels.isa, checkpoint.path, options.quantize)
        self._verdict = selftest.remembered(self._folder, self._key)
        self._layers: selftest.Layers | None = None
        self._recorded = options.recorded_layers

    def __enter__(self) -> "_SelfTest":
        vocab_size = self._structure.vocab_size
        if self._verdict is not None:
            return self
        if self._recorded is not None:
            self._layers = selftest.RecordedLayers(self._recorded, vocab_size)
        else:
            self._layers = selftest.LayersProcess(self._path, vocab_size, self._num_layers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._layers is not None:
            self._layers.close()

    @property
    def _num_layers(self) -> int:
        return min(selftest.NUM_LAYERS, len(self._structure.layers))

    def passed_by(self, model: NativeModel, progress: Progress) -> str:
        """What was found, in words. Raises `NativeRefused` if it did not pass."""
        if self._layers is not None:
            progress("Testing the kernels", 0, 0)
            try:
                expected = self._layers.result()
            except selftest.LayersUnavailable as error:
                _logger.warning("kernels not tested", reason=str(error))
                return "the kernels were not held against transformers' layers"
            self._verdict = selftest.compare(
                model.decoder(self._kernels, selftest.NUM_BLOCKS, self._num_layers),
                lambda ids: self._kernels.embed(model.weights.embedding, ids),
                self._layers.tokens,
                expected,
            )
            selftest.remember(self._folder, self._key, self._verdict)
        assert self._verdict is not None
        cosine = self._verdict.cosine
        if not cosine >= self._least:  # It may be no number.
            raise NativeRefused(
                f"the kernels disagree with transformers' layers (cosine {cosine:.4f})"
            )
        return f"the kernels agree with transformers' layers (cosine {cosine:.4f})"
