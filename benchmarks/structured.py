"""Answers and calls that are held to their form: whether they are, and what it costs.

    python benchmarks/structured.py [schemas] [calls] [cuts] [cost] [--suite DIR] [--out FILE]

`schemas` needs `jsonschema[format-nongpl]`, `regress` and `openai` beside the package, and the
folder `tests/draft2020-12` of JSON-Schema-Test-Suite: DIR, or else out of the source distribution
of `jsonschema`, which pip fetches once. `benchmarks/README.md` says what is measured. Ends with 1
if a limit is missed.
"""

import argparse
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

from figure import Figure, report

_NAMES = ("schemas", "calls", "cuts", "cost")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", type=Path, metavar="DIR", help="JSON-Schema-Test-Suite's tests")
    parser.add_argument("--out", type=Path, metavar="FILE", help="what became of each schema")
    report(parser, _NAMES, _measured)


def _measured(name: str, arguments: argparse.Namespace) -> Iterator[Figure]:
    # Each needs other libraries.
    measure: Callable[..., Iterator[Figure]] = getattr(
        importlib.import_module(f"structured_{name}"), name
    )
    return measure(arguments.suite, arguments.out) if name == "schemas" else measure()


if __name__ == "__main__":
    main()
