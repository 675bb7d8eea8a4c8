"""Holds the native kernels against transformers' own layers, once for each model and processor.

The layers run in a process of their own, so that the server never holds torch for it. What was
found is remembered in a file, by what it depends on: the kernels, the model and the package.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from antiphon import __version__
from antiphon.engine.checkpoints.fingerprint import fingerprint
from antiphon.engine.kernels.decoder import Decoder, segments_of

#: Layers that are run, and tokens: more than a block of the cache.
NUM_LAYERS = 2
_NUM_TOKENS = 40
#: Blocks of the cache that these need.
NUM_BLOCKS = 3
_SEED = 5
_TIMEOUT_SECONDS = 300


class LayersUnavailable(Exception):
    """transformers' layers cannot be run here. Says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How alike the kernels and the layers are: the cosine of what the layers add to the
    embeddings, the worst over the tokens."""

    cosine: float


def key_of(library: Path, isa: str, checkpoint: Path, quantize: str) -> str:
    """Names a combination that is tested once."""
    digest = hashlib.sha256(f"{__version__} {isa} {quantize}".encode())
    digest.update(library.read_bytes())
    digest.update(fingerprint(checkpoint).encode())
    return digest.hexdigest()[:32]


def remembered(folder: Path, key: str) -> Verdict | None:
    """What was found before."""
    try:
        return Verdict(float(json.loads((folder / f"{key}.json").read_text())["cosine"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(folder: Path, key: str, verdict: Verdict) -> None:
    """Keep what was found; without the folder it is found again next time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{key}.json").write_text(json.dumps({"cosine": verdict.cosine}))
    except OSError:
        pass


class Layers(Protocol):
    """What transformers' first layers make of `tokens`."""

    tokens: list[int]

    def result(self) -> npt.NDArray[np.float32]:
        """Their output before the last norm: [tokens, hidden]. Raises `LayersUnavailable`."""
        ...

    def close(self) -> None:
        """Nobody wants to know any more."""
        ...


class RecordedLayers:
    """What the layers of a well-known model made of the sample when it was recorded, in a file that
    `python -m antiphon.engine.native.selftest` has written."""

    def __init__(self, file: Path, vocab_size: int) -> None:
        self.tokens = sample_tokens(vocab_size)
        self._file = file

    def result(self) -> npt.NDArray[np.float32]:
        hidden: npt.NDArray[np.float32] = np.load(self._file).astype(np.float32)
        return hidden

    def close(self) -> None:
        pass


class LayersProcess:
    """transformers' first layers, running in a process of their own from the moment it is made."""

    def __init__(self, source: Path, vocab_size: int, num_layers: int) -> None:
        self.tokens = sample_tokens(vocab_size)
        self._folder = tempfile.TemporaryDirectory(prefix="antiphon-")
        self._result = Path(self._folder.name) / "hidden.npy"
        arguments = [str(source), str(self._result), str(num_layers), str(vocab_size)]
        self._process = subprocess.Popen(
            # -P: nothing in the folder the server was started in takes a library's place.
            [sys.executable, "-P", "-m", "antiphon.engine.native.selftest", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def result(self) -> npt.NDArray[np.float32]:
        """What the layers make of `tokens`: [tokens, hidden]. Raises `LayersUnavailable`."""
        try:
            _, said = self._process.communicate(timeout=_TIMEOUT_SECONDS)
            if self._process.returncode != 0:
                lines = said.decode(errors="replace").strip().splitlines()
                raise LayersUnavailable(lines[-1] if lines else "they ended without a word")
            hidden: npt.NDArray[np.float32] = np.load(self._result)
            return hidden
        except subprocess.TimeoutExpired:
            raise LayersUnavailable("they took too long") from None
        finally:
            self.close()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._folder.cleanup()


def sample_tokens(vocab_size: int) -> list[int]:
    """Any tokens, always the same."""
    tokens: list[int] = np.random.default_rng(_SEED).integers(0, vocab_size, _NUM_TOKENS).tolist()
    return tokens


def compare(
    decoder: Decoder,
    embed: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.float32]],
    tokens: list[int],
    expected: npt.NDArray[np.float32],
) -> Verdict:
    """Run tokens through a decoder, in two chunks, and hold them against `expected`."""
    ids = np.array(tokens, np.int32)
    hidden = np.empty((len(tokens), expected.shape[1]), np.float32)
    blocks = array("i", reversed(range(decoder.num_blocks)))
    no_rows, no_scores = np.empty(0, np.int32), np.empty((0, decoder.vocab_size), np.float32)
    cut = len(tokens) // 2 + 3
    for start, end in ((0, cut), (cut, len(tokens))):
        segments = segments_of([(end - start, start, blocks)])
        decoder.forward(ids[start:end], segments, no_rows, no_scores, hidden[start:end])
    inputs = embed(ids)
    added, wanted = hidden - inputs, expected - inputs
    products = (added * wanted).sum(axis=1)
    sizes = np.linalg.norm(added, axis=1) * np.linalg.norm(wanted, axis=1)
    return Verdict(float((products / np.maximum(sizes, 1e-12)).min()))


def main(source: str, result: str, num_layers: str, vocab_size: str) -> None:
    """Run the layers and keep what they make of the sample."""
    from antiphon.engine.loader import read
    from antiphon.engine.torch.modules import first_layers

    checkpoint = read(source, lambda *_: None)
    tokens = sample_tokens(int(vocab_size))
    hidden = first_layers(checkpoint.config, checkpoint.tensors.get, tokens, int(num_layers))
    np.save(result, hidden.numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
