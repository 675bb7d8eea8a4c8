"""`antiphon reasoning-keys`: the keys that seal reasoning."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from antiphon.config_option import CONFIG, loaded
from antiphon.errors import StartError
from antiphon.settings import Settings

if TYPE_CHECKING:  # Heavy, and not needed by other commands.
    from antiphon.store.keyring import MasterKeyFile


@click.group("reasoning-keys")
def reasoning_keys() -> None:
    """Change the keys that seal reasoning for clients."""


@reasoning_keys.command("list")
@CONFIG
def list_keys(config: Path | None) -> None:
    """Print all keys. The active one seals, all of them open."""
    keys = _key_file(loaded(config).settings).read_or_create().keys
    for key in keys:
        click.echo(f"{key.id}  {key.created}  {'active' if key == keys[0] else ''}".rstrip())


@reasoning_keys.command("add")
@CONFIG
def add_key(config: Path | None) -> None:
    """Make another key, which seals from now on."""
    file = _key_file(loaded(config).settings)
    click.echo((file.add() if file.path.exists() else file.create()).id)
    click.echo("Restart all servers and workers, so that they have it too.", err=True)


@reasoning_keys.command("remove")
@click.argument("name")
@CONFIG
def remove_key(name: str, config: Path | None) -> None:
    """Remove a key. What it sealed is not taken any more."""
    _key_file(loaded(config).settings).remove(name, {})


def _key_file(settings: Settings) -> "MasterKeyFile":
    from antiphon.reasoning_keys import reasoning_keys_file

    file = reasoning_keys_file(settings)
    if file is not None:
        return file
    if settings.encryption_keys_file is not None:
        raise StartError(
            "reasoning is sealed with keys made of those in encryption_keys_file: change these "
            "with `antiphon store keys`, or name a file with reasoning_keys_file"
        )
    raise StartError("setting reasoning_keys_file names no file: say first where it is to be")
