"""The library is built where there is a compiler, and its absence is explained."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.engine.kernels import structs
from antiphon.engine.kernels.compile import SOURCES, CompilationError, build, compiler
from antiphon.engine.kernels.decoder import KernelError
from antiphon.engine.kernels.library import PATH, Kernels, KernelsUnavailable, load


@pytest.mark.skipif(
    compiler() is None or os.environ.get("ANTIPHON_NO_KERNELS") == "1",
    reason="there is no C++ compiler, or the kernels are switched off",
)
def test_the_kernels_are_built_where_there_is_a_compiler() -> None:
    assert load().isa in load().isas()


def test_kernels_may_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_NO_KERNELS", "1")
    with pytest.raises(KernelsUnavailable, match="switched off"):
        load()


def test_a_library_that_is_missing_or_none_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_NO_KERNELS", raising=False)
    with pytest.raises(KernelsUnavailable, match="not compiled"):
        load(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(KernelsUnavailable, match="cannot be loaded"):
        load(tmp_path / "text.so")


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_a_library_of_another_interface_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_NO_KERNELS", raising=False)
    source, library = tmp_path / "old.cpp", tmp_path / "old.so"
    header = (SOURCES / "antiphon_kernels.h").read_text()
    functions = dict.fromkeys(re.findall(r"\b(ak_\w+)\(", header))
    bodies = "".join(f"int {name}() {{ return 99; }}\n" for name in functions)
    source.write_text(f'extern "C" {{\n{bodies}}}\n')
    command = compiler()
    assert command is not None
    subprocess.run([*command, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with pytest.raises(KernelsUnavailable, match=f"interface 99 instead of {structs.ABI}"):
        load(library)


def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    complaint = "import sys; sys.exit('no room for ' + sys.argv[-1].rpartition('/')[2])"
    with pytest.raises(CompilationError, match=r"failed:\nno room for \w+\.o"):
        build(tmp_path, [sys.executable, "-c", complaint])
    with pytest.raises(CompilationError, match="cannot be run"):
        build(tmp_path, [str(tmp_path / "none")])
    assert not list(tmp_path.iterdir())


def test_no_compiler_is_found_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert compiler() is None
    with pytest.raises(CompilationError, match="no C\\+\\+ compiler"):
        build(tmp_path)
    monkeypatch.setenv("CXX", "ccache g++")
    assert compiler() == ["ccache", "g++"]


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    names = [name for name in vars(structs) if name.startswith("Ak")]
    lines = ["#include <stdio.h>", '#include "antiphon_kernels.h"', "int main() {"]
    expected = []
    for name in names:
        kind = getattr(structs, name)
        c_name = "ak_" + name.removeprefix("Ak").lower()
        lines.append(f'printf("%zu\\n", sizeof({c_name}));')
        expected.append(ctypes.sizeof(kind))
        for field, _ in kind._fields_:
            lines.append(f'printf("%zu\\n", offsetof({c_name}, {field}));')
            expected.append(getattr(kind, field).offset)
    source, program = tmp_path / "sizes.cpp", tmp_path / "sizes"
    source.write_text("\n".join([*lines, "}"]))
    command = compiler()
    assert command is not None
    subprocess.run([*command, f"-I{SOURCES}", str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == expected
    assert len(names) == 8


def test_unknown_instruction_sets_and_no_threads_are_refused(kernels: Kernels) -> None:
    before = kernels.isa
    with pytest.raises(KernelError, match="instruction set mmx"):
        kernels.use_isa("mmx")
    with pytest.raises(KernelError, match="0 threads"):
        kernels.set_threads(0)
    assert kernels.isa == before


@pytest.mark.skipif(not PATH.exists(), reason="the kernels were not compiled")
def test_a_forked_process_has_threads_of_its_own() -> None:
    # It is another process that forks: this one has threads of others than the kernels.
    program = """
import os
from antiphon.engine.kernels.library import load
import numpy as np

def product():
    weight = kernels.plain(np.eye(8, dtype=np.float32))
    return kernels.linear(weight, np.ones((5, 8), np.float32)).sum()

kernels = load()
kernels.set_threads(3)
assert product() == 40
child = os.fork()
if child == 0:
    os._exit(7 if product() == 40 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert product() == 40
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
