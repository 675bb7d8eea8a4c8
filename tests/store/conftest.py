"""The databases that the tests of the store run on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres import Postgres

from antiphon.store.database import Database


def _url(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if kind == "memory":
        yield "sqlite:///:memory:"
    elif kind == "sqlite":
        yield f"sqlite:///{folder / 'state' / 'antiphon.db'}"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        name = server.create(request.getfixturevalue("_template"))
        yield server.url(name)
        server.drop(name)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of each kind."""
    yield from _url(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of each kind that several processes may use."""
    yield from _url(request.param, request, tmp_path)


@pytest.fixture
def opened() -> Iterator[Callable[[str], Database]]:
    """Opens databases that are closed with the test: `opened(url)`."""
    databases: list[Database] = []

    def open_one(url: str) -> Database:
        databases.append(Database.open(url))
        return databases[-1]

    yield open_one
    for database in databases:
        database.close()
