"""The suite's own cases are whole."""

import json
import re

import pytest

from responses_conformance.cases import PROFILES, CaseError, behaviours, load

CASES = load()


def all_steps(steps):
    for step in steps:
        yield step
        yield from all_steps([*step.get("parallel", []), *step.get("steps", [])])


def test_there_are_cases_of_every_profile():
    assert len(CASES) >= 150
    assert {case.profile for case in CASES} == set(PROFILES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_names_its_source_and_is_one_sentence(case):
    assert case.source
    assert re.search(r"\b(MUST|SHOULD)\b", case.requirement)
    assert case.requirement.endswith(".") and len(case.title) <= 80


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_uses_only_the_prompts_of_the_behaviours_that_it_names(case):
    used = set(re.findall(r"\{\{prompt\.(\w+)\}\}", json.dumps(case.steps)))
    assert used <= set(behaviours())
    if used - {"text"}:
        assert used - set(case.behaviours) <= {"text"}


def test_no_more_than_three_cases_share_their_steps():
    seen = {}
    for case in CASES:
        # Values, whatever they are, are left out of what is compared.
        steps = [
            {key: value for key, value in step.items() if key != "each"} for step in case.steps
        ]
        seen.setdefault(json.dumps(steps, sort_keys=True), []).append(case.id)
    assert [ids for ids in seen.values() if len(ids) > 3] == []


def test_every_behaviour_is_used():
    used = {name for case in CASES for name in case.behaviours}
    assert used == set(behaviours())


def test_prompts_can_be_told_apart():
    prompts = [behaviour.prompt for behaviour in behaviours().values()]
    for prompt in prompts:
        assert [other for other in prompts if other in prompt] == [prompt]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {id: X, title: t}", "requirement"),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: all, steps: [1]}",
            "all",
        ),
        ("- {id: X, titel: t}", "titel"),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: core, rules: [Z-1],"
            " steps: [{request: GET /models}]}",
            "Z-1",
        ),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: core,"
            " steps: [{reqest: GET /models}]}",
            "reqest",
        ),
        (
            "- {id: STR-01, title: t, requirement: It MUST., source: [a], profile: core,"
            " steps: [{request: GET /models}]}",
            "STR-01 is also",
        ),
        ("- [", "while parsing"),
        ("- 1", "list of cases"),
        ("id: X", "list of cases"),
        (
            "- {id: X, title: t, requirement: 5, source: [a], profile: core,"
            " steps: [{request: GET /models}]}",
            "requirement is no text",
        ),
        (
            "- {id: X, title: t, requirement: It MUST., source: a, profile: core,"
            " steps: [{request: GET /models}]}",
            "source is no list",
        ),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: core,"
            " steps: [request]}",
            "'request' is none",
        ),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: core,"
            " steps: [{request: GET /models, expect: {bdoy: {a: 1}}}]}",
            "cannot look at bdoy",
        ),
        (
            "- {id: X, title: t, requirement: It MUST., source: [a], profile: core,"
            " steps: [{request: GET /models, premise: 3}]}",
            "premise is no map",
        ),
    ],
)
def test_a_case_that_cannot_be_read_is_refused_by_name(tmp_path, text, said):
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(CaseError, match=said):
        load([tmp_path])
