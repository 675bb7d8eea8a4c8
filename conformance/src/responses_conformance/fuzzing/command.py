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

from responses_conformance.config import Config
from responses_conformance.schemas import document

PHASES = ("coverage", "fuzzing", "stateful")
_CHECKS = (
    "no_server_error",
    "rules_hold",
    "param_exists",
    "frames_fit_content_schema",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
#: The seed of a run that is told none: runs are the same from day to day.
SEED = 20260424


class FuzzingUnavailable(Exception):
    """schemathesis is not installed."""


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


def fuzz(config: Config, job: Job) -> int:
    """Run a job; the exit status of schemathesis. Raises `FuzzingUnavailable`."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which("schemathesis", path=beside)
    if program is None:
        raise FuzzingUnavailable("fuzzing needs schemathesis: pip install './conformance[fuzz]'")
    with tempfile.TemporaryDirectory() as folder:
        location = job.document or str(_written(Path(folder)))
        command = [program, "run", location, "--url", _origin(config.base_url)]
        command += ["--phases", job.phase, "--seed", str(job.seed), "--mode", "all"]
        command += ["--max-time", str(job.seconds), "--checks", ",".join(_CHECKS)]
        command += ["--request-timeout", str(config.timeout), "--continue-on-failure"]
        command += ["--suppress-health-check", "all", "--warnings", "off"]
        for operation in job.operations:
            command += ["--include-operation-id", operation]
        if config.api_key is not None:
            command += ["-H", f"Authorization: Bearer {config.api_key}"]
        if job.reports is not None:
            job.reports.mkdir(parents=True, exist_ok=True)
            command += ["--report-junit-path", str(job.reports / f"fuzz-{job.phase}.xml")]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": f"{__package__}.checks"}
        # A folder of its own: schemathesis and Hypothesis keep what they found where they run.
        return subprocess.run(command, env=environment, check=False, cwd=job.reports).returncode


def _written(folder: Path) -> Path:
    """The document without the operations that are no part of the API, as a file."""
    content = document()
    content["paths"] = {
        path: item for path, item in content["paths"].items() if path.startswith("/v1/")
    }
    file = folder / "openapi.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def _origin(base_url: str) -> str:
    """The base URL without the `/v1` that the document's paths begin with."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/").removesuffix("/v1")))
