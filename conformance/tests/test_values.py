"""Paths, templates and tests of values."""

import pytest

from responses_conformance.values import Missing, Unreadable, at, filled, fits, mistakes

OUTPUT = {"output": [{"type": "message", "id": "m"}, {"type": "call", "id": "c", "n": [1, 2]}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("output[0].id", "m"),
        ("output[-1].id", "c"),
        ("output[type=call].n[1]", 2),
        ("output[*].id", ["m", "c"]),
        ("output[*type=call].n[0]", [1]),
        ("output[*type=none].id", []),
        ("", OUTPUT),
    ],
)
def test_a_path_leads_to_its_value(path, value):
    assert at(OUTPUT, path) == value


@pytest.mark.parametrize(
    "path", ["x", "output[2]", "output[type=none]", "output.id", "output[*].n"]
)
def test_a_path_that_leads_nowhere_says_so(path):
    with pytest.raises(Missing, match=path.split("[", maxsplit=1)[0]):
        at(OUTPUT, path)


def test_holes_are_filled_with_values_of_any_type():
    scope = {"a": {"n": 5, "l": [1, 2]}, "b": "x"}
    assert filled("{{a.n}}", scope) == 5
    assert filled("{{a.n}} and {{b}}", scope) == "5 and x"
    assert filled([0, "{{*a.l}}", "{{a.l}}"], scope) == [0, 1, 2, [1, 2]]
    assert filled({"k": "{{b}}", "gone": "$absent"}, scope) == {"k": "x"}
    assert filled("{{letters:3}}", scope) == "aaa"


@pytest.mark.parametrize(
    ("value", "wanted", "fit"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, True),
        (None, {"$absent": True}, True),
        (0, {"$absent": True}, False),
        ("abc", {"$matches": "^a"}, True),
        ("abc", {"$has": "b"}, True),
        ([1, 2], {"$has": 2}, True),
        ([1, 2], {"$has": {"$min": 3}}, False),
        ([1, 2], {"$count": 2}, True),
        ([1, 2], {"$count": {"$min": 3}}, False),
        ([1, 1], {"$unique": True}, False),
        ([], {"$all": 5}, True),
        ([5, 6], {"$all": 5}, False),
        ([5, 6], {"$any": 6}, True),
        (5, {"$min": 1, "$max": 4}, False),
        (True, {"$type": "integer"}, False),
        (1.5, {"$type": ["integer", "number"]}, True),
        ('{"a": 1}', {"$json": {"a": 1}}, True),
        ('{"a": 1', {"$json": {}}, False),
        ('{"a": 1}', {"$json": {"$schema": {"required": ["b"]}}}, False),
        ({"a": 1}, {"$fields": {"a": 1}}, True),
        ("x", {"$in": ["y", {"$matches": "x"}]}, True),
        ("x", {"$not": "x"}, False),
    ],
)
def test_a_value_fits_or_does_not(value, wanted, fit):
    assert fits(value, wanted) is fit


def test_a_mistake_names_the_place_what_was_seen_and_what_was_required():
    assert mistakes({"a": 1}, {"a": 2, "b": {"$absent": True}}) == ["a is 1 (required: 2)"]
    assert "there is no b" in mistakes({"a": 1}, {"b": 1})[0]


def test_an_unknown_test_is_refused():
    with pytest.raises(Unreadable):
        fits(1, {"$greater": 0})
