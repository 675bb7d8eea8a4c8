"""The settings of a process, and the origin of each.

One frozen object, from four layers: defaults, a TOML file, the environment (`ANTIPHON_` and the
name in capitals) and flags.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import platformdirs
from pydantic import ValidationError

from antiphon.errors import StartError
from antiphon.settings import Settings

ENVIRONMENT_PREFIX = "ANTIPHON_"
#: Names the settings file; not a setting itself.
CONFIG_VARIABLE = "ANTIPHON_CONFIG"
#: Read where there are no settings yet: what installs the package, and what loads the kernels.
_NO_SETTINGS = {CONFIG_VARIABLE, "ANTIPHON_NO_KERNELS"}


class SettingsError(StartError):
    """A setting is wrong. The message names it, its origin and the mistake."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings and where each one came from."""

    settings: Settings
    origins: Mapping[str, str]


def default_config_path() -> Path:
    """The settings file that is read if none is named and it exists."""
    return platformdirs.user_config_path("antiphon") / "antiphon.toml"


def load_settings(
    flags: Mapping[str, Any],
    *,
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Put the layers together. `flags` holds only those that were given.

    Raises `SettingsError` for an unknown name or a wrong value, whichever layer it is in.
    """
    environment = os.environ if environment is None else environment
    layers: list[tuple[str, dict[str, Any]]] = []
    file = _config_file(config, environment)
    if file is not None:
        layers.append((f"file {file}", _file_layer(file)))
    layers.append(("environment", _environment_layer(environment)))
    layers.append(("flag", {name: parse(name, value) for name, value in flags.items()}))
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = value
            origins[name] = origin
    try:
        return LoadedSettings(Settings(**values), origins)
    except ValidationError as error:
        raise SettingsError("\n".join(_mistakes(error, origins))) from None


def parse(name: str, value: Any) -> Any:
    """A setting written as one string: lists split at commas, maps at commas and `=`, `none` for
    no value."""
    default = Settings.model_fields[name].annotation
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and type(None) in get_args(default):
        return None
    if default == tuple[str, ...]:
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if name == "aliases":
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(alias and separator and target for alias, separator, target in pairs):
            raise SettingsError(f"setting {name}: {value!r} is not of the form alias=model")
        return {alias.strip(): target.strip() for alias, _, target in pairs}
    return value


def _config_file(config: Path | None, environment: Mapping[str, str]) -> Path | None:
    if config is None and CONFIG_VARIABLE in environment:
        config = Path(environment[CONFIG_VARIABLE])
    if config is None:
        default = default_config_path()
        return default if default.is_file() else None
    return config


def _file_layer(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {file}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"settings file {file}: {error}") from None
    for name in values:
        if name not in Settings.model_fields:
            raise SettingsError(f"settings file {file}: there is no setting {name!r}")
    # TOML has no word for nothing.
    return {name: parse(name, v) if v == "none" else v for name, v in values.items()}


def _environment_layer(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NO_SETTINGS:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name not in Settings.model_fields:
            raise SettingsError(f"environment: {variable} stands for no setting")
        if name == "models":
            raise SettingsError(f"environment: {variable}: models are only in the settings file")
        values[name] = parse(name, value)
    return values


def _mistakes(error: ValidationError, origins: Mapping[str, str]) -> list[str]:
    lines = []
    for mistake in error.errors():
        place = ".".join(str(step) for step in mistake["loc"])
        origin = origins.get(str(mistake["loc"][0]), "settings") if mistake["loc"] else "settings"
        reason = mistake["msg"].removeprefix("Value error, ")
        got = mistake.get("input")
        shown = f", not {got!r}" if isinstance(got, (str, int, float)) else ""
        lines.append(f"setting {place} ({origin}): {reason[:1].lower()}{reason[1:]}{shown}")
    return lines
