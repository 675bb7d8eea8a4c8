"""The kernels for these tests, on every instruction set that this processor has."""

import os
from collections.abc import Iterator

import pytest

from antiphon.engine.kernels.library import Kernels, KernelsUnavailable, load


def _loaded() -> Kernels:
    try:
        return load()
    except KernelsUnavailable as error:
        pytest.skip(str(error))


def _isas() -> list[str]:
    try:
        return load().isas()
    except KernelsUnavailable:
        return ["none"]


@pytest.fixture(params=_isas())
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    """The kernels, on two threads, with each instruction set in turn."""
    kernels = _loaded()
    kernels.set_threads(2)
    kernels.use_isa(request.param)
    yield kernels
    kernels.use_isa(kernels.isas()[0])
    kernels.set_threads(os.cpu_count() or 1)
