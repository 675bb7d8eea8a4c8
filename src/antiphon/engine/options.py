"""How a model is wanted to be run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to run a model.

    `engine` is a path that must be taken, or `auto`. `quantize` is what the native kernels make of
    weights that are not quantised. `cache_bytes` is for keys and values; None is for what suits.
    `recorded_layers` is what the self-test's layers said of the model before, None where they have
    to be asked. `cache_dir` keeps what self-tests found, and `prefix_dir` long prefixes, of
    `prefix_bytes` at most; with 0 none are kept.
    """

    cache_dir: Path
    threads: int = 1
    engine: Literal["auto", "native", "paged", "universal"] = "auto"
    quantize: Literal["none", "int8", "int4"] = "none"
    cache_bytes: int | None = None
    recorded_layers: Path | None = None
    prefix_dir: Path | None = None
    prefix_bytes: int = 0
