"""What the suite is told: by flags, before a TOML file, before the environment."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from responses_conformance.cases import PROFILES

ENVIRONMENT = "RESPONSES_CONFORMANCE_"


class ConfigError(Exception):
    """The configuration is not usable. Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Config:
    """How to run. `claims` are the profiles that the server claims; `not_claimed` are taken from
    them. `model_follows_script` says that the model does what `behaviours.yaml` says, so that a
    premise that fails is a failure."""

    base_url: str = "http://127.0.0.1:8080/v1"
    api_key: str | None = None
    second_api_key: str | None = None
    model: str | None = None
    server_name: str | None = None
    claims: tuple[str, ...] = tuple(name for name in PROFILES if name != "exact")
    not_claimed: tuple[str, ...] = ()
    model_follows_script: bool = False
    keys_required: bool = False
    second_opinion: bool = False
    context_window: int | None = None
    only: tuple[str, ...] = ()
    cases: tuple[Path, ...] = ()
    expected_failures: Path | None = None
    timeout: float = 60.0
    max_output_tokens: int | None = None
    start: str | None = None
    ready_url: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that are judged."""
        return tuple(
            name for name in PROFILES if name in self.claims and name not in self.not_claimed
        )


def configured(
    flags: Mapping[str, Any], file: Path | None, environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration: a flag goes before the file, the file before the environment.

    Flags that are None or empty were not given. Raises `ConfigError`.
    """
    told: dict[str, Any] = {}
    for name, value in (os.environ if environment is None else environment).items():
        if name.startswith(ENVIRONMENT):
            told[name.removeprefix(ENVIRONMENT).lower()] = value
    told.pop("config", None)
    if file is not None:
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: {error}") from error
        told |= {name.replace("-", "_"): value for name, value in content.items()}
    told |= {name: value for name, value in flags.items() if value not in (None, (), False)}
    known = {field.name: field for field in fields(Config)}
    values = {}
    for name, value in told.items():
        if name not in known:
            raise ConfigError(f"there is no option {name}")
        kind = known[name].type
        named = kind.__name__ if isinstance(kind, type) else str(kind)
        values[name] = _typed(name, named, value)
    config = Config(**values)
    for name in (*config.claims, *config.not_claimed):
        if name not in PROFILES:
            raise ConfigError(f"there is no profile {name}; there are {', '.join(PROFILES)}")
    return config


def _typed(name: str, kind: str, value: Any) -> Any:
    if kind.startswith("tuple"):
        entries = value.split(",") if isinstance(value, str) else list(value)
        make = Path if "Path" in kind else str
        return tuple(make(entry.strip() if isinstance(entry, str) else entry) for entry in entries)
    if not isinstance(value, str):
        return value
    try:
        if kind.startswith("bool"):
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if kind.startswith("int"):
            return int(value)
        if kind.startswith("float"):
            return float(value)
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{name}: {value!r} is no {kind}") from error
    return Path(value) if "Path" in kind else value
