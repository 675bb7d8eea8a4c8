"""The threads of the pool do each piece of work once, however many they are."""

import subprocess
from pathlib import Path

import pytest

from antiphon.engine.kernels.compile import SOURCES, compiler


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_every_piece_is_done_once_and_shares_follow_one_another(tmp_path: Path) -> None:
    command = compiler()
    assert command is not None
    program = tmp_path / "pool_check"
    sources = [str(Path(__file__).with_name("pool_check.cpp")), str(SOURCES / "pool.cpp")]
    options = ["-O2", "-std=c++17", f"-I{SOURCES}", "-pthread", "-o", str(program)]
    subprocess.run([*command, *sources, *options], check=True)
    for threads in (1, 2, 3, 5):
        done = subprocess.run(
            [str(program), str(threads)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{threads} threads: {done.stdout}{done.stderr}"
