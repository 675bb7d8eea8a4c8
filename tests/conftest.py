"""Fixtures that every part of the tests may use."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import hypothesis
import pytest
from postgres import NoPostgres, Postgres, running_postgres
from serving import Served, scripted, serve

from antiphon.models.base import Model
from antiphon.spec import Contract, packaged_contract
from antiphon.store.database import Database

# How long an example takes says nothing: machines are busy.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for all tests."""
    try:
        with running_postgres() as server:
            yield server
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def _template(postgres: Postgres) -> str:
    """The name of an empty database that is up to date. Copies are made faster than tables."""
    name = postgres.create()
    Database.open(postgres.url(name)).close()
    return name


@pytest.fixture
def postgres_urls(postgres: Postgres, _template: str) -> Iterator[Callable[[], str]]:
    """Makes empty databases on PostgreSQL: `postgres_urls()` is the URL of one."""
    names: list[str] = []

    def make() -> str:
        names.append(postgres.create(_template))
        return postgres.url(names[-1])

    yield make
    for name in names:
        postgres.drop(name)


@pytest.fixture
def postgres_url(postgres_urls: Callable[[], str]) -> str:
    """The URL of an empty database on PostgreSQL."""
    return postgres_urls()
