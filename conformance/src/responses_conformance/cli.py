"""The command `responses-conformance`."""

import contextlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from responses_conformance import __version__
from responses_conformance.cases import PROFILES, Case, CaseError, behaviours, load
from responses_conformance.config import ENVIRONMENT, Config, ConfigError, configured
from responses_conformance.exchange import Client, Unreachable
from responses_conformance.fuzzing.command import (
    PHASES,
    SEED,
    FuzzingUnavailable,
    Job,
    NothingTried,
)
from responses_conformance.fuzzing.command import fuzz as run_fuzzing
from responses_conformance.recorded import refusals as documented
from responses_conformance.recorded.bodies import RecordedError
from responses_conformance.recorded.bodies import load as load_bodies
from responses_conformance.recorded.capture import Capture
from responses_conformance.recorded.reports import as_json, markdown, put
from responses_conformance.recorded.resending import BAD, Resent
from responses_conformance.recorded.resending import resend as resent
from responses_conformance.recording import record as recorded
from responses_conformance.replaying import Replay
from responses_conformance.reports.console import Console
from responses_conformance.reports.files import ReportError, check_reports, write
from responses_conformance.rules.catalogue import rules
from responses_conformance.runner import check_expected, first_model
from responses_conformance.runner import run as run_cases
from responses_conformance.schemas import Schemas
from responses_conformance.second import SecondUnavailable
from responses_conformance.starting import started
from responses_conformance.texts import parsed
from responses_conformance.transcripts import TranscriptError, judge
from responses_conformance.transcripts import load as load_transcript
from responses_conformance.words import case_text, finding_text, rule_text

_FILE = click.Path(path_type=Path)
_THERE = click.Path(exists=True, path_type=Path)
_PROFILE = click.Choice(PROFILES)
_PORT = click.IntRange(0, 65535)


def _server_options(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--config", "config_file", type=_FILE, help="TOML file with options."),
            click.option("--base-url", help="Where the API is, up to /responses."),
            click.option("--api-key", help="Key that is sent as a bearer token."),
            click.option("--model", help="Model to ask; without it the first that is listed."),
            click.option("--start", help="Command that starts the server; {port} is a free port."),
            click.option("--ready-url", help="What to wait for; without it, the list of models."),
            click.option("--timeout", type=float, help="Seconds that an answer may take."),
        ]
    ):
        command = option(command)
    return command


