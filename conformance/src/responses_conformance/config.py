"""What the suite is told: by flags, before a TOML file, before the environment."""

import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from responses_conformance.cases import PROFILES

ENVIRONMENT = "RESPONSES_CONFORMANCE_"
_WORDS = {"true": True, "1": True, "false": False, "0": False}
_CALLED = {str: "text", bool: "true or false", int: "whole number", float: "number", Path: "path"}


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
    known = {field.name: field.type for field in fields(Config)}
    for name in told:
        if name not in known:
            option = name.replace("_", "-")
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; is {near[0].replace('_', '-')} meant?" if near else ""
            raise ConfigError(f"there is no option {option}{meant}")
    config = Config(**{name: _typed(name, known[name], value) for name, value in told.items()})
    _check(config)
    return config


def _check(config: Config) -> None:
    """Refuse values that nothing can be done with. Raises `ConfigError`."""
    for name in (*config.claims, *config.not_claimed):
        if name not in PROFILES:
            raise ConfigError(f"there is no profile {name}; there are {', '.join(PROFILES)}")
    for name in ("timeout", "context_window", "max_output_tokens"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{name.replace('_', '-')}: {value} is not above 0")
    url = urlsplit(config.base_url)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise ConfigError(f"base-url: {config.base_url} is no http:// or https:// address")
    for name in ("api_key", "second_api_key"):
        key = getattr(config, name)
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{name.replace('_', '-')}: a key is printable ASCII, to be a header")


def _typed(name: str, kind: Any, value: Any) -> Any:
    """A value as an option has it; texts, as the environment has them, are read.

    Raises `ConfigError`.
    """
    if kind == tuple[str, ...] or kind == tuple[Path, ...]:
        entries = value.split(",") if isinstance(value, str) else value
        if not isinstance(entries, (list, tuple)):
            raise ConfigError(f"{name.replace('_', '-')}: {value!r} is no list")
        one = get_args(kind)[0]
        return tuple(
            _typed(name, one, entry.strip() if isinstance(entry, str) else entry)
            for entry in entries
        )
    plain = next((one for one in get_args(kind) if one is not type(None)), kind)
    try:
        if plain is Path:
            return Path(value)
        if isinstance(value, str) and plain is not str:
            return _WORDS[value.lower()] if plain is bool else plain(value)
        if type(value) is plain or (plain is float and type(value) is int):
            return value
    except (KeyError, TypeError, ValueError):
        pass
    raise ConfigError(f"{name.replace('_', '-')}: {value!r} is no {_CALLED[plain]}")
