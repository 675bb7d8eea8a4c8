"""A model as it lies on disk, before anything runs it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.checkpoints.ggml import TensorType
from antiphon.errors import StartError

Array = npt.NDArray[Any]

#: Told how far loading is: what is being done, steps done, steps in all (0: unknown).
Progress = Callable[[str, int, int], None]


class LoadError(StartError):
    """The model cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file. `shape` is row-major, outermost first, as torch has it; `data` is its
    bytes, mapped."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: Array

    def floats(self) -> npt.NDArray[np.float32]:
        """All values as float32, in `shape`."""
        blocks = self.data.reshape(-1, self.type.size)
        return np.ascontiguousarray(self.type.read(blocks), np.float32).reshape(self.shape)

    def rows(self) -> Array:
        """The bytes of each row: [rows, bytes of a row], uint8."""
        return self.data.reshape(self.shape[0], -1)

    def reordered(self, order: Array) -> "Tensor":
        """With its rows in another order. Rows are whole blocks, so nothing is lost."""
        data = np.ascontiguousarray(self.rows()[order]).reshape(-1)
        return Tensor(self.name, self.type, self.shape, data)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's files, read as far as they can be without a library that runs models.

    `config` and the names of `tensors` are transformers'. A `tokenizer` of None, and `tensors` that
    are empty, have to be read by transformers. `template` is the chat template, `variables` what it
    may use; `stop_tokens` end an answer. `temperature` and `top_p` are the sampling it was made
    for, None where it does not say.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: HubTokenizer | None
    template: str | None
    variables: Mapping[str, str]
    stop_tokens: frozenset[int]
    temperature: float | None = None
    top_p: float | None = None

    @property
    def model_type(self) -> str:
        """transformers' name for the architecture."""
        return str(self.config.get("model_type"))

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The part of the configuration that is about text."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, Mapping) else self.config

    @property
    def context_window(self) -> int:
        """Tokens of prompt and answer together. Raises `LoadError` if it is not said."""
        window = self.text_config.get("max_position_embeddings")
        if not isinstance(window, int) or window < 1:
            raise LoadError(f"{self.path} does not say how long a context may be")
        return window

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.data.nbytes for tensor in self.tensors.values())


def flat(values: Sequence[Any]) -> frozenset[int]:
    """Ids out of a list of ids, lists of ids and nothing."""
    ids: set[int] = set()
    for value in values:
        if value is not None:
            ids.update(value if isinstance(value, list) else [value])
    return frozenset(ids)
