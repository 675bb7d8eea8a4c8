"""Cases of WebSockets, against a sound server and against broken builds of it."""

import pytest
from socket_server import FAULTS, sockets

from responses_conformance.cases import load
from responses_conformance.config import Config
from responses_conformance.results import Verdict
from responses_conformance.runner import run

pytestmark = pytest.mark.antiphon

KEY = "sk-conformance-first"
#: The cases that fail for each fault.
CAUGHT = {
    "closes after each turn": {"SOCKET-02", "SOCKET-03"},
    "closes after an error": {"SOCKET-04", "SOCKET-06"},
    "forgets what is not stored": {"SOCKET-03", "SOCKET-08"},
    "remembers what failed": {"SOCKET-05"},
    "shares what is not stored": {"SOCKET-04"},
    "answers a warm-up": {"SOCKET-07"},
    "does not name lanes": {"SOCKET-11"},
    "sends no terminal event": {"SOCKET-01", "SOCKET-09", "SOCKET-10"},
    "loses the first delta": {"SOCKET-01"},
    "lets anybody in": {"SOCKET-12"},
    "tells errors as text": {"SOCKET-04", "SOCKET-06"},
    "sends only new input on": {"SOCKET-03"},
}


def failed(base_url, *, only=None, timeout=20):
    """The cases of the profile that fail, with why."""
    config = Config(
        base_url=base_url,
        api_key=KEY,
        model="scripted",
        keys_required=True,
        model_follows_script=True,
        timeout=timeout,
    )
    cases = [case for case in load() if case.profile == "websocket"]
    cases = [case for case in cases if only is None or case.id in only]
    assert cases
    report = run(config, cases)
    errors = [r.reasons for r in report.cases if r.verdict is Verdict.ERROR]
    assert errors == []
    rules = {rule.rule.id: rule.kept for rule in report.rules if rule.verdict is Verdict.FAIL}
    wrong = {result.case.id: result.reasons for result in report.cases}
    return {name: reasons for name, reasons in wrong.items() if reasons}, rules


def test_a_sound_server_passes_all_cases(antiphon):
    with sockets(antiphon.base_url, KEY) as url:
        assert failed(url) == ({}, {})


def test_every_fault_is_one_of_the_stand_in():
    assert set(CAUGHT) == set(FAULTS)


@pytest.mark.parametrize("fault", CAUGHT)
def test_a_broken_socket_is_caught_by_its_cases(antiphon, fault):
    with sockets(antiphon.base_url, KEY, fault) as url:
        cases, _ = failed(url, only=CAUGHT[fault], timeout=5)
    assert set(cases) == CAUGHT[fault]


def test_a_server_without_sockets_fails_and_says_why(antiphon):
    cases, _ = failed(antiphon.base_url, only={"SOCKET-01"})
    assert "is answered with 426" in cases["SOCKET-01"][0]
