"""The table of clients in the guide, and what it is made of."""

from pathlib import Path

import pytest

from client_harness import report
from client_harness.clients import GROUPS, Client, clients
from client_harness.running import Outcome

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "clients.md"
CLIENT = Client("one", "Client one", "1.2", Path("drive_one.py"))


def row(*outcomes: Outcome) -> list[str]:
    """The cells of a client's row."""
    lines = report.table([CLIENT], outcomes).splitlines()
    return [cell.strip() for cell in lines[2].strip("|").split("|")]


def outcome(group: str, why: str = "") -> Outcome:
    return Outcome("one", group, "flow", why)


def test_every_client_has_a_version_and_a_driver():
    for client in clients():
        assert client.version[0].isdigit(), client
        assert client.driver.is_file(), client
        assert all("==" in package for package in client.packages), client


def test_a_cell_counts_the_flows_of_a_group():
    cells = row(outcome("tools"), outcome("tools"), outcome("errors", "no"), outcome("errors"))
    assert cells[:2] == ["Client one", "1.2"]
    by_group = dict(zip(GROUPS, cells[2:], strict=True))
    assert by_group["tools"] == "pass (2)"
    assert by_group["errors"] == "**1 of 2**"
    assert by_group["stream"] == "–"


def test_the_flows_of_other_clients_do_not_count():
    assert row(Outcome("two", "tools", "flow"))[2:] == ["–"] * len(GROUPS)


def test_why_a_flow_fails_is_told_below_in_one_line():
    made = report.table([CLIENT], [outcome("errors", "it\n  hangs")])
    assert made.splitlines()[-1] == "- one, `flow`: it hangs"


def test_the_guide_has_a_place_for_the_table_and_its_own_is_replaced():
    once = report.inserted(GUIDE.read_text("utf-8"), "| new |")
    assert report.inserted(once, "| new |") == once
    assert once.count("| new |") == 1
    with pytest.raises(ValueError, match="lacks"):
        report.inserted("# A page", "| new |")


def test_the_guide_tells_of_every_client_at_its_version():
    page = GUIDE.read_text("utf-8")
    for client in clients():
        assert f"| {client.name} | {client.version} |" in page
