"""The kernels on 64-bit ARM, in an emulator: their own check, compiled for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from antiphon.engine.kernels.compile import SOURCES, build

COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
#: Where the compiler's package puts ARM's C library.
ROOT = "/usr/aarch64-linux-gnu"


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"needs {COMPILER}")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"needs {EMULATOR}")
def test_neon_and_portable_kernels_work_on_arm(tmp_path: Path) -> None:
    # What it ships with, -O3, takes a minute and more to compile.
    library = build(tmp_path, [COMPILER], "aarch64", ("-O1",))
    program = tmp_path / "selfcheck"
    source = Path(__file__).with_name("selfcheck.cpp")
    options = ["-std=c++17", f"-I{SOURCES}", f"-Wl,-rpath,{tmp_path}", "-o", str(program)]
    subprocess.run([COMPILER, str(source), str(library), *options], check=True)
    done = subprocess.run(
        [EMULATOR, "-L", ROOT, str(program)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["neon", "portable"]), done.stderr
