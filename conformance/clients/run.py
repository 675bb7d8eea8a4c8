"""Drives real clients against antiphon. `tox -e clients` runs it."""

import argparse
import socket
import sys
from pathlib import Path

from client_harness import report
from client_harness.clients import ROOT, Client, clients
from client_harness.environments import Environments
from client_harness.running import Outcome, drive

PAGE = ROOT.parents[1] / "docs" / "clients.md"


def main() -> int:
    known = {client.id: client for client in clients()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--client", action="append", choices=known, help="only this one; repeatable"
    )
    parser.add_argument("--flow", action="append", default=[], help="only this flow; repeatable")
    parser.add_argument("--folder", type=Path, default=Path("build/clients"), help="for packages")
    parser.add_argument("--scripted-only", action="store_true", help="leave the real model out")
    parser.add_argument("--real-only", action="store_true", help="the real model alone")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    parser.add_argument("--record", type=Path, help="write what clients send to this folder")
    options = parser.parse_args()

    chosen = [known[name] for name in options.client or known]
    is_whole = not (options.client or options.flow or options.scripted_only or options.real_only)
    folder = options.folder.resolve()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environments = Environments(folder)
    outcomes: list[Outcome] = []
    for real in (False, True):
        if not (options.scripted_only if real else options.real_only):
            for client in chosen:
                outcomes += _driven(
                    client, environments, logs, real, options.flow, None if real else options.record
                )

    made = report.table(chosen, outcomes)
    print(f"\n{made}")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    print(f"\n{len(outcomes) - len(failed)} flows passed, {len(failed)} failed")
    if options.write:
        report.write(PAGE, made)
    elif is_whole and not report.is_current(PAGE, made):
        print(f"{PAGE} tells of other results; --write puts these into it")
        return 1
    return 1 if failed or not outcomes else 0


def _driven(
    client: Client,
    environments: Environments,
    logs: Path,
    real: bool,
    flows: list[str],
    record: Path | None,
) -> list[Outcome]:
    print(f"\n{client.name} {client.version}, {'real' if real else 'scripted'} model", flush=True)
    if record is not None:
        flows = flows or list(client.recorded)
    outcomes = drive(
        client, environments, logs, port=_free_port(), real=real, flows=flows, record=record
    )
    for outcome in outcomes:
        verdict = "pass" if outcome.passed else "FAIL"
        print(f"  {verdict} {outcome.group:10} {outcome.flow} ({outcome.seconds} s) {outcome.why}")
    return outcomes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
