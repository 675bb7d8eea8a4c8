"""Runs schemathesis against a server, one phase at a time."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import yaml

from responses_conformance.config import Config, ConfigError
from responses_conformance.exchange import Client, Request
from responses_conformance.fuzzing.found import CHECKS
from responses_conformance.schemas import document
from responses_conformance.texts import parsed_yaml

PHASES = ("coverage", "fuzzing", "stateful")
#: The environment variable that tells `hooks` where to write cases, and what of them.
KEPT_IN = "RESPONSES_CONFORMANCE_FOUND"
#: The seed of a run that is told none: runs are the same from day to day.
SEED = 20260424


class FuzzingUnavailable(Exception):
    """schemathesis is not installed."""


class NothingTried(Exception):
    """No request was made, so that nothing was found out. Says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """One phase for so many seconds. `document` is a file or an address; without it the suite's
    own copy of antiphon's document is used. `reports` is a folder."""

    phase: str
    seconds: int
    seed: int = SEED
    document: str | None = None
    reports: Path | None = None
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to: the exit status of schemathesis, how many requests were made, and the
    file of cases with what was found, if anything was and there is a folder for it."""

    status: int
    tried: int
    cases: Path | None


def fuzz(config: Config, job: Job) -> Outcome:
    """Run a job. Raises `ConfigError`, `FuzzingUnavailable`, `NothingTried` and `Unreachable`."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("schemathesis", path=beside)
    if program is None:
        raise FuzzingUnavailable("fuzzing needs schemathesis: pip install './conformance[fuzz]'")
    client = Client(config.base_url, timeout=config.timeout)
    try:
        client.send(Request("GET", "/models", key=config.api_key))  # Whether anybody is there.
    finally:
        client.close()
    with tempfile.TemporaryDirectory() as folder:
        location = _located(job.document) or str(_written(Path(folder)))
        report = Path(folder) / "report.json"
        command = [program, "run", location, "--url", _url(config.base_url, location)]
        command += ["--phases", job.phase, "--seed", str(job.seed), "--mode", "all"]
        command += ["--max-time", str(job.seconds), "--checks", ",".join(CHECKS)]
        command += ["--request-timeout", str(config.timeout), "--continue-on-failure"]
        command += ["--suppress-health-check", "all", "--warnings", "off"]
        command += ["--report-json-path", str(report)]
        for operation in job.operations:
            command += ["--include-operation-id", operation]
        if config.api_key is not None:
            command += ["-H", f"Authorization: Bearer {config.api_key}"]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": f"{__package__}.hooks"}
        reports = cases = None
        if job.reports is not None:
            reports = job.reports.resolve()
            reports.mkdir(parents=True, exist_ok=True)
            command += ["--report-junit-path", str(reports / f"fuzz-{job.phase}.xml")]
            cases = reports / f"fuzz-{job.phase}.yaml"
            cases.unlink(missing_ok=True)  # What an earlier run found may be mended.
            kept = {"file": str(cases), "phase": job.phase, "seed": job.seed}
            kept["base_path"] = urlsplit(config.base_url).path
            environment[KEPT_IN] = json.dumps(kept)
        # A folder of its own: schemathesis and Hypothesis keep what they found where they run.
        status = subprocess.run(
            command, env=environment, check=False, cwd=reports or folder
        ).returncode
        tried = _tried(report, job) if report.exists() else 0
    return Outcome(status, tried, cases if cases is not None and cases.exists() else None)


def _located(document: str | None) -> str | None:
    """A document as it is found from another folder; an address stays as it is."""
    if document is None or "://" in document:
        return document
    if not Path(document).is_file():
        raise ConfigError(f"{document}: there is no such file")
    return str(Path(document).resolve())


def _tried(report: Path, job: Job) -> int:
    """How many requests were made."""
    told = json.loads(report.read_text(encoding="utf-8"))
    if told["operations"] is None:
        return 0  # The document could not be read, which schemathesis has said.
    if told["operations"]["selected"] == 0 and job.operations:
        names = ", ".join(job.operations)
        raise NothingTried(f"the document has no operation with the operationId {names}")
    tried = int(told["test_cases"]["generated"])
    if tried == 0:
        raise NothingTried(
            f"no request was made within {job.seconds} s, which says nothing of the server; give "
            "it more --seconds"
        )
    return tried


def _written(folder: Path) -> Path:
    """The document without the operations that are no part of the API, as a file."""
    content = document()
    paths = {path: item for path, item in content["paths"].items() if path.startswith("/v1/")}
    file = folder / "openapi.json"
    file.write_text(json.dumps({**content, "paths": paths}), encoding="utf-8")
    return file


def _url(base_url: str, location: str) -> str:
    """What the paths of a document come after: the base URL, without its `/v1` if they begin with
    that. Raises `ConfigError` if the document cannot be read."""
    try:
        if "://" in location:
            text = httpx.get(location, trust_env=False, follow_redirects=True).text
        else:
            text = Path(location).read_text(encoding="utf-8")
        paths = list(parsed_yaml(text)["paths"])
    except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"{location}: no OpenAPI document can be read there") from error
    parts = urlsplit(base_url)
    if not any(path.startswith("/v1/") for path in paths):
        return base_url
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/").removesuffix("/v1")))
