"""Frames are read as the WHATWG rules say, and judged."""

import pytest

from responses_conformance.findings import Findings
from responses_conformance.frames import read

GOOD = b'event: a\ndata: {"type": "a"}\n\n'


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_is_read(end):
    findings = Findings()
    frames = read((GOOD + b": a comment\n" + GOOD).replace(b"\n", end), findings)
    assert [frame.kind for frame in frames.events] == ["a", "a"]
    assert not findings.found


def test_data_over_several_lines_are_one_event():
    findings = Findings()
    frames = read(b'event: a\ndata: {"type":\ndata: "a"}\n\n', findings)
    assert [frame.data for frame in frames.events] == [{"type": "a"}]
    assert [finding.rule for finding in findings] == ["FRAME-9"]


def test_a_place_is_told_by_its_first_byte():
    findings = Findings()
    read(b": hello\n\n" + GOOD + b"data: nonsense\n\n", findings)
    assert [finding.where for finding in findings] == [f"frame 1, byte {9 + len(GOOD)}"]


def test_numbers_that_are_no_json_are_refused():
    findings = Findings()
    read(b'event: a\ndata: {"type": "a", "x": NaN}\n\n', findings)
    assert [finding.rule for finding in findings] == ["FRAME-1"]
