"""Comparisons with schemas: that they are right, and that none holds up anybody else."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from said import in_a_loop

from antiphon.comparing import ComparedHere, Comparer
from antiphon.schemas import SchemaLimits

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}
#: Each layer of the text doubles the work.
DOUBLING = {
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]}
                for _ in range(2)
            ]
        }
    },
    "$ref": "#/$defs/node",
}
LARGE = {"type": "array", "items": CITY}


def nested(layers: int) -> str:
    return '{"a":' * layers + "{}" + "}" * layers


@pytest.fixture
def comparer() -> Comparer:
    return Comparer(processes=1, seconds=30)


@pytest.mark.parametrize(
    ("text", "schema", "fits"),
    [
        ('{"city":"Oslo"}', CITY, True),
        ('{"city":5}', CITY, False),
        ('{"next":{"next":{}}}', TREE, True),
        ('{"next":{"next":5}}', TREE, False),
        ("{", TREE, False),
        (json.dumps([{"city": "\u00c5\U0001f600"}] * 20_000), LARGE, True),
        (json.dumps([{"city": "x"}] * 20_000 + [{}]), LARGE, False),
        ('{"p":"a\\n"}', {"properties": {"p": {"pattern": "^a\\n$"}}}, True),
        ("5.5", {"$ref": "#/$defs/n", "$defs": {"n": {"multipleOf": 1}}}, False),
    ],
)
@in_a_loop
async def test_here_and_elsewhere_a_text_is_compared_in_the_same_way(
    comparer: Comparer, text: str, schema: Any, fits: bool
):
    assert (await comparer.compare(text, schema) is None) == fits
    await comparer.close()


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"pattern": "("}}}, ("/properties/a", "pattern")),
        ({"items": {"patternProperties": {"^a$": {}, "[": {}}}}, ("/items", "patternProperties")),
        ({"$defs": {"a": {"pattern": "((a{100}){100}){100}"}}}, ("/$defs/a", "pattern")),
        ({"properties": {"a": {"pattern": "^(?=a)\\p{L}{2,5}$"}}}, None),
        ({"properties": {"pattern": {"type": "string"}}, "const": {"pattern": "("}}, None),
        (CITY, None),
    ],
)
@in_a_loop
async def test_jso_06_patterns_that_cannot_be_used_are_named(
    comparer: Comparer, schema: Any, place: tuple[str, str] | None
):
    for comparing in (comparer, ComparedHere()):
        invalid = await comparing.find_invalid([(schema, False)], SchemaLimits())
        error = None if invalid is None else invalid.error
        assert (None if error is None else (error.pointer, error.keyword)) == place
    await comparer.close()


@pytest.mark.parametrize("number", [0, 7, 299])
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({**CITY, "required": []}, ("", "required")),
        ({**CITY, "properties": {"city": {"type": "word"}}}, ("/properties/city", "type")),
        ({**CITY, "properties": {"city": {"pattern": "("}}}, ("/properties/city", "pattern")),
        ({**CITY, "description": "x" * 300_000}, ("", "")),
    ],
)
@in_a_loop
async def test_of_many_schemas_the_one_that_is_not_taken_is_told(
    comparer: Comparer, number: int, wrong: Any, place: tuple[str, str]
):
    schemas: list[tuple[Any, bool]] = [(CITY, True)] * 300
    schemas[number] = (wrong, True)
    for comparing in (comparer, ComparedHere()):
        invalid = await comparing.find_invalid(schemas, SchemaLimits())
        assert invalid is not None and invalid.number == number
        assert (invalid.error.pointer, invalid.error.keyword) == place
    await comparer.close()


@pytest.mark.parametrize("number", [1, 300])
@in_a_loop
async def test_few_and_many_schemas_are_taken(comparer: Comparer, number: int):
    for comparing in (comparer, ComparedHere()):
        assert await comparing.find_invalid([(CITY, True)] * number, SchemaLimits()) is None
    await comparer.close()


@in_a_loop
async def test_jso_06_patterns_without_end_are_given_up():
    comparer = Comparer(processes=1, seconds=0.3)
    patterns = {f"a{n}": {"pattern": f"\\pL{{1,50}}x{{{n}}}"} for n in range(1, 2000)}
    asked = [(CITY, True), ({"properties": patterns}, False), (CITY, True)]
    invalid = await comparer.find_invalid(asked, SchemaLimits())
    assert invalid is not None and invalid.number == 1
    assert "0.3 s" in str(invalid.error)
    await comparer.close()


@in_a_loop
async def test_jso_06_a_comparison_without_end_is_given_up_and_holds_nobody_up():
    comparer = Comparer(processes=1, seconds=0.3)
    comparing = asyncio.create_task(comparer.compare(nested(60), DOUBLING))
    longest, last = 0.0, time.monotonic()
    while not comparing.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert "0.3 s" in (await comparing or "")
    assert longest < 0.5
    assert await comparer.compare('{"next":{}}', TREE) is None
    await comparer.close()


@in_a_loop
async def test_comparisons_share_processes_and_get_their_own_answers(comparer: Comparer):
    texts = [json.dumps({"next": {"next": number}}) for number in range(20)]
    answers = await asyncio.gather(*(comparer.compare(text, TREE) for text in texts))
    assert all(f"{number} is not" in (answer or "") for number, answer in enumerate(answers))
    await comparer.close()


@in_a_loop
async def test_a_comparison_that_nobody_waits_for_disturbs_no_other():
    comparer = Comparer(processes=1, seconds=0.3)
    comparing = asyncio.create_task(comparer.compare(nested(60), DOUBLING))
    while not _children():
        await asyncio.sleep(0.01)
    comparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await comparing
    assert "5 is not" in (await comparer.compare('{"next":5}', TREE) or "")
    await comparer.close()


@in_a_loop
async def test_closing_stops_what_is_being_compared():
    comparer = Comparer(processes=1, seconds=30)
    comparing = asyncio.create_task(comparer.compare(nested(60), DOUBLING))
    while not _children():
        await asyncio.sleep(0.01)
    await comparer.close()
    assert not _children()
    with pytest.raises(asyncio.CancelledError):
        await comparing


@in_a_loop
async def test_a_process_that_was_killed_is_replaced(comparer: Comparer):
    assert await comparer.compare("{}", TREE) is None
    (child,) = _children()
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert await comparer.compare("{}", TREE) is None
    await comparer.close()


def _children() -> set[int]:
    """The processes that this one began and that are alive."""
    begun_by = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(child) for file in begun_by for child in file.read_text().split()}
