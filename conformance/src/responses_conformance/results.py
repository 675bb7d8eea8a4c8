"""What a run comes to: verdicts of cases and of rules."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from responses_conformance.cases import Case
from responses_conformance.exchange import Exchange
from responses_conformance.findings import Finding
from responses_conformance.rules.catalogue import Rule, rules


class Verdict(StrEnum):
    """How a case or a rule came out. `fail` is the server's fault, `error` the suite's."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"
    NOT_CLAIMED = "not claimed"
    EXPECTED = "expected failure"
    UNEXPECTED = "unexpected pass"


#: Verdicts that make a run fail.
BAD = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED})


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case came out. `reasons` say why it is no pass; `exchanges` are what was sent and came
    back."""

    case: Case
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    seconds: float = 0.0


@dataclass(slots=True)
class RuleResult:
    """How a rule came out over all exchanges. `checked` counts those it was judged by, `broken`
    those in which it was broken; of those a few are kept."""

    rule: Rule
    checked: int = 0
    broken: int = 0
    kept: list[tuple[Exchange, Finding]] = field(default_factory=list)
    verdict: Verdict = Verdict.SKIP


_KEPT = 5


class Ledger:
    """Keeps what was found about each rule. May be used from several threads."""

    def __init__(self) -> None:
        self.results = {name: RuleResult(rule) for name, rule in rules().items()}
        self._lock = threading.Lock()
        self._seen: set[tuple[str, str | None, str]] = set()

    def note(self, exchange: Exchange, checked: Iterable[str], found: Iterable[Finding]) -> None:
        """Note which rules an exchange was judged by, and what was found."""
        findings = list(found)
        with self._lock:
            for name in {*checked, *(finding.rule for finding in findings)}:
                self.results[name].checked += 1
            for name in {finding.rule for finding in findings}:
                self.results[name].broken += 1
            for finding in findings:
                result = self.results[finding.rule]
                # One of each kind: what differs only in its place is told once.
                key = (finding.rule, finding.field, "" if finding.field else exchange.case)
                if key not in self._seen and len(result.kept) < _KEPT * (1 + bool(finding.field)):
                    self._seen.add(key)
                    result.kept.append((exchange, finding))


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    base_url: str
    model: str
    server: str
    profiles: tuple[str, ...]
    cases: tuple[CaseResult, ...]
    rules: tuple[RuleResult, ...]
    started: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether anything came out as it should not."""
        verdicts = [case.verdict for case in self.cases] + [rule.verdict for rule in self.rules]
        return any(verdict in BAD for verdict in verdicts)
