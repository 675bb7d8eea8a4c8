"""Fixtures that every part of the tests may use."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from serving import Served, scripted, serve

from antiphon.models.base import Model
from antiphon.spec import Contract, packaged_contract


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The document as it is packaged."""
    return packaged_contract()


@pytest.fixture
def server() -> Iterator[Callable[..., Served]]:
    """Starts servers that end with the test: `server(model, ..., strict=True)`."""
    with ExitStack() as stack:

        def start(*models: Model, **settings: object) -> Served:
            return stack.enter_context(serve(*models, **settings))

        yield start


@pytest.fixture(scope="session")
def plain() -> Iterator[Served]:
    """A server that answers "ok", for tests that look at one request."""
    with serve(scripted({"text": "ok"})) as served:
        yield served
