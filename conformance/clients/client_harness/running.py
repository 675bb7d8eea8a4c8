"""Runs the drivers and collects what their flows came to."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from client_harness.clients import Client
from client_harness.environments import Environments
from client_harness.recorder import recorded
from client_harness.servers import KEY, server

#: A driver that hangs is ended after so many seconds.
_PATIENCE = 900


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one flow of a client came to; `why` is empty where it passed."""

    client: str
    group: str
    flow: str
    why: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it did what it should."""
        return not self.why


def drive(
    client: Client,
    environments: Environments,
    logs: Path,
    *,
    port: int,
    real: bool,
    flows: Sequence[str] = (),
    record: Path | None = None,
) -> list[Outcome]:
    """Every flow of a client against a server of its own, with the script or the real model.

    What servers and drivers say goes to files in `logs`, and what the client sends to a folder of
    its own in `record`.
    """
    command = environments.command(client)
    kind = "real" if real else "scripted"
    log = logs / f"{client.id}-{kind}-server.log"
    with server(port, log, real=real) as base_url, recorded(client, base_url, record) as url:
        environment = {
            **os.environ,
            "RECORDER": url.removesuffix("/v1") if record else "",
            "BASE_URL": url,
            "API_KEY": KEY,
            "MODEL": "smollm2-135m-instruct" if real else "scripted",
            "REAL": "1" if real else "",
            "FLOWS": " ".join(flows),
            "CLIENT": client.id,
            "PACKAGES": str(environments.javascript),
            # Clients that look for these must not find another server's.
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": url,
        }
        with (logs / f"{client.id}-{kind}.log").open("wb") as errors:
            try:
                done = subprocess.run(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    timeout=_PATIENCE,
                )
            except subprocess.TimeoutExpired:
                return [Outcome(client.id, "real" if real else "answer", "driver", "it hangs")]
    outcomes = [_outcome(client, line) for line in done.stdout.splitlines() if line[:1] == b"{"]
    if done.returncode and all(outcome.passed for outcome in outcomes):
        why = f"the driver ended with {done.returncode}; see {errors.name}"
        outcomes.append(Outcome(client.id, "real" if real else "answer", "driver", why))
    return outcomes


def _outcome(client: Client, line: bytes) -> Outcome:
    told = json.loads(line)
    return Outcome(client.id, told["group"], told["flow"], told["why"], told["seconds"])
