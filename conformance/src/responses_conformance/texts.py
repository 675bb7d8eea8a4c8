"""Texts that are read and told, whatever is in them."""

import json
from typing import Any

import yaml

#: The reader of YAML in C, where it is built in, as it is ten times as fast.
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `ValueError`, also for NaN, which is no JSON, and for what
    is nested too deeply to be read."""
    try:
        return json.loads(text, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parsed_yaml(text: str) -> Any:
    """The value of a YAML text. Raises `yaml.YAMLError`."""
    return yaml.load(text, _YAML)  # A safe one.


def printable(text: str) -> str:
    """A text that can be written: halves of characters, which JSON can tell, are spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
