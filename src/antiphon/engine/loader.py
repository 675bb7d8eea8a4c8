"""Loads a model: from a GGUF file, a folder or a hub name.

What lies on disk is read first, without any library that runs models (`read`); then it is decided
how to run it (`load`). torch and transformers, which take seconds to import, are touched only by
models that need them.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import structlog

from antiphon import __version__
from antiphon.engine.block_manager import BlockManager
from antiphon.engine.cache import SequenceCache
from antiphon.engine.checkpoints import hub
from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Progress
from antiphon.engine.checkpoints.fingerprint import fingerprint
from antiphon.engine.checkpoints.folder import read_folder
from antiphon.engine.checkpoints.gguf_checkpoint import read_gguf
from antiphon.engine.disk_tier import DiskTier
from antiphon.engine.kernels import library
from antiphon.engine.kernels.library import Kernels, KernelsUnavailable
from antiphon.engine.long_prefixes import LongPrefixes
from antiphon.engine.native.load import NativeRefused, load_native
from antiphon.engine.options import LoadOptions
from antiphon.engine.runners.base import BLOCK_SIZE, BlockStore, ModelRunner
from antiphon.engine.sampler import Sampler
from antiphon.engine.tokenizer import PromptTokenizer

_logger = structlog.get_logger("antiphon.engine")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what keeps its sequences."""

    runner: ModelRunner
    cache: SequenceCache
    sampler: Sampler
    tokenizer: PromptTokenizer

    def context_window(self, wanted: int) -> int:
        """So many tokens, or as many as the cache of keys and values has room for."""
        room = self.runner.num_blocks * BLOCK_SIZE
        if not room or room >= wanted:
            return wanted
        _logger.warning("context shortened", tokens=room, reason="there is memory for no more")
        return room


def read(source: str, progress: Progress) -> Checkpoint:
    """What lies at a path or under a hub's name. Raises `LoadError`."""
    path = Path(source).expanduser()
    try:
        if path.is_file():
            progress("Reading the file", 0, 0)
            return read_gguf(path)
        if not path.is_dir():
            if _looks_like_path(source):
                raise LoadError(f"{source} does not exist")
            path = hub.fetch(source, progress)
        progress("Reading the files", 0, 0)
        return read_folder(path)
    except OSError as error:
        raise LoadError(f"{source} cannot be read: {error.strerror}") from error


def read_tokenizer(checkpoint: Checkpoint) -> PromptTokenizer:
    """The tokenizer of a model. Raises `LoadError`."""
    if checkpoint.tokenizer is not None:
        return PromptTokenizer(checkpoint.tokenizer)
    from antiphon.engine.torch.modules import pretrained_tokenizer

    return PromptTokenizer(pretrained_tokenizer(checkpoint))


def _looks_like_path(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.count("/") != 1 or source.endswith(".gguf")


def load(checkpoint: Checkpoint, options: LoadOptions, progress: Progress) -> LoadedModel:
    """Make a model ready to run in the fastest way that suits it. Raises `LoadError`."""
    tokenizer = read_tokenizer(checkpoint)
    runner, cache = _runner(checkpoint, options, progress)
    if options.prefix_dir is not None and options.prefix_bytes:
        _keep_long_prefixes(checkpoint, options.prefix_dir, options, runner, cache)
    _logger.info("model loaded", path=runner.path, reason=runner.reason, blocks=runner.num_blocks)
    return LoadedModel(runner, cache, Sampler(runner.vocab_size, _kernels(options)), tokenizer)


def _kernels(options: LoadOptions) -> Kernels | None:
    """What draws tokens, on whichever path the scores come."""
    try:
        kernels = library.load()
        kernels.set_threads(options.threads)
        return kernels
    except KernelsUnavailable as error:
        _logger.warning("models run slower", reason=str(error))
        return None


def _runner(
    checkpoint: Checkpoint, options: LoadOptions, progress: Progress
) -> tuple[ModelRunner, SequenceCache]:
    reason = f"the setting engine says {options.engine}"
    if options.engine in ("auto", "native"):
        try:
            return load_native(checkpoint, options, progress)
        except NativeRefused as refused:
            if options.engine == "native":
                raise LoadError(f"{checkpoint.path} cannot be run natively: {refused}") from None
            reason = str(refused)
    assert options.engine != "native"
    progress("Starting torch", 0, 0)
    from antiphon.engine.torch.load import load_torch

    return load_torch(
        checkpoint,
        engine=options.engine,
        threads=options.threads,
        cache_bytes=options.cache_bytes,
        reason=reason,
        progress=progress,
    )


def _keep_long_prefixes(
    checkpoint: Checkpoint,
    folder: Path,
    options: LoadOptions,
    runner: ModelRunner,
    cache: SequenceCache,
) -> None:
    """Have prefixes kept on disk, if the runner's cache is of blocks. Raises `DiskTierError`."""
    if not isinstance(cache, BlockManager) or not isinstance(runner, BlockStore):
        _logger.warning("prefixes not kept on disk", reason=f"the path {runner.path} has no blocks")
        return
    model = f"{__version__} {sys.byteorder} {fingerprint(checkpoint.path)} {options.quantize}"
    tier = DiskTier(folder, f"{model} {runner.layout}", options.prefix_bytes)
    cache.long_prefixes = LongPrefixes(tier, runner)
