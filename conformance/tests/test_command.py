"""The command."""

import socket
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


def test_explain_takes_an_id_however_it_is_written():
    assert "Numbers MUST have no gap" in call("explain", "seq-3").output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "STR-01", "--only", "NOPE-1"], "--only NOPE-1"),
        (["--report", "r.txt"], "r.txt: a report is one of .json"),
        (["--report", "/proc/nowhere/r.html"], "/proc/nowhere/r.html"),
        (["--report", "folder.html"], "folder.html: no file can be written there"),
        (["--timeout", "-1"], "timeout: -1.0 is not above 0"),
        (["--api-key", "sk-é"], "printable ASCII"),
        (["--base-url", "nonsense"], "nonsense is no http"),
        (["--cases", "empty"], "there is no *.yaml"),
        (["--expected-failures", "expected.yaml"], "there is no case or rule NOPE-2"),
        (["--config", "nothing.toml"], "nothing.toml"),
        (["--start", "no-such-program"], "no-such-program"),
        (["--start", "false"], "it ended with 1: it said nothing"),
    ],
)
def test_what_a_run_cannot_use_is_told_before_anything_is_sent(
    tmp_path, monkeypatch, options, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "expected.yaml").write_text("NOPE-2: not yet\n", encoding="utf-8")
    result = call("run", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", *options)
    assert result.exit_code == 1
    assert said in result.output and "ConnectError" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b": @status x\n\n", "@status is no JSON"),
        (b': @status "x"\n\n', "@status is no number"),
        (b": @resumed x\n\n", "@resumed x is no number"),
        (b": @colour red\n\n", "@colour is not known"),
        (b": @header \xff: x\n\n", "LIFE-3"),
        (b": @header content-type: application/json\n\n<html>", "it is no JSON"),
        (b": @status 502\n\n<html>", "FAULT-1"),
        (b"\x7fELF\x00\x01", "FRAME-6"),
        (b"", "LIFE-3"),
    ],
)
def test_check_says_of_any_file_what_is_wrong(tmp_path, content, said):
    (tmp_path / "a.sse").write_bytes(content)
    result = call("check", tmp_path / "a.sse")
    assert result.exit_code == 1
    assert said in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "99999"], "0<=x<=65535"),
        (["--base-url", "nonsense"], "nonsense is no http"),
        (["--port", "taken"], "in use"),
    ],
)
def test_what_capture_cannot_use_is_told(tmp_path, options, said):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = [port if option == "taken" else option for option in options]
        told = ["--base-url", "http://127.0.0.1:9/v1", "--client", "c", "--version", "1"]
        result = call("capture", tmp_path, *told, *options)
    assert result.exit_code != 0 and said in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_folder_is_no_transcript(tmp_path):
    for command in ("check", "replay"):
        result = call(command, tmp_path)
        assert result.exit_code == 1 and "directory" in result.output


@pytest.mark.parametrize(("body", "said"), [("[1]", "must be a JSON object"), ("{", "body.json")])
def test_only_an_object_can_be_recorded(tmp_path, body, said):
    (tmp_path / "body.json").write_text(body, encoding="utf-8")
    result = call("record", tmp_path / "a.sse", "--model", "m", "--body", tmp_path / "body.json")
    assert result.exit_code == 1 and said in result.output
    assert not (tmp_path / "a.sse").exists()


def test_record_asks_the_first_model_and_says_what_is_wrong_with_what_came(tmp_path):
    with replayed("invalid/TEXT-1-lost-delta") as url:
        said = call("record", tmp_path / "a.sse", "--base-url", url, "--behaviour", "text")
    assert said.exit_code == 0
    assert "status 200, 1 findings (TEXT-1)" in said.output
    assert b'"model": "made-by-hand"' in (tmp_path / "a.sse").read_bytes()


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    with replayed("valid/text") as url:
        file = tmp_path / "nowhere" / "a.sse"
        said = call("record", file, "--base-url", url, "--behaviour", "text")
    assert said.exit_code == 1 and "No such file" in said.output


def test_what_is_recorded_of_a_replay_is_the_transcript(tmp_path):
    with replayed("valid/background") as url:
        said = call("record", tmp_path / "a.sse", "--base-url", url, "--behaviour", "text")
    assert "0 findings" in said.output
    assert call("check", "--exact", tmp_path / "a.sse").exit_code == 0
    body = (tmp_path / "a.sse").read_bytes()
    assert b"@retrieved" in body and b"@resumed" in body
