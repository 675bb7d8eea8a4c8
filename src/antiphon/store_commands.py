"""The commands `antiphon store`: what is stored, looked at and removed by those who run a server.

They work beside a running server.
"""

import asyncio
import dataclasses
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
import orjson

from antiphon.config_option import CONFIG, loaded
from antiphon.errors import StartError
from antiphon.keys import KeyFile
from antiphon.principal import ANONYMOUS, Principal
from antiphon.settings import Settings

if TYPE_CHECKING:  # Heavy, and not needed by other commands.
    from antiphon.store.build import SqlStore
    from antiphon.store.keyring import MasterKeyFile
    from antiphon.store.records import Swept

T = TypeVar("T")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_KEY_RESTART = "Restart all servers and workers, so that they have it too"


@click.group("store")
def store() -> None:
    """Look at what is stored, and remove it."""


@store.command("stats")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@CONFIG
def show_stats(as_json: bool, config: Path | None) -> None:
    """Print how much is stored."""
    counts = dataclasses.asdict(_done(_stored(config), lambda kept: kept.stats()))
    if as_json:
        click.echo(json.dumps(counts))
        return
    width = max(map(len, counts))
    for name, count in counts.items():
        shown = _bytes(count) if name.endswith("_bytes") else f"{count:,}"
        click.echo(f"{name.replace('_', ' '):<{width}}  {shown}")


@store.command("prune")
@click.option(
    "--older-than",
    required=True,
    metavar="TIME",
    help="As 90s, 15m, 12h or 30d: what was not used for so long goes.",
)
@CONFIG
def prune(older_than: str, config: Path | None) -> None:
    """Remove old responses and conversations, and whatever has expired."""
    seconds = duration(older_than)
    swept = _done(_stored(config), lambda kept: kept.sweeper.prune(seconds))
    click.echo(_removed(swept))


