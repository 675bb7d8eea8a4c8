"""The option `--config`, which every command that needs settings has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from antiphon.settings_layers import LoadedSettings, load_settings

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file, in TOML.",
)


def loaded(config: Path | None, flags: Mapping[str, Any] | None = None) -> LoadedSettings:
    """The settings of a command, `flags` being None where they were not given.

    Raises `SettingsError`.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    return load_settings(given, config=config)
