"""Answers and calls that are held to their form: whether they are, and what it costs.

    python benchmarks/structured.py [schemas] [calls] [cuts] [cost] [--suite DIR] [--out FILE]

`schemas` needs `jsonschema[format-nongpl]`, `regress` and `openai` beside the package, and the
folder `tests/draft2020-12` of JSON-Schema-Test-Suite: DIR, or else out of the source distribution
of `jsonschema`, which pip fetches once. `benchmarks/README.md` says what is measured. Ends with 1
if a limit is missed.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from figure import Figure

_NAMES = ("schemas", "calls", "cuts", "cost")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="|".join(_NAMES))
    parser.add_argument("--suite", type=Path, metavar="DIR", help="JSON-Schema-Test-Suite's tests")
    parser.add_argument("--out", type=Path, metavar="FILE", help="what became of each schema")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in _NAMES:
            parser.error(f"{name!r} is none of {', '.join(_NAMES)}")
    missed = 0
    for name in arguments.names or _NAMES:
        print(name, flush=True)
        # Each needs other libraries.
        measure: Callable[..., Iterator[Figure]] = getattr(
            importlib.import_module(f"structured_{name}"), name
        )
        options = (arguments.suite, arguments.out) if name == "schemas" else ()
        for figure in measure(*options):
            print(f"  {figure}", flush=True)
            missed += figure.missed
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
