"""The command `antiphon`."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from antiphon import __version__
from antiphon.config_option import CONFIG, loaded
from antiphon.errors import StartError
from antiphon.keys import KeyFile, KeyRing, hash_key
from antiphon.model_commands import models
from antiphon.reasoning_commands import reasoning_keys
from antiphon.settings import Settings
from antiphon.store_commands import store


class _Commands(click.Group):
    """Ends with one sentence and status 2 where a command cannot be done."""

    def invoke(self, ctx: click.Context) -> Any:
        # A command that is told to stop still cleans up behind itself.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            return super().invoke(ctx)
        except StartError as error:
            click.echo(f"antiphon: {error}", err=True)
            ctx.exit(2)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="antiphon")
def main() -> None:
    """A self-hosted server of the OpenAI Responses API."""


main.add_command(models)
main.add_command(store)
main.add_command(reasoning_keys)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for each setting that one line can hold, and `--config`."""
    for name, field in reversed(Settings.model_fields.items()):
        if name == "models":
            continue
        flag = f"--{name.replace('_', '-')}"
        is_bool = field.annotation is bool
        command = click.option(
            f"{flag}/--no-{flag[2:]}" if is_bool else flag,
            name,
            default=None,
            metavar=None if is_bool else name.rpartition("_")[2].upper(),
            help=f"{field.description} [{_default(name)}]",
        )(command)
    return CONFIG(command)


#: What to say of defaults that depend on the machine.
_COMPUTED_DEFAULTS = {
    "cache_dir": "the user's cache",
    "data_dir": "the user's data",
    "keys_file": "in the user's settings",
    "threads": "the processor's cores",
}


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    return _COMPUTED_DEFAULTS.get(name) or shown(field.get_default())


def shown(value: object) -> str:
    """A setting's value as it would be written."""
    if value is None or value == () or value == {}:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" if isinstance(v, str) else str(k) for k, v in value.items())
    return str(value)


@main.command()
@settings_options
def serve(config: Path | None, **flags: Any) -> None:
    """Serve models.

    Without any model it serves SmolLM2-135M-Instruct, which is fetched once (93 MB).
    """
    from antiphon.console import serve_with_console

    settings = loaded(config, flags).settings
    serve_with_console(settings, KeyRing(KeyFile(settings.keys_file), settings.api_keys))


@main.command()
@settings_options
def worker(config: Path | None, **flags: Any) -> None:
    """Make the stored responses of other processes, without a socket.

    They are those that `antiphon serve --no-engine` hands over, and whatever waits in the
    background.
    """
    from antiphon.console import work_with_console

    result = loaded(config, flags)
    settings = result.settings
    if result.origins["background_workers"] == "default":  # It has nothing else to do.
        settings = settings.model_copy(update={"background_workers": settings.max_running})
    work_with_console(settings)


@main.command("settings")
@click.option("--markdown", is_flag=True, help="Print all settings as a table for a README.")
@settings_options
def show_settings(markdown: bool, config: Path | None, **flags: Any) -> None:
    """Print every setting, its value and where that comes from."""
    if markdown:
        click.echo(settings_table(), nl=False)
        return
    result = loaded(config, flags)
    values = {name: shown(getattr(result.settings, name)) for name in Settings.model_fields}
    width = max(map(len, values))
    value_width = max(len(value) for value in values.values())
    for name, value in values.items():
        click.echo(f"{name:<{width}}  {value:<{value_width}}  {result.origins[name]}")


def settings_table() -> str:
    """Every setting as a Markdown table."""
    lines = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        meaning = " ".join((field.description or "").split())
        lines.append(f"| `{name}` | {_default(name)} | {meaning} |")
    return "\n".join(lines) + "\n"


@main.group("keys")
def key_commands() -> None:
    """Make and revoke API keys."""


def _key_file(config: Path | None) -> KeyFile:
    return KeyFile(loaded(config).settings.keys_file)


@key_commands.command("new")
@click.option("--name", default="default", show_default=True, help="What to call it.")
@CONFIG
def new_key(name: str, config: Path | None) -> None:
    """Make a key and print it, once."""
    file = _key_file(config)
    key = file.add(name)
    click.echo(key)
    click.echo(f"Kept as a hash in {file.path}; the key itself cannot be shown again.", err=True)


@key_commands.command("list")
@CONFIG
def list_keys(config: Path | None) -> None:
    """Print the names of all keys."""
    for key in _key_file(config).read():
        click.echo(f"{key.name}  {key.created}  {key.principal.id}")


@key_commands.command("revoke")
@click.argument("name")
@CONFIG
def revoke_key(name: str, config: Path | None) -> None:
    """Forget a key. Running servers refuse it within a second."""
    _key_file(config).remove(name)


@key_commands.command("hash")
def hash_of_key() -> None:
    """Read a key and print its hash, for the setting `api_keys`."""
    click.echo(hash_key(sys.stdin.readline().strip()))


@main.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "yaml", "html"]),
    default="yaml",
    show_default=True,
    help="`html` is the API reference as one page.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write it there.")
def spec(form: str, output: Path | None) -> None:
    """Print the OpenAPI document that the server runs from."""
    from antiphon.http.docs import docs_page
    from antiphon.spec import packaged_contract, packaged_text

    if form == "html":
        text = docs_page(packaged_contract().document)
    else:
        text = packaged_text(f"openapi.{form}")
    if output is None:
        click.echo(text, nl=False)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
