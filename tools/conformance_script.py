"""Makes `conformance/antiphon.toml`: antiphon with a model that does what the suite's cases need.

`build_spec` writes and checks it.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "conformance" / "src" / "responses_conformance" / "behaviours.yaml"
TARGET = ROOT / "conformance" / "antiphon.toml"

#: The window of the small model, in words of the prompt.
_WINDOW = 2000

_HEAD = """\
# antiphon as the conformance suite runs it, from the suite's behaviours.
# Written by tools/build_spec.py.
#
# The keys are `sk-conformance-first` and `sk-conformance-second`.

state = "memory"
api_keys = [
  "{first}",
  "{second}",
]
model = "scripted"
log_level = "error"
keep_alive_seconds = 1

[models.scripted]
kind = "scripted"
context_window = {window}
"""


def generated() -> dict[Path, str]:
    """The file, from the suite's behaviours."""
    return {TARGET: text(yaml.safe_load(SOURCE.read_text(encoding="utf-8")))}


def text(behaviours: dict[str, Any]) -> str:
    """The settings file, with a scene for each behaviour; what `text` says is said to all else."""
    parts = [_HEAD.format(window=_WINDOW, first=key_hash("first"), second=key_hash("second"))]
    for name, behaviour in behaviours.items():
        parts.append(_scene(name, behaviour["prompt"], behaviour["script"]))
    parts.append(_scene("everything else", None, behaviours["text"]["script"]))
    return "\n".join(parts)


def _scene(name: str, prompt: str | None, script: list[dict[str, Any]]) -> str:
    lines = [f"[[models.scripted.scenes]] # {name}"]
    if prompt is not None:
        lines.append(f"match = {_toml(re.escape(prompt))}")
    steps = [line for step in script for line in _steps(step)]
    lines.append("steps = [")
    lines += [f"  {line}," for line in steps]
    lines.append("]")
    return "\n".join(lines) + "\n"


def _steps(step: dict[str, Any]) -> list[str]:
    """A step of a behaviour as steps of a scripted model: repeated, and each after its delay."""
    times: int = step.get("times", 1)
    said = {key: value for key, value in step.items() if key not in ("times", "delay")}
    lines: list[str] = []
    if "delay" in step:
        lines.append(f"{{ delay = {step['delay']} }}")
    if said:
        fields = ", ".join(f"{key} = {_toml(value)}" for key, value in said.items())
        lines.append(f"{{ {fields} }}")
    return lines * times


def _toml(value: Any) -> str:
    # JSON's texts, numbers and booleans are TOML's as well, but for characters beyond the plane.
    return json.dumps(value, ensure_ascii=False)


def key_hash(name: str) -> str:
    """What settings hold of the key `sk-conformance-NAME`."""
    return f"sha256:{hashlib.sha256(f'sk-conformance-{name}'.encode()).hexdigest()}"
