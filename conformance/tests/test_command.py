"""The command."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from replays import replayed

from responses_conformance.cli import main

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_check_says_what_was_seen_where_what_was_required_and_who_breaks():
    said = call("check", TRANSCRIPTS / "invalid" / "ITEM-7-not-closed.sse")
    assert said.exit_code == 1
    for part in ("ITEM-7 at item 0", "seen", "required", "output_item.done", "breaks", "Codex"):
        assert part in said.output


def test_check_names_the_clients_that_need_a_missing_field():
    said = call("check", TRANSCRIPTS / "invalid" / "SHAPE-1-no-total.sse")
    assert "Codex 0.169: the turn fails" in said.output


def test_check_of_a_sound_stream_succeeds():
    assert call("check", TRANSCRIPTS / "valid" / "text.sse").exit_code == 0


@pytest.mark.parametrize("name", ["STR-01", "SEQ-3"])
def test_explain_knows_cases_and_rules(name):
    said = call("explain", name)
    assert said.exit_code == 0
    assert "MUST" in said.output and "Sources" in said.output


def test_explain_of_nothing_fails():
    assert call("explain", "NOTHING-1").exit_code == 1


def test_list_counts():
    said = call("list")
    assert "core" in said.output and "all " in said.output.splitlines()[-1]
    assert "SEQ-3" in call("list", "--rules").output


def test_a_run_fails_or_succeeds_as_the_server_does(tmp_path):
    options = ["--model", "m", "--claim", "core", "--only", "CLIENT-14"]
    with replayed("valid/text") as url:
        assert call("run", "--base-url", url, *options).exit_code == 0
    with replayed("invalid/LIFE-13-vendor-event") as url:
        report = tmp_path / "r.html"
        said = call("run", "--base-url", url, *options, "--report", report)
    assert said.exit_code == 1
    assert "LIFE-13" in said.output and "openai-node" in said.output
    assert report.exists()


def test_a_run_without_a_server_says_so():
    said = call("run", "--base-url", "http://127.0.0.1:9/v1")
    assert said.exit_code == 1
    assert "ConnectError" in said.output


def test_what_is_recorded_of_a_replay_is_the_transcript(tmp_path):
    with replayed("valid/background") as url:
        said = call("record", tmp_path / "a.sse", "--base-url", url, "--behaviour", "text")
    assert "0 findings" in said.output
    assert call("check", "--exact", tmp_path / "a.sse").exit_code == 0
    body = (tmp_path / "a.sse").read_bytes()
    assert b"@retrieved" in body and b"@resumed" in body
