"""What stored responses cost: time, memory and processors, against the limits they are to keep.

    python benchmarks/state.py [storing] [chain] [lag] [replay] [idle] [memory] [--folder DIR]

Every server is a process of its own; what is stored lies in a new folder in DIR, so the disk under
it counts. PostgreSQL is one that the tests would start; without it those figures are left out.
`benchmarks/README.md` says what is measured. Ends with 1 if a limit is missed.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from figure import Figure, report
from state_chain import chain
from state_memory import memory
from state_serving import idle, lag, replay
from state_storing import storing

BENCHMARKS: Mapping[str, Callable[[Path | None], Iterator[Figure]]] = {
    "storing": storing,
    "chain": chain,
    "lag": lag,
    "replay": replay,
    "idle": idle,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, metavar="DIR")
    report(parser, BENCHMARKS, lambda name, arguments: BENCHMARKS[name](arguments.folder))


if __name__ == "__main__":
    main()
