"""Reports hold what happened, and no secrets."""

import io
import json
from xml.etree import ElementTree

import pytest
from replays import ASK, case, replayed
from rich.console import Console as Terminal

from responses_conformance.config import Config
from responses_conformance.reports.console import Console
from responses_conformance.reports.files import ReportError, write
from responses_conformance.results import CaseResult, Verdict
from responses_conformance.runner import run

KEY = "sk-a-secret-that-must-not-show"


@pytest.fixture(scope="module")
def report():
    wrong = case({**ASK, "expect": {"response": {"status": "<failed>"}}}, identity="T-2", needs=())
    with replayed("invalid/TEXT-1-lost-delta") as url:
        config = Config(
            base_url=url, api_key=KEY, model="m", claims=("core",), server_name="A <server>"
        )
        skipped = case(ASK, identity="T-3", needs=("auth",))
        return run(config, [case(ASK), wrong, skipped, case(ASK, identity="T-4", profile="media")])


@pytest.mark.parametrize("suffix", ["json", "xml", "html", "md"])
def test_no_report_holds_a_key(report, tmp_path, suffix):
    file = tmp_path / "deep" / f"report.{suffix}"
    write(report, file)
    assert KEY not in file.read_text(encoding="utf-8")


def test_json_counts_and_holds_the_exchanges_of_failures(report, tmp_path):
    write(report, tmp_path / "r.json")
    content = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert content["failed"] is True
    counts = content["summary"]["all cases"]
    assert [counts[name] for name in ("pass", "fail", "skip", "not claimed")] == [1, 1, 1, 1]
    cases = {entry["id"]: entry for entry in content["cases"]}
    assert cases["T-1"]["exchanges"] == []
    assert cases["T-2"]["exchanges"][0]["status"] == 200
    broken = [entry for entry in content["rules"] if entry["verdict"] == "fail"]
    assert [entry["id"] for entry in broken] == ["TEXT-1"]
    assert broken[0]["found"][0]["breaks"]


def test_junit_tells_failures_and_skips(report, tmp_path):
    write(report, tmp_path / "r.xml")
    root = ElementTree.parse(tmp_path / "r.xml").getroot()
    found = {entry.get("name"): [child.tag for child in entry] for entry in root.iter("testcase")}
    assert (found["T-1"], found["T-2"], found["T-3"]) == ([], ["failure"], ["skipped"])
    assert found["TEXT-1"] == ["failure"]


def test_the_page_needs_nothing_else_and_escapes_what_it_shows(report, tmp_path):
    write(report, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "A &lt;server&gt;" in page and "&lt;failed&gt;" in page
    assert "http://" not in page.replace(report.base_url, "").replace("http://www.w3.org", "")
    for part in ("TEXT-1", "Required", "Source", "Breaks", "T-2", "event: response.created"):
        assert part in page


def test_the_table_has_a_line_for_each_profile(report, tmp_path):
    write(report, tmp_path / "r.md")
    lines = (tmp_path / "r.md").read_text(encoding="utf-8").splitlines()
    assert lines[2].startswith("| core | 1 | 1 |")
    assert lines[-1].startswith("| all cases |")


def test_an_unknown_form_is_refused(report, tmp_path):
    with pytest.raises(ReportError, match="json"):
        write(report, tmp_path / "r.pdf")


def test_what_fails_is_shown_with_its_level_and_nothing_in_it_is_markup():
    seen = io.StringIO()
    terminal = Terminal(file=seen, width=200)
    should = case(ASK, identity="T-5", requirement="It SHOULD work.")
    must = case(ASK, identity="T-6")
    with Console(2, terminal) as console:
        console.case(CaseResult(should, Verdict.FAIL, ("[red]why[/] of it",)))
        console.case(CaseResult(must, Verdict.FAIL, ("\u2028",)))
        console.case(CaseResult(must, Verdict.PASS))
    lines = [line.rstrip() for line in seen.getvalue().splitlines()]
    assert "fail T-5 (should) A title" in lines
    assert "    [red]why[/] of it" in lines
    assert lines.count("fail T-6 A title") == 1
