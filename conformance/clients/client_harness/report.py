"""The table of results in the guide on clients."""

from collections.abc import Sequence
from pathlib import Path

from client_harness.clients import GROUPS, Client
from client_harness.running import Outcome

_BEGIN = "<!-- begin: made by `tox -e clients -- --write` -->"
_END = "<!-- end -->"
_TITLES = {
    "answer": "answer",
    "stream": "stream",
    "tools": "tool loop",
    "structured": "structured",
    "turns": "several turns",
    "resume": "resume",
    "errors": "errors",
    "real": "real model",
}


def table(clients: Sequence[Client], outcomes: Sequence[Outcome]) -> str:
    """A row a client and a column a group of flows, then why flows fail."""
    titles = ["client", "version", *(_TITLES[group] for group in GROUPS)]
    rows = [titles, ["---"] * len(titles)]
    for client in clients:
        own = [outcome for outcome in outcomes if outcome.client == client.id]
        cells = [_cell([one for one in own if one.group == group]) for group in GROUPS]
        rows.append([client.name, client.version, *cells])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += [
        f"- {outcome.client}, `{outcome.flow}`: {' '.join(outcome.why.split())[:300]}"
        for outcome in outcomes
        if not outcome.passed
    ]
    return "\n".join(lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    """How many flows passed, of how many if not all."""
    passed = sum(outcome.passed for outcome in outcomes)
    if not outcomes:
        return "–"
    return f"pass ({passed})" if passed == len(outcomes) else f"**{passed} of {len(outcomes)}**"


def inserted(page: str, made: str) -> str:
    """`page` with its table replaced. Raises `ValueError` if it has no place for one."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page lacks {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{made}\n\n{_END}{after}"


def write(page: Path, made: str) -> None:
    """Put a table into a page."""
    page.write_text(inserted(page.read_text("utf-8"), made), "utf-8")


def is_current(page: Path, made: str) -> bool:
    """Whether a page holds this table."""
    text = page.read_text("utf-8")
    return inserted(text, made) == text
