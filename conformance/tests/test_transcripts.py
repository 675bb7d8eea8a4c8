"""The transcripts are the suite's own test: valid ones break no rule, invalid ones exactly one."""

import json
from pathlib import Path

import make
import pytest

from responses_conformance.rules.applying import of_stream
from responses_conformance.rules.catalogue import rules
from responses_conformance.schemas import Schemas
from responses_conformance.transcripts import Transcript, judge, load, parse

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
VALID = sorted((TRANSCRIPTS / "valid").glob("*.sse"))
INVALID = sorted((TRANSCRIPTS / "invalid").glob("*.sse"))


def rule_of(file):
    """The rule that an invalid transcript is named after."""
    family, number, *_ = file.stem.split("-")
    return f"{family}-{number}"


@pytest.fixture(scope="module")
def schemas():
    return Schemas()


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.stem)
def test_a_valid_transcript_breaks_no_rule(file, schemas):
    assert list(judge(load(file), schemas)[0]) == []


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.stem)
def test_an_invalid_transcript_breaks_exactly_its_rule(file, schemas):
    exact = rules()[rule_of(file)].level == "exact"
    findings = list(judge(load(file), Schemas(exact=True) if exact else schemas)[0])
    assert {finding.rule for finding in findings} == {rule_of(file)}
    assert all(finding.where and finding.seen for finding in findings)


@pytest.mark.parametrize(
    "file", [f for f in VALID if not f.stem.startswith("made_")], ids=lambda file: file.stem
)
def test_what_antiphon_sent_is_exact(file):
    assert list(judge(load(file), Schemas(exact=True))[0]) == []


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.stem)
def test_the_rule_that_a_stream_breaks_is_one_it_was_judged_by(file, schemas):
    judged = judge(load(file), schemas)[1]
    if judged is not None and rule_of(file) not in ("FOLD-3", "FOLD-4"):  # They need more.
        assert rule_of(file) in of_stream(judged, whole=True, left=False)


def test_every_rule_is_broken_by_some_transcript():
    # What antiphon's whole document is needed for is tried where exchanges are judged by it.
    assert {rule_of(file) for file in INVALID} == set(rules()) - {"SHAPE-2", "SHAPE-3"}


def test_the_official_end_of_a_stream_without_done_is_required_of_nobody(schemas):
    official = load(TRANSCRIPTS / "invalid" / "FRAME-7-no-done.sse")
    assert list(judge(official, schemas)[0]) == []


def test_what_one_snapshot_lacks_is_a_fault_of_its_shape_and_no_change(schemas):
    body = load(TRANSCRIPTS / "valid" / "text.sse").body
    first, rest = body.split(b"\n\n", 1)
    event = json.loads(first.partition(b"data: ")[2])
    del event["response"]["created_at"]
    first = b"event: response.created\ndata: " + json.dumps(event).encode()
    headers = {"content-type": "text/event-stream"}
    findings = judge(Transcript(first + b"\n\n" + rest, headers=headers), schemas)[0]
    assert {finding.rule for finding in findings} == {"SHAPE-1"}


def test_undeclared_fields_break_the_exact_shapes_alone():
    made = load(TRANSCRIPTS / "valid" / "made_unknown_fields.sse")
    assert {f.rule for f in judge(made, Schemas(exact=True))[0]} == {"SHAPE-2"}


def test_the_transcripts_are_those_that_are_made():
    made = make.files()
    assert [file for file in made if file.read_bytes() != made[file]] == []
    assert set(INVALID) == {file for file in made if file.parent.name == "invalid"}


@pytest.mark.parametrize("file", [*VALID, *INVALID], ids=lambda file: file.stem)
def test_a_transcript_is_read_as_it_was_written(file):
    transcript = load(file)
    assert parse(transcript.written()) == transcript
