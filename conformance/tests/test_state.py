"""Cases of what a server keeps, against broken builds; cases of pictures, against a stand-in."""

import pytest
from between import FORGETFUL, Change, Seeing, between

from responses_conformance.cases import load
from responses_conformance.config import Config
from responses_conformance.results import Verdict
from responses_conformance.runner import run

pytestmark = pytest.mark.antiphon


def failed(base_url, wanted):
    """The cases that fail of those that are wanted."""
    config = Config(
        base_url=base_url,
        api_key="sk-conformance-first",
        second_api_key="sk-conformance-second",
        model="scripted",
        model_follows_script=True,
    )
    cases = [case for case in load() if wanted(case)]
    assert cases
    report = run(config, cases)
    errors = [(r.case.id, r.reasons) for r in report.cases if r.verdict is Verdict.ERROR]
    assert errors == []
    return {r.case.id: r.reasons for r in report.cases if r.verdict is Verdict.FAIL}


def test_the_sound_build_passes_the_cases_that_catch_broken_ones(antiphon):
    catching = set.union(*FORGETFUL.values())
    with between(antiphon.base_url, Change()) as url:
        assert failed(url, lambda case: case.id in catching) == {}


@pytest.mark.parametrize("build", FORGETFUL, ids=lambda build: build.__name__)
def test_a_build_that_keeps_things_wrongly_is_caught(antiphon, build):
    with between(antiphon.base_url, build()) as url:
        assert set(failed(url, lambda case: case.id in FORGETFUL[build])) == FORGETFUL[build]


def test_a_server_that_sees_passes_the_cases_of_pictures(antiphon):
    with between(antiphon.base_url, Seeing()) as url:
        assert failed(url, lambda case: case.profile == "media") == {}


def test_a_server_that_does_not_see_fails_them(antiphon):
    seen = {"MEDIA-01", "MEDIA-02", "MEDIA-05", "MEDIA-09"}
    assert set(failed(antiphon.base_url, lambda case: case.id in seen)) == seen
