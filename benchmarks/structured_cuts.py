"""Outputs in every dialect that are cut at random: whether what is read depends on the cuts."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from figure import Figure

from antiphon.formats.dialects.families import DIALECTS

_WANTED = 20_000


def cuts() -> Iterator[Figure]:
    """How many outputs were cut, and how many dialects read some of them otherwise for it."""
    tests = Path(__file__).resolve().parent.parent / "tests"
    sys.path += [str(tests), str(tests / "formats")]
    parser_cuts = importlib.import_module("test_parser_cuts")
    share = -(-_WANTED // len(DIALECTS))
    checked, wrong = 0, 0
    for name in DIALECTS:
        try:
            checked += parser_cuts.check_turns(name, share // 2)
            checked += parser_cuts.check_scraps(name, share - share // 2)
        except AssertionError as error:
            print(f"    {name}: {error}")
            wrong += 1
    yield Figure(f"outputs cut at random, in {len(DIALECTS)} dialects", checked, "", _WANTED, True)
    yield Figure("dialects in which it mattered", wrong, "", 0)
