"""Servers that are told to stop while they make background responses, and what becomes of these."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from crashing import LEASE_SECONDS, Server, Site
from launcher import Launcher

_PATIENCE_SECONDS = 30
#: As shells say of what was told to stop.
_STOPPED = 128 + signal.SIGTERM


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, launcher: Launcher, tmp_path: Path) -> Iterator[Site]:
    """A server that is told to stop, and another on the same database that is not started yet."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    site = Site(launcher, tmp_path, url, survives=True, shutdown_grace_seconds=0.2)
    yield site
    site.close()


@contextmanager
def _up(server: Server, mark: str | None = None) -> Iterator[httpx.Client]:
    server.start(mark)
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
        _until(lambda: _is_up(client))
        yield client


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def _begin(client: httpx.Client, scene: str, kinds: str) -> str:
    """Create a background response, and read until an event of some kind. Its id."""
    body = {"input": scene, "background": True, "stream": True}
    with client.stream("POST", "/v1/responses", json=body) as answer:
        text = ""
        for part in answer.iter_text():
            text += part
            if f"event: {kinds}" in text:
                return "resp_" + text.split("resp_")[1].split('"')[0]
    raise AssertionError(text)


def _ended(client: httpx.Client, id: str) -> dict[str, Any]:
    """A response once it has ended, and the codes of its stream's errors as `errors`."""
    with client.stream("GET", f"/v1/responses/{id}?stream=true") as answer:
        stream = answer.read().decode()
    assert stream.endswith("data: [DONE]\n\n")
    response: dict[str, Any] = client.get(f"/v1/responses/{id}").json()
    lines = [line for line in stream.split("\n") if '"type":"error"' in line and "data: " in line]
    codes = [line.split('"code":"')[1].split('"')[0] for line in lines]
    return {**response, "errors": codes}


def test_what_has_no_output_yet_is_made_by_another(site: Site) -> None:
    assert site.survivor is not None
    with _up(site.mortal) as client:
        id = _begin(client, "silent", "response.in_progress")
    with _up(site.survivor) as client:
        site.mortal.process.signal(signal.SIGTERM)
        assert site.mortal.process.wait() == _STOPPED
        stopped_at = time.monotonic()
        response = _ended(client, id)
        # It was let go of, so that nobody had to wait for its lease to end and then some more.
        assert time.monotonic() - stopped_at < 2 + 3 * LEASE_SECONDS
    assert (response["status"], response["errors"]) == ("completed", [])
    assert [item["content"][0]["text"] for item in response["output"]] == ["at last"]


def test_what_has_output_fails_and_keeps_it(site: Site) -> None:
    assert site.survivor is not None
    with _up(site.mortal) as client:
        id = _begin(client, "endless", "response.output_text.delta")
    site.mortal.process.signal(signal.SIGTERM)
    assert site.mortal.process.wait() == _STOPPED
    with _up(site.survivor) as client:
        response = _ended(client, id)
    assert (response["status"], response["errors"]) == ("failed", ["server_restarted"])
    assert [item["content"][0]["text"] for item in response["output"]] == ["and so on"]


@pytest.mark.parametrize("kinds", ["response.in_progress", "response.output_text.delta"])
def test_an_engine_that_does_not_let_go_shows_in_the_exit_status(site: Site, kinds: str) -> None:
    assert site.survivor is not None
    scene = "silent" if kinds == "response.in_progress" else "endless"
    with _up(site.mortal, "hang") as client:
        id = _begin(client, scene, kinds)
    site.mortal.process.signal(signal.SIGTERM)
    assert site.mortal.process.wait() == 3
    with _up(site.survivor) as client:
        response = _ended(client, id)
    assert response["status"] == ("completed" if scene == "silent" else "failed")
