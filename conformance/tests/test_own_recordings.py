"""What the project recorded of clients is fit to be sent again, and antiphon takes it."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from responses_conformance.config import configured
from responses_conformance.recorded.bodies import load
from responses_conformance.recorded.refusals import load as load_refusals
from responses_conformance.recorded.reports import BEGIN, END
from responses_conformance.recorded.resending import Fate, resend
from responses_conformance.starting import started

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "recorded"
FILES = sorted(RECORDED.rglob("*.json"))
#: Traces of keys, of machines, and of ids that no server has any more.
TRACES = re.compile(
    r"Bearer (?!<redacted>)|sk-[a-z0-9]{4}|/home/|/tmp/|/root/|127\.0\.0\.1"
    r"|\b[a-z]+_[0-9a-f]{32}\b|(?<![0-9a-f-])(?!0{8}-)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-"
)


def clients():
    return sorted(folder.name for folder in RECORDED.iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recorded_request_tells_of_nobody(file):
    found = TRACES.search(file.read_text("utf-8"))
    assert found is None, found


def test_recordings_are_small():
    assert sum(file.stat().st_size for file in FILES) < 500_000


def test_the_table_in_the_guide_is_of_what_is_recorded():
    page = (ROOT.parent / "docs" / "conformance.md").read_text("utf-8")
    rows = re.findall(
        r"^\| ([\w-]+) \| [^|]* \| (\d+) \|", page.split(BEGIN)[1].split(END)[0], re.M
    )
    assert {name: int(count) for name, count in rows} == {
        **{name: len(list((RECORDED / name).glob("*.json"))) for name in clients()},
        "all": len(FILES),
    }


@pytest.mark.antiphon
def test_antiphon_takes_what_clients_send_and_refuses_what_it_says():
    if shutil.which("antiphon") is None:
        pytest.skip("antiphon is not installed beside the suite")
    config = configured({}, ROOT / "resend.toml", {})
    command = f"antiphon serve --config {ROOT / 'recorded.toml'} --port {{port}}"
    folders = [RECORDED / name for name in ("openai-python", "openai-node", "ai-sdk-openai")]
    with started(replace(config, start=command)) as config:
        report = resend(config, load(folders), load_refusals(ROOT / "refusals.yaml"))
    wrong = {
        result.request.name: result.why
        for result in report.results
        if result.fate not in (Fate.ACCEPTED, Fate.DOCUMENTED)
    }
    assert wrong == {}
    assert report.unused == []