class _Commands(click.Group):
    """Commands that end with a message where a file cannot be read or written."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands)
@click.version_option(__version__)
def main() -> None:
    """Finds out where a server differs from the OpenAI Responses API.

    Options are taken from flags, then from the TOML file of --config, then from the environment,
    as RESPONSES_CONFORMANCE_BASE_URL.
    """
    # So that a server that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@main.command()
@_server_options
@click.option("--second-api-key", help="Key of somebody else, for cases about two tenants.")
@click.option("--server-name", help="What reports call the server.")
@click.option("--claim", "claims", multiple=True, type=_PROFILE, help="Only these are judged.")
@click.option("--not-claimed", multiple=True, type=_PROFILE, help="These are not judged.")
@click.option("--model-follows-script", is_flag=True, help="The model does what cases ask for.")
@click.option("--keys-required", is_flag=True, help="The server refuses requests without a key.")
@click.option("--second-opinion", is_flag=True, help="Have openapi-core judge as well.")
@click.option("--context-window", type=int, help="The model's context, in tokens.")
@click.option("--max-output-tokens", type=int, help="Sent where a case does not say.")
@click.option("--only", multiple=True, help="Only these cases or profiles.")
@click.option("--cases", multiple=True, type=_THERE, help="More cases: YAML, or a folder of it.")
@click.option("--expected-failures", type=_THERE, help="YAML: reasons by case or rule.")
@click.option("--report", "reports", multiple=True, type=_FILE, help="See above; may be repeated.")
def run(config_file: Path | None, reports: tuple[Path, ...], **flags: Any) -> None:
    """Run cases against a server.

    --report FILE writes a report: .json, .xml (JUnit), .html or .md (the summary as a table).
    """
    config = _configured(flags, config_file)
    cases = _chosen(config)
    console = Console(len(cases))
    try:
        check_reports(reports)
        with started(config) as config, console:
            report = run_cases(config, cases, console.case)
    except (ConfigError, ReportError, SecondUnavailable, Unreachable) as error:
        raise click.ClickException(str(error)) from error
    console.summary(report)
    for file in reports:
        write(report, file)
    sys.exit(1 if report.failed else 0)


@main.command("list")
@click.option("--profile", type=_PROFILE)
@click.option("--rules", "show_rules", is_flag=True, help="The rules, not the cases.")
@click.option("--cases", multiple=True, type=_THERE, help="More cases: YAML, or a folder of it.")
def list_(profile: str | None, show_rules: bool, cases: tuple[Path, ...]) -> None:
    """List cases, or rules."""
    if show_rules:
        for rule in rules().values():
            click.echo(f"{rule.id:10} {rule.level:7} {rule.requirement}")
        return
    loaded = _loaded(cases)
    for case in loaded:
        if profile in (None, case.profile):
            click.echo(f"{case.id:12} {case.profile:14} {case.level:7} {case.title}")
    counts = Counter(case.profile for case in loaded)
    click.echo(", ".join(f"{name} {counts[name]}" for name in PROFILES) + f", all {len(loaded)}")


@main.command()
@click.argument("name", metavar="ID")
@click.option("--cases", multiple=True, type=_THERE, help="More cases: YAML, or a folder of it.")
def explain(name: str, cases: tuple[Path, ...]) -> None:
    """Say all that is known of a case or a rule."""
    name = name.upper()
    if name in rules():
        click.echo(rule_text(rules()[name]))
        return
    for case in _loaded(cases):
        if case.id.upper() == name:
            click.echo(case_text(case))
            return
    raise click.ClickException(f"there is neither a case nor a rule {name}")


@main.command("behaviours")
def behaviours_() -> None:
    """List what cases need a model to do, for authors of scripted models."""
    for behaviour in behaviours().values():
        click.echo(f"{behaviour.name}{' (scripted only)' if behaviour.scripted else ''}")
        click.echo(f"  prompt  {behaviour.prompt}")
        click.echo(f"  does    {behaviour.does}")


@main.command()
@click.argument("files", nargs=-1, required=True, type=_THERE)
@click.option("--exact", is_flag=True, help="Judge by antiphon's own document as well.")
def check(files: tuple[Path, ...], exact: bool) -> None:
    """Judge recorded streams."""
    schemas = Schemas(exact=exact)
    broken = False
    for file in files:
        try:
            findings, _ = judge(load_transcript(file), schemas)
        except TranscriptError as error:
            raise click.ClickException(f"{file}: {error}") from error
        for finding in findings:
            click.echo(finding_text(finding, str(file)))
        broken = broken or bool(findings.found)
        if not findings.found:
            click.echo(f"{file}: all rules hold")
    sys.exit(1 if broken else 0)


@main.command()
@click.argument("file", type=_FILE)
@_server_options
@click.option("--behaviour", type=click.Choice(list(behaviours())), help="Its prompt is sent.")
@click.option("--body", type=click.File(), help="JSON that is sent, or added to the prompt.")
def record(
    file: Path, config_file: Path | None, behaviour: str | None, body: Any, **flags: Any
) -> None:
    """Record a stream from a live server."""
    config = _configured(flags, config_file)
    sent: dict[str, Any] = {"stream": True}
    if behaviour is not None:
        sent["input"] = behaviours()[behaviour].prompt
    try:
        sent |= _object(body)
        with started(config) as config:
            client = Client(config.base_url, timeout=config.timeout)
            sent = {"model": config.model or first_model(client, config.api_key), **sent}
            transcript = recorded(client, sent, config.api_key)
            client.close()
    except (ConfigError, Unreachable) as error:
        raise click.ClickException(str(error)) from error
    file.write_bytes(transcript.written())
    findings, _ = judge(transcript, Schemas())
    broken = ", ".join(dict.fromkeys(finding.rule for finding in findings))
    told = f" ({broken}); check {file} says more" if broken else ""
    click.echo(f"{file}: status {transcript.status}, {len(findings.found)} findings{told}")


def _object(file: Any) -> dict[str, Any]:
    """The JSON object in a file; an empty one without a file."""
    try:
        content = parsed(file.read()) if file is not None else {}
    except ValueError as error:
        raise click.ClickException(f"{file.name}: {error}") from error
    if not isinstance(content, dict):
        raise click.ClickException(f"{file.name}: it must be a JSON object")
    return content


@main.command()
@click.argument("file", type=_THERE)
@click.option("--port", default=8081, show_default=True, type=_PORT)
@click.option("--pause", default=0.0, help="Seconds between frames.")
def replay(file: Path, port: int, pause: float) -> None:
    """Serve a recorded stream."""
    try:
        server = Replay(load_transcript(file), port=port, pause=pause)
    except (TranscriptError, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    click.echo(f"{file} at {server.url}")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


@main.command()
@click.argument("folder", type=_FILE)
@click.option("--base-url", required=True, help="Where requests go on to, up to /responses.")
@click.option("--client", required=True, help="What the client is called.")
@click.option("--version", required=True, help="Its version.")
@click.option("--flow", default="requests", show_default=True, help="What is recorded first.")
@click.option("--port", default=8082, show_default=True, type=_PORT)
def capture(folder: Path, base_url: str, client: str, version: str, flow: str, port: int) -> None:
    """Pass a client's requests on to a server, and record them.

    POST /flow/NAME begins another flow. Files are numbered from 1 on; secrets, paths, ids, times
    and long texts are taken out of them.
    """
    base_url = _configured({"base_url": base_url}, None).base_url
    try:
        server = Capture(base_url, folder, client=client, version=version, flow=flow, port=port)
    except OSError as error:
        raise click.ClickException(f"{folder}, port {port}: {error}") from error
    click.echo(f"{server.url} goes on to {base_url}")
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()


@main.command()
@click.argument("folders", nargs=-1, required=True, type=_THERE)
@_server_options
@click.option("--claim", "claims", multiple=True, type=_PROFILE, help="Only these are judged.")
@click.option("--not-claimed", multiple=True, type=_PROFILE, help="These are not judged.")
@click.option("--refusals", type=_THERE, help="Documented ones.")
@click.option("--unused-refusals", is_flag=True, help="Refusals that nothing met are no failure.")
@click.option("--json", "json_file", type=_FILE, help="Report, by request.")
@click.option("--markdown", "table_file", type=_FILE, help="Table by client; see below.")
def resend(
    folders: tuple[Path, ...],
    config_file: Path | None,
    refusals: Path | None,
    unused_refusals: bool,
    json_file: Path | None,
    table_file: Path | None,
    **flags: Any,
) -> None:
    """Send recorded requests of clients again.

    In the name of the model {request} stands for the name of a request. The exit status is 1 for
    requests that were refused although that is not documented, or failed, and for documented
    refusals that no request met. A page of --markdown that has the lines in which an earlier table
    stands keeps all else.
    """
    config = _configured(flags, config_file)
    try:
        flows = load_bodies(folders)
        known = documented.load(refusals) if refusals is not None else []
        with started(config) as config:
            report = resent(config, flows, known, _tell)
    except (ConfigError, RecordedError, Unreachable) as error:
        raise click.ClickException(str(error)) from error
    if json_file is not None:
        json_file.write_text(as_json(report), encoding="utf-8")
    if table_file is not None:
        put(report, table_file)
    click.echo(markdown(report))
    for refusal in report.unused:
        click.echo(f"no request met the documented refusal {refusal.name}")
    bad = any(result.fate in BAD for result in report.results)
    sys.exit(1 if bad or (report.unused and not unused_refusals) else 0)


def _tell(result: Resent) -> None:
    if result.why and result.refusal is None:
        click.echo(f"{result.fate}: {result.request.name}: {result.why}")


@main.command()
@_server_options
@click.option("--phase", type=click.Choice(PHASES), required=True)
@click.option("--seconds", default=60, show_default=True, help="How long.")
@click.option("--seed", default=SEED, show_default=True)
@click.option("--document", help="OpenAPI document, a file or an address; else antiphon's.")
@click.option("--reports", type=_FILE, help="Folder for reports.")
@click.option("--operation", "operations", multiple=True, help="Only these, by operationId.")
def fuzz(
    config_file: Path | None,
    phase: str,
    seconds: int,
    seed: int,
    document: str | None,
    reports: Path | None,
    operations: tuple[str, ...],
    **flags: Any,
) -> None:
    """Look for bodies that a server does not stand.

    What is found is written into the folder of --reports as cases, each as small as it was found;
    the same seed asks the same again.
    """
    job = Job(phase, seconds, seed, document, reports, operations)
    try:
        with started(_configured(flags, config_file)) as config:
            outcome = run_fuzzing(config, job)
    except (ConfigError, FuzzingUnavailable, NothingTried, Unreachable) as error:
        raise click.ClickException(str(error)) from error
    if outcome.cases is not None:
        click.echo(f"what was found, as cases: {outcome.cases}")
        click.echo(f"to try it again: responses-conformance run --cases {outcome.cases.parent}")
    sys.exit(outcome.status)


def _configured(flags: dict[str, Any], file: Path | None) -> Config:
    named = os.environ.get(f"{ENVIRONMENT}CONFIG")
    try:
        return configured(flags, file or (Path(named) if named else None))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


def _loaded(folders: tuple[Path, ...]) -> list[Case]:
    try:
        return load(folders)
    except CaseError as error:
        raise click.ClickException(str(error)) from error


def _chosen(config: Config) -> list[Case]:
    cases = _loaded(config.cases)
    known = {case.id for case in cases} | set(PROFILES)
    for name in config.only:
        if name not in known:
            raise click.ClickException(f"--only {name}: there is no such case or profile")
    try:
        check_expected(config, known | set(rules()))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if not config.only:
        return cases
    return [case for case in cases if case.id in config.only or case.profile in config.only]
