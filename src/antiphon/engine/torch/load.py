"""Makes a checkpoint ready to be run by torch. Importing this imports torch and transformers."""

from typing import Literal

import torch

from antiphon.engine import memory
from antiphon.engine.block_manager import BlockManager
from antiphon.engine.cache import SequenceCache
from antiphon.engine.checkpoints.checkpoint import Checkpoint, LoadError, Progress
from antiphon.engine.runners.base import ModelRunner
from antiphon.engine.runners.choose import choose_runner
from antiphon.engine.runners.survey import NotPageable
from antiphon.engine.snapshots import SnapshotCache
from antiphon.engine.torch.modules import assembled, pretrained

#: A way to run a model in torch, or the best there is.
TorchPath = Literal["auto", "paged", "universal"]
_DEFAULT_CACHE_BYTES = 2**30


def load_torch(
    checkpoint: Checkpoint,
    *,
    engine: TorchPath,
    threads: int,
    cache_bytes: int | None,
    reason: str,
    progress: Progress,
) -> tuple[ModelRunner, SequenceCache]:
    """A runner of transformers' module, and what keeps its sequences.

    `reason` is why it is not run natively. Raises `LoadError`.
    """
    torch.set_num_threads(threads)
    on_gpu = torch.cuda.is_available()
    # Half precision is several times slower than single on processors without instructions for it.
    dtype = torch.bfloat16 if on_gpu else torch.float32
    available = memory.available_bytes()
    room = cache_bytes or min(_DEFAULT_CACHE_BYTES, (available or 2**40) // 4)
    num_values = sum(
        tensor.data.nbytes // tensor.type.size * tensor.type.block
        for tensor in checkpoint.tensors.values()
    )
    if not on_gpu:
        memory.check_room(str(checkpoint.path), num_values * 4 + room, available)
    if checkpoint.path.is_file():
        module = assembled(checkpoint, progress)
    else:
        module = pretrained(checkpoint, dtype, progress)
    if on_gpu:
        module = module.to(device="cuda", dtype=dtype)
    progress("Testing the model", 0, 0)
    try:
        runner = choose_runner(module, cache_bytes=room, path=engine)
    except NotPageable as error:
        raise LoadError(f"{checkpoint.path} cannot be run in blocks: {error}") from error
    except ValueError as error:
        raise LoadError(f"{checkpoint.path} cannot be run: {error}") from error
    reasons = [reason] if engine == "universal" else [reason, runner.reason]
    runner.reason = " ".join(map(_sentence, reasons))
    if runner.num_blocks:
        return runner, BlockManager(runner.num_blocks, str(checkpoint.path))
    return runner, SnapshotCache(max_bytes=room)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
