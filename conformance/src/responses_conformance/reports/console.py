"""A run in the terminal: how far it is, and what came out."""

from collections import Counter
from types import TracebackType

from rich.console import Console as Terminal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from responses_conformance.cases import PROFILES
from responses_conformance.results import BAD, CaseResult, Report, Verdict
from responses_conformance.words import NOBODY, breaks

_COLOURS = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.ERROR: "magenta",
    Verdict.SKIP: "yellow",
    Verdict.NOT_CLAIMED: "dim",
    Verdict.EXPECTED: "yellow",
    Verdict.UNEXPECTED: "red",
}
_OF_EXPECTED = (Verdict.EXPECTED, Verdict.UNEXPECTED)


class Console:
    """Shows a run of so many cases. Used as a context while it runs."""

    def __init__(self, count: int, terminal: Terminal | None = None) -> None:
        self._terminal = terminal or Terminal(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._terminal,
            transient=True,
        )
        self._task = self._progress.add_task("cases", total=count)

    def __enter__(self) -> "Console":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def case(self, result: CaseResult) -> None:
        """Show how a case came out, if it is worth a line."""
        self._progress.advance(self._task)
        if result.verdict not in BAD:
            return
        colour = _COLOURS[result.verdict]
        level = " (should)" if result.case.level == "should" else ""
        self._terminal.print(
            f"[{colour}]{result.verdict}[/] {result.case.id}{level} {escape(result.case.title)}"
        )
        for reason in result.reasons:
            self._terminal.print(f"    {escape(reason)}", soft_wrap=True)

    def summary(self, report: Report) -> None:
        """Show the rules that were broken, and the counts by profile."""
        for outcome in report.rules:
            if outcome.verdict not in BAD:
                continue
            rule = outcome.rule
            self._terminal.print(
                f"[red]{outcome.verdict}[/] {rule.id} in {outcome.broken} of {outcome.checked} "
                f"exchanges: {escape(rule.requirement)}",
                soft_wrap=True,
            )
            for exchange, finding in outcome.kept:
                self._terminal.print(
                    f"    {exchange.case}: {escape(finding.where)}: {escape(finding.seen)}",
                    soft_wrap=True,
                )
                self._terminal.print(
                    f"      breaks {escape('; '.join(breaks(finding)) or NOBODY)}", soft_wrap=True
                )
        self._terminal.print(table(report))


def table(report: Report) -> Table:
    """The counts by profile and verdict."""
    shown = Table(title=f"{report.server}, model {report.model}")
    told = verdicts(report)
    shown.add_column("")
    for verdict in told:
        shown.add_column(str(verdict), justify="right")
    for name, counts in rows(report):
        shown.add_row(name, *(str(counts[verdict] or "-") for verdict in told))
    return shown


def verdicts(report: Report) -> list[Verdict]:
    """The verdicts that get a column: where nothing was expected to fail, two need none."""
    seen = {*(r.verdict for r in report.cases), *(r.verdict for r in report.rules)}
    return [verdict for verdict in Verdict if verdict not in _OF_EXPECTED or verdict in seen]


def rows(report: Report) -> list[tuple[str, Counter[Verdict]]]:
    """The counts of verdicts: of each profile, of the rules, and of all cases."""
    counted = [
        (name, Counter(r.verdict for r in report.cases if r.case.profile == name))
        for name in PROFILES
    ]
    lines = [(name, counts) for name, counts in counted if counts]
    lines.append(("rules", Counter(outcome.verdict for outcome in report.rules)))
    lines.append(("all cases", Counter(result.verdict for result in report.cases)))
    return lines
