"""Reports as files: JSON, JUnit, HTML, and the summary as a table."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from responses_conformance import __version__
from responses_conformance.exchange import Exchange
from responses_conformance.reports.console import rows, verdicts
from responses_conformance.reports.page import page
from responses_conformance.results import BAD, Report, Verdict
from responses_conformance.words import breaks


class ReportError(Exception):
    """A report that cannot be written. Says why."""


def check_reports(files: Iterable[Path]) -> None:
    """Refuse reports of unknown forms or in places where there can be none, before a run is made
    for them. Raises `ReportError`."""
    for file in files:
        _form(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ReportError(f"{file}: {error}") from error
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise ReportError(f"{file}: no file can be written there")


def write(report: Report, file: Path) -> None:
    """Write a report in the form that the file's name asks for. Raises `ReportError`."""
    form = _form(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(form(report), encoding="utf-8", errors="backslashreplace")


def _form(file: Path) -> Callable[[Report], str]:
    forms = {".json": as_json, ".xml": as_junit, ".html": page, ".md": as_table}
    if file.suffix not in forms:
        raise ReportError(f"{file}: a report is one of {', '.join(forms)}")
    return forms[file.suffix]


def as_json(report: Report) -> str:
    """The whole run as JSON, exchanges of failures included."""
    content = {
        "suite": __version__,
        "server": report.server,
        "base_url": report.base_url,
        "model": report.model,
        "profiles": list(report.profiles),
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "failed": report.failed,
        "summary": {
            name: {str(verdict): counts[verdict] for verdict in Verdict}
            for name, counts in rows(report)
        },
        "cases": [
            {
                "id": result.case.id,
                "title": result.case.title,
                "profile": result.case.profile,
                "level": result.case.level,
                "verdict": str(result.verdict),
                "reasons": list(result.reasons),
                "requirement": result.case.requirement,
                "source": list(result.case.source),
                "breaks": list(result.case.breaks),
                "seconds": round(result.seconds, 3),
                "exchanges": [_exchange(e) for e in result.exchanges]
                if result.verdict in BAD
                else [],
            }
            for result in report.cases
        ],
        "rules": [
            {
                "id": outcome.rule.id,
                "requirement": outcome.rule.requirement,
                "level": outcome.rule.level,
                "verdict": str(outcome.verdict),
                "checked": outcome.checked,
                "broken": outcome.broken,
                "found": [
                    {
                        "case": exchange.case,
                        "where": finding.where,
                        "seen": finding.seen,
                        "breaks": list(breaks(finding)),
                    }
                    for exchange, finding in outcome.kept
                ],
            }
            for outcome in report.rules
        ],
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "step": exchange.step,
        "request": f"{exchange.method} {exchange.path}",
        "body": exchange.request.decode("utf-8", "replace"),
        "status": exchange.status,
        "headers": dict(exchange.headers),
        "answer": exchange.content.decode("utf-8", "replace"),
    }


def as_junit(report: Report) -> str:
    """The run as JUnit XML: a suite for each profile, and one for the rules."""
    root = ElementTree.Element("testsuites", name="responses-conformance")
    for name, _ in rows(report):
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        for result in report.cases:
            if result.case.profile == name:
                _junit(suite, name, result.case.id, result.verdict, result.reasons, result.seconds)
        if name == "rules":
            for outcome in report.rules:
                reasons = tuple(f"{e.case}: {f.where}: {f.seen}" for e, f in outcome.kept)
                _junit(suite, name, outcome.rule.id, outcome.verdict, reasons, 0)
        suite.set("tests", str(len(suite)))
        if not len(suite):
            root.remove(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit(
    suite: ElementTree.Element,
    group: str,
    name: str,
    verdict: Verdict,
    reasons: tuple[str, ...],
    seconds: float,
) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=group, name=name, time=f"{seconds:.3f}"
    )
    text = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in "\n".join(reasons))
    if verdict in (Verdict.FAIL, Verdict.UNEXPECTED):
        ElementTree.SubElement(case, "failure", message=str(verdict)).text = text
    elif verdict is Verdict.ERROR:
        ElementTree.SubElement(case, "error", message=str(verdict)).text = text
    elif verdict is not Verdict.PASS:
        ElementTree.SubElement(case, "skipped", message=f"{verdict}: {text}"[:500])


def as_table(report: Report) -> str:
    """The counts as a Markdown table."""
    told = verdicts(report)
    lines = ["| | " + " | ".join(told) + " |", "|---|" + "---:|" * len(told)]
    for name, counts in rows(report):
        cells = " | ".join(str(counts[verdict]) for verdict in told)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"
