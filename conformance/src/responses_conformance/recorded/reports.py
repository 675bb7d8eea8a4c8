"""What became of recorded requests, as a table and as JSON."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from responses_conformance.recorded.resending import Fate, Resending, Resent

#: Between these lines of a page stands the table.
BEGIN = "<!-- begin: made by `responses-conformance resend` -->"
END = "<!-- end: made by `responses-conformance resend` -->"

_FATES = (Fate.ACCEPTED, Fate.DOCUMENTED, Fate.REFUSED, Fate.FAILED, Fate.UNMET, Fate.UNSENT)


def markdown(report: Resending) -> str:
    """A row a client, a column for each fate that there was, and what the refusals are about."""
    fates = [fate for fate in _FATES if any(result.fate is fate for result in report.results)]
    titles = ["client", "version", "requests", *fates]
    if Fate.DOCUMENTED in fates:
        titles.append("because of")
    lines = [_row(titles), _row(["---", "---", *["---:"] * (len(fates) + 1), "---"][: len(titles)])]
    for client in _clients(report):
        own = [result for result in report.results if result.request.client == client]
        lines.append(_row(_cells(client, own, fates, len(titles))))
    lines.append(_row(_cells("all", list(report.results), fates, len(titles))))
    if report.refusals:
        lines += ["", *(f"- *{one.name}*: {one.reason}" for one in report.refusals)]
    return "\n".join(lines) + "\n"


def put(report: Resending, file: Path) -> None:
    """Write the table into a file: between the lines `BEGIN` and `END` if it has them."""
    table = markdown(report)
    page = file.read_text(encoding="utf-8") if file.exists() else ""
    between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if between.search(page):
        table = between.sub(lambda _: f"{BEGIN}\n\n{table}\n{END}", page, count=1)
    file.write_text(table, encoding="utf-8")


def as_json(report: Resending) -> str:
    """Everything, request by request."""
    content = {
        "server": report.server,
        "model": report.model,
        "counts": Counter(str(result.fate) for result in report.results),
        "unused_refusals": [refusal.name for refusal in report.unused],
        "requests": [_told(result) for result in report.results],
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _clients(report: Resending) -> list[str]:
    return list(dict.fromkeys(result.request.client for result in report.results))


def _cells(client: str, own: list[Resent], fates: list[Fate], width: int) -> list[str]:
    counts = Counter(result.fate for result in own)
    version = own[0].request.version if client != "all" else ""
    cells = [client, version, str(len(own)), *(str(counts[fate]) for fate in fates)]
    if width > len(cells):
        reasons = Counter(result.refusal for result in own if result.refusal)
        cells.append(", ".join(f"{name} ({count})" for name, count in reasons.items()))
    return cells


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _told(result: Resent) -> dict[str, Any]:
    request = result.request
    return {
        "request": request.name,
        "client": request.client,
        "version": request.version,
        "flow": request.flow,
        "transport": request.transport,
        "fate": str(result.fate),
        "status": result.status,
        "refusal": result.refusal,
        "why": result.why,
    }
