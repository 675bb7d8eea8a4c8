"""Figures and the limits they are to keep, and how benchmarks that have several are run."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured. `limit` is the most it may be, where there is one; with `at_least`, the
    least."""

    title: str
    value: float
    unit: str = ""
    limit: float | None = None
    at_least: bool = False

    @property
    def missed(self) -> bool:
        """Whether it is beyond its limit."""
        if self.limit is None:
            return False
        return self.value < self.limit if self.at_least else self.value > self.limit

    def __str__(self) -> str:
        value = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        said = f"{self.title:<58} {value:>9} {self.unit}"
        if self.limit is not None:
            sign = "≥" if self.at_least else "≤"
            said += f" ({sign} {self.limit:g}: {'MISSED' if self.missed else 'met'})"
        return said.rstrip()


def report(
    parser: ArgumentParser,
    names: Collection[str],
    measure: Callable[[str, Namespace], Iterator[Figure]],
) -> NoReturn:
    """Measure what is named on the command line, or else all of `names`, and print it. Ends the
    process, with 1 if a limit is missed."""
    parser.add_argument("names", nargs="*", metavar="|".join(names))
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in names:
            parser.error(f"{name!r} is none of {', '.join(names)}")
    missed = 0
    for name in arguments.names or names:
        print(name, flush=True)
        for figure in measure(name, arguments):
            print(f"  {figure}", flush=True)
            missed += figure.missed
    sys.exit(1 if missed else 0)