@store.command("export")
@click.option("--key", metavar="NAME_OR_ID", help="Only what belongs to this key.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
@CONFIG
def export(key: str | None, output: Path | None, config: Path | None) -> None:
    """Print all responses and conversations, one JSON object a line.

    The exit status is 1 if some could not be read; a line tells of each of them.
    """
    settings = _stored(config)
    principal = None if key is None else _owner(settings, key)

    async def write(kept: "SqlStore") -> int:
        with _opened(output) as file:
            return await _write_lines(file, kept.export(principal))

    num_unreadable = _done(settings, write)
    if num_unreadable:
        click.echo(f"{num_unreadable} could not be read.", err=True)
        sys.exit(1)


@store.command("forget")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also end what is being made.")
@CONFIG
def forget(key: str, yes: bool, force: bool, config: Path | None) -> None:
    """Remove all that belongs to KEY: a name in the keys file, an id, or `anonymous`.

    `anonymous` is who stored something while the server had no keys. The key itself stays; see
    `antiphon keys revoke`.
    """
    from antiphon.store.failures import StillActive

    settings = _stored(config)
    owner = _owner(settings, key)
    if not yes:
        click.confirm(f"Remove all that {owner.id} has stored, for ever?", abort=True, err=True)
    try:
        swept = _done(settings, lambda kept: kept.sweeper.forget(owner, force=force))
    except StillActive as error:
        raise StartError(
            f"{error} is being made: let it end, cancel it, or end it with --force"
        ) from None
    click.echo(_removed(swept))


# --- encryption keys ---


@store.group("keys")
def key_commands() -> None:
    """Make and change the keys that encrypt what is stored."""


@key_commands.command("new")
@CONFIG
def new_ring(config: Path | None) -> None:
    """Make the file of encryption keys, with one key."""
    file = _key_file(loaded(config).settings)
    click.echo(file.create().id)
    click.echo(
        f"Kept in {file.path}. Without a copy in a safe place, losing it loses all.", err=True
    )


@key_commands.command("add")
@CONFIG
def add_key(config: Path | None) -> None:
    """Make another key, which encrypts from now on."""
    file = _key_file(loaded(config).settings)
    click.echo(file.add().id)
    click.echo(f"{_KEY_RESTART}; then run `antiphon store keys rewrap`.", err=True)


@key_commands.command("list")
@CONFIG
def list_keys(config: Path | None) -> None:
    """Print all keys, and of how many owners each seals the data."""
    settings = _stored(config)
    keys = _key_file(settings).read().keys
    in_use = _num_sealed(settings)
    for key in keys:
        active = "active" if key == keys[0] else "      "
        click.echo(f"{key.id}  {key.created}  {active}  {in_use.get(key.id, 0)}")


@key_commands.command("rewrap")
@CONFIG
def rewrap_keys(config: Path | None) -> None:
    """Put everything under the active key, so that the others can be removed.

    What is stored stays as it is: it is the owners' own keys that are sealed anew.
    """
    from antiphon.store.keyring import rewrap

    settings = _stored(config)
    ring = _key_file(settings).read()
    number = _done(
        settings,
        lambda kept: kept.shared.db.write(
            lambda connection: rewrap(connection, ring), durable=True
        ),
    )
    click.echo(f"{number} sealed anew with {ring.active.id}.")


@key_commands.command("remove")
@click.argument("name")
@CONFIG
def remove_key(name: str, config: Path | None) -> None:
    """Remove a key that seals nothing any more."""
    settings = _stored(config)
    _key_file(settings).remove(name, _num_sealed(settings))


def _key_file(settings: Settings) -> "MasterKeyFile":
    from antiphon.store.keyring import MasterKeyFile

    if settings.encryption_keys_file is None:
        raise StartError("setting encryption_keys_file names no file: say first where it is to be")
    return MasterKeyFile(settings.encryption_keys_file)


def _num_sealed(settings: Settings) -> Mapping[str, int]:
    from antiphon.store.keyring import count_wrapped

    if _is_missing(settings):
        return {}
    return _done(settings, lambda kept: kept.shared.db.read(count_wrapped))


# --- what they have in common ---


def duration(text: str) -> float:
    """Seconds, of a time such as `30d`. Raises `StartError`."""
    parts = _DURATION.fullmatch(text.strip())
    if parts is None:
        raise StartError(f"{text!r} is no time: write it as 90s, 15m, 12h or 30d")
    return float(parts[1]) * _UNIT_SECONDS[parts[2]]


def _stored(config: Path | None) -> Settings:
    """The settings of a storage that other processes can see."""
    settings = loaded(config).settings
    if settings.state in ("memory", "off"):
        where = "in the server's own memory" if settings.state == "memory" else "nowhere"
        raise StartError(f"state is {settings.state}: responses are stored {where}")
    return settings


def _is_missing(settings: Settings) -> bool:
    from antiphon.storage import database_file

    return settings.state == "sqlite" and not database_file(settings).exists()


def _done(settings: Settings, work: Callable[["SqlStore"], Coroutine[Any, Any, T]]) -> T:
    """The result of `work(store)`. Raises `StartError`, and what is refused but `NotFound`."""
    from antiphon.storage import open_storage, shown_storage
    from antiphon.store.failures import NotFound, StoreError

    if _is_missing(settings):
        raise StartError(f"nothing was ever stored in {shown_storage(settings)}")
    opened = open_storage(settings)
    assert opened is not None
    try:
        return asyncio.run(work(opened))
    except NotFound as error:
        raise StartError(
            f"nothing is stored for {error.what}; `antiphon keys list` prints names and ids"
        ) from None
    except StoreError as error:
        raise StartError(f"{shown_storage(settings)}: {error}") from error
    finally:
        opened.close()


def _owner(settings: Settings, given: str) -> Principal:
    """Whom a key's name, or an id, stands for."""
    named = [key for key in KeyFile(settings.keys_file).read() if key.name == given]
    if named and given == ANONYMOUS.id:
        raise StartError(
            f"a key is called {given}, too: give its id {named[0].principal.id}, or revoke it to "
            "mean those without a key"
        )
    return named[0].principal if named else Principal(given)


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        return
    try:
        # Others may not read what clients wrote.
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"{output} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        yield file


async def _write_lines(file: IO[bytes], entries: AsyncIterator[Mapping[str, Any]]) -> int:
    """Write entries as lines. Returns how many could not be read."""
    num_unreadable = 0
    async for entry in entries:
        num_unreadable += entry["object"] == "unreadable"
        file.write(orjson.dumps(entry) + b"\n")
    file.flush()
    return num_unreadable


def _removed(swept: "Swept") -> str:
    counts = dataclasses.asdict(swept)
    return "Removed: " + ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items())


def _bytes(number: int) -> str:
    if number < 1024:
        return f"{number} B"
    power = min((number.bit_length() - 1) // 10, 4)
    return f"{number / 1024**power:,.1f} {' KMGT'[power]}iB"
