"""Writes the transcripts that are made by hand.

    python make.py           write them
    python make.py --check   fail if what is written is not what would be

Those in `valid/` that are recorded are left as they are; `record.sh` says how they came about.
"""

import argparse
import sys
from pathlib import Path

from invalid import transcripts
from valid import streams

from responses_conformance.transcripts import Transcript

HERE = Path(__file__).resolve().parent


def files() -> dict[Path, bytes]:
    """What is made, by file."""
    made = {
        HERE / "valid" / f"made_{name}.sse": Transcript(body.encode()).written()
        for name, body in streams().items()
    }
    return made | {
        HERE / "invalid" / f"{name}.sse": transcript.written()
        for name, transcript in transcripts().items()
    }


def main() -> int:
    """Write or check the files; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [f for f, content in files().items() if not f.exists() or f.read_bytes() != content]
    if check:
        for file in stale:
            sys.stderr.write(f"{file} is out of date: run make.py\n")
        return int(bool(stale))
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(files()[file])
    return 0


if __name__ == "__main__":
    sys.exit(main())
