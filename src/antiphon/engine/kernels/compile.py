"""Compiles the kernels with the system's C++ compiler.

    python -m antiphon.engine.kernels.compile [DIRECTORY]

Also used by the package's build, so it needs nothing but the standard library.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARY = "_antiphon_kernels.so"
SOURCES = Path(__file__).parent / "native"

_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    # The compiler may fuse no multiplication and addition of its own accord: it would do so in one
    # place and not in another, and results of one row would depend on the rows around it.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-psabi",
)
_AVX2 = ("-O3", "-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni")
#: The portable set takes three times as long to compile at -O3, and is slower.
_COMMON = {name: ("-O2",) for name in ("pool", "weights", "api", "isa_portable")}
#: Sources and their own flags by processor. They are linked in this order. The linker keeps the
#: first copy of what several have compiled of the standard library's templates, so that a set that
#: more processors have must come before one that fewer have.
_UNITS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {**_COMMON, "isa_avx2": _AVX2, "isa_avx512": _AVX512},
    "aarch64": {**_COMMON, "isa_neon": ("-O3", "-march=armv8.2-a+dotprod+fp16")},
}
_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


class CompilationError(Exception):
    """There is no compiler, or it failed. Carries what it said."""


def compiler() -> list[str] | None:
    """The command of the C++ compiler: `$CXX`, or the first of the usual ones there is."""
    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    return None


def build(
    target_dir: Path,
    command: list[str] | None = None,
    machine: str | None = None,
    options: tuple[str, ...] = (),
) -> Path:
    """Compile the library into a directory and return its path.

    `command` is the compiler, `machine` the processor it compiles for, this one's if None;
    `options` go after all others. Raises `CompilationError`.
    """
    command = command or compiler()
    if command is None:
        raise CompilationError("there is no C++ compiler (c++, g++ or clang++, or $CXX)")
    machine = (machine or platform.machine()).lower()
    units = _UNITS.get(_NAMES.get(machine, machine), _COMMON)
    with tempfile.TemporaryDirectory(dir=target_dir) as directory:
        objects = [f"{directory}/{name}.o" for name in units]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            # The last ones take longest.
            tasks = [
                pool.submit(
                    _run,
                    [*command, *_FLAGS, *flags, *options, "-c", f"{SOURCES / name}.cpp", "-o", o],
                )
                for (name, flags), o in reversed(list(zip(units.items(), objects, strict=True)))
            ]
            for task in tasks:
                task.result()
        linked = Path(directory) / LIBRARY
        _run([*command, "-shared", "-pthread", *objects, "-o", str(linked)])
        # In one step: who has the old library open keeps it.
        return linked.replace(target_dir / LIBRARY)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilationError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise CompilationError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


def main() -> None:
    """Compile into a directory, or to where the package looks for the library."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    sys.stdout.write(f"{build(target)}\n")


if __name__ == "__main__":
    main()
