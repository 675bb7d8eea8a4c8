"""The parts that grammars of turns are written from."""

import json
import re
from typing import Any

import pytest

from antiphon.formats.grammars.held import Document, held
from antiphon.formats.grammars.lark import Lark, Piece, slashed, without
from antiphon.formats.grammars.patterns import FORMAT_PATTERNS, whole_pattern
from antiphon.schemas import FORMATS, validate_answer

MOST = 2**53 - 1


@pytest.mark.parametrize(
    "pattern",
    [
        *("a", "^a", "a$", "^a$", "^a|b$", "(a|b)c", "[|]x", r"a\|b", r"\$$", "^$", "", "^a{2,3}"),
        *(r"\d+", r"^[\d,]+$", r"\D\w", r"^a\/b$", r"[^\]]z", "a|^b|c$", r"\\$"),
    ],
)
def test_a_pattern_is_found_in_a_string_that_is_whole(pattern: str):
    whole = re.compile(whole_pattern(pattern).replace("(?s:.*)", "(?:.|\n)*"))
    texts = ["", "a", "b", "ab", "ba", "aa", "aaa", "ac", "x|", "|x", "a|b", "$", "x$", "1", "1,2"]
    texts += ["a1", "a/b", "z", "az", "xaz", "c\n", "\na", "xbc", "\\", "a\\", "٣", "ä1"]
    for text in texts:
        found = validate_answer(json.dumps(text), {"pattern": pattern}) is None
        assert bool(whole.fullmatch(text)) == found, text


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", ["2024-02-29", "2000-02-29", "1999-12-31"], ["2023-02-29", "1900-02-29", "1-1-1"]),
        ("time", ["12:30:00Z", "23:59:59.123+01:00"], ["24:00:00Z", "12:30:00", "12:60:00Z"]),
        ("date-time", ["2024-02-29T00:00:00Z"], ["2024-02-30T00:00:00Z", "2024-02-29"]),
        ("duration", ["P1Y2M3D", "PT5M", "P2W", "P1DT2H3M"], ["P", "PT", "1D", "P1D2W"]),
        ("email", ["ada.l+x@mail.example.org"], ["@x.y", "a@", "a b@x.yz"]),
        ("hostname", ["localhost", "a-b.example.org"], ["-a", "a..b", "a_b"]),
        ("ipv4", ["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
        ("ipv6", ["::", "::1", "2001:db8::1", "1:2:3:4:5:6:7:8"], ["1:2", ":::", "g::1"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567", "x"]),
        ("uri", ["https://example.org/a?b=c#d", "urn:isbn:0451450523"], ["example.org", "//x", ""]),
    ],
)
def test_usual_values_of_a_format_may_be_written_and_wrong_ones_not(
    name: str, good: list[str], bad: list[str]
):
    pattern = re.compile(FORMAT_PATTERNS[name])
    for text in good:
        assert pattern.fullmatch(text), text
        assert validate_answer(json.dumps(text), {"format": name}) is None, text
    for text in bad:
        assert not pattern.fullmatch(text), text


def test_every_format_that_is_taken_can_be_written():
    assert set(FORMAT_PATTERNS) == FORMATS


def test_formats_are_patterns_in_a_grammar():
    schema = {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "date"},
            "both": {"format": "uuid", "pattern": "^a"},
        },
    }
    found = held(schema, strict=True)["properties"]
    assert found["format"] == {"type": "string", "pattern": f"^(?:{FORMAT_PATTERNS['date']})$"}
    assert found["both"]["pattern"] == "^a"
    assert found["both"]["allOf"] == [{"pattern": f"^(?:{FORMAT_PATTERNS['uuid']})$"}]
    assert schema["properties"]["format"] == {"type": "string", "format": "date"}


def test_an_object_of_too_many_ways_is_any_object_unless_strict():
    many = {"type": "object", "properties": {f"p{n}": {} for n in range(300)}}
    assert held(many, strict=False) == {"type": "object"}
    assert held(many, strict=True) == many


def test_a_part_of_a_schema_stands_alone():
    root = {
        "properties": {
            "a": {"items": {"$ref": "#/$defs/t"}},
            "b": {"$ref": "#/properties/a"},
            "$ref": {"type": "string"},
        },
        "$defs": {"t": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "null"}},
    }
    document = Document(root)
    alone = document.alone(root["properties"]["a"])
    assert alone["items"] == {"$ref": "#/$defs/root/$defs/t"}
    moved = alone["$defs"]["root"]
    assert moved["$defs"]["t"]["items"] == {"$ref": "#/$defs/root"}
    assert moved["properties"]["$ref"] == {"type": "string"}
    assert validate_answer("[[{}]]", alone) is None
    assert document.resolved(root["properties"]["b"]) is root["properties"]["a"]
    assert document.alone({"type": "null"}) == {"type": "null"}
    kinds = document.variants({"anyOf": [{"$ref": "#/$defs/n"}, {"type": ["string", "integer"]}]})
    assert [one["type"] for one in kinds] == ["null", "string", "integer"]
    kinds = document.variants({"enum": ["a", 1, True, None, "b"]})
    assert [(one["type"], one["enum"]) for one in kinds] == [
        ("string", ["a", "b"]),
        ("number", [1]),
        ("boolean", [True]),
        ("null", [None]),
    ]


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({}, -MOST, MOST),
        ({"minimum": 0}, 0, MOST),
        ({"exclusiveMaximum": 10}, -MOST, None),
        ({"minimum": 10**17}, 10**17, None),
        ({"maximum": -(10**17)}, None, -(10**17)),
        ({"enum": [10**17]}, None, None),
        ({"allOf": [{"type": "integer", "minimum": 10**17}]}, None, None),
        ({"type": ["integer", "null"]}, -MOST, MOST),
        ({"type": ["integer", "number"]}, None, None),
        ({"type": "number"}, None, None),
        ({"maxLength": 2.0}, -MOST, MOST),
    ],
    ids=str,
)
def test_integers_have_bounds_and_no_others_than_they_could(
    schema: dict[str, Any], low: int | None, high: int | None
):
    found = held({"type": "integer", **schema}, strict=True)
    assert (found.get("minimum"), found.get("maximum")) == (low, high)
    inner = found.get("allOf", [{}])[0]
    assert "maximum" not in inner
    assert found.get("maxLength", 2) == 2 and isinstance(found.get("maxLength", 2), int)


def test_a_marker_is_tokens_and_texts_up_to_the_end_of_the_turn():
    lark = Lark({"<a>": 5, "<a><b>": 6, "<end>": 7}, {7})
    assert lark.pieces("x<a><b>\n<a>") == [
        Piece("x", False),
        Piece("<a><b>", True),
        Piece("\n", False),
        Piece("<a>", True),
    ]
    assert lark.spelled('"<a>y<end>z') == '"\\"" <[5]> "y"'
    assert lark.spelled("") == ""


def test_the_same_rule_is_written_once():
    lark = Lark({}, ())
    assert lark.rule('"a"') == lark.rule('"a"') != lark.terminal('"a"')
    assert lark.other("start: x") == lark.other("start: x") != lark.other("start: y")
    grammars = json.loads(lark.text("r0"))["grammars"]
    assert [one.get("name") for one in grammars] == [None, "own_0", "own_1"]
    assert grammars[1]["lark_grammar"] == "start: x"


def test_regexes_stand_between_slashes():
    assert slashed(r"a/b\/c\\/" + "\n") == r"/a\/b\/c\\\/\n/"
    expression = without(["</a>", "b+"])
    assert r"<\/a>|b\+" in expression and expression.startswith("/(?s:.*)/ & ~/")
