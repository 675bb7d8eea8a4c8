"""Where the servers of these tests store responses."""

from pathlib import Path
from typing import Any

import pytest


def _settings(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        return {"state": kind, "database_url": url, "data_dir": folder}
    return {"state": kind, "data_dir": folder}


@pytest.fixture(params=["memory", "sqlite"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of storage in memory, and in a file."""
    return _settings(request.param, request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def every_state(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of every kind of storage."""
    return _settings(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def lasting_state(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of storage that outlives the server."""
    return _settings(request.param, request, tmp_path)
