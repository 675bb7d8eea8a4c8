"""Findings, rules and cases as text for people."""

import textwrap

from responses_conformance.cases import Case, behaviours
from responses_conformance.findings import Finding
from responses_conformance.rules.catalogue import Rule, rules
from responses_conformance.schemas import breaks_of_field

NOBODY = "no client that was measured"


def breaks(finding: Finding) -> tuple[str, ...]:
    """The clients that what was found breaks."""
    return breaks_of_field(finding.field) if finding.field else rules()[finding.rule].breaks


def finding_text(finding: Finding, file: str) -> str:
    """A finding: the rule, the place, what was seen, what was required, who breaks."""
    rule = rules()[finding.rule]
    lines = [
        f"{file}: {rule.id} at {finding.where}",
        f"  seen      {finding.seen}",
        f"  required  {rule.requirement}",
        f"  breaks    {'; '.join(breaks(finding)) or NOBODY}",
    ]
    return "\n".join(lines)


def rule_text(rule: Rule) -> str:
    """All that is known of a rule."""
    lines = [f"{rule.id} ({rule.level})", *_wrapped(rule.requirement), "", "Sources"]
    lines += [f"  {source}" for source in rule.source]
    lines += ["", "Breaks", *(f"  {client}" for client in rule.breaks or (NOBODY,))]
    return "\n".join(lines)


def case_text(case: Case) -> str:
    """All that is known of a case."""
    lines = [f"{case.id} ({case.profile}, {case.level}): {case.title}"]
    lines += [*_wrapped(case.requirement), "", "Sources"]
    lines += [f"  {source}" for source in case.source]
    if case.needs:
        lines += ["", "Needs", *(f"  {need.replace('_', ' ')}" for need in case.needs)]
    if case.behaviours:
        lines += ["", "The model"]
        for name in case.behaviours:
            behaviour = behaviours()[name]
            lines.append(f"  {behaviour.does}, when it is told: {behaviour.prompt}")
    if case.rules:
        lines += ["", "Rules that count", *(f"  {name}" for name in case.rules)]
    if case.breaks:
        lines += ["", "Breaks", *(f"  {client}" for client in case.breaks)]
    lines += ["", "Steps", *(f"  {_step(step)}" for step in case.steps), "", f"In {case.file}"]
    return "\n".join(lines)


def _step(step: object) -> str:
    assert isinstance(step, dict)
    for name in ("request", "poll", "socket", "compare", "assert", "parallel", "steps"):
        if name in step:
            return f"{step.get('name', '-')}: {name} {step[name]}"[:150]
    return "-"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="  ", subsequent_indent="  ")
