"""Makes `conformance/recorded.toml`: antiphon with a model for each recorded request.

Each says what the requests after it rely on, so that a conversation can be sent again as it was
recorded. `build_spec` writes and checks it; told of folders, this prints the file for what they
hold.

    python tools/recorded_script.py FOLDER...
"""

import json
import sys
from pathlib import Path
from typing import Any

from conformance_script import key_hash

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "conformance" / "recorded"
TARGET = ROOT / "conformance" / "recorded.toml"

sys.path.insert(0, str(ROOT / "conformance" / "src"))

from responses_conformance.recorded.bodies import load  # noqa: E402
from responses_conformance.recorded.premises import Step, premises  # noqa: E402

_HEAD = """\
# antiphon with a model for each recorded request, which says what later requests rely on.
# Written by tools/build_spec.py.
#
# The key is `sk-conformance-first`.

state = "memory"
api_keys = ["{key}"]
model = "any"
log_level = "error"

[aliases]
"*" = "any"

[models.any]
kind = "scripted"

[[models.any.scenes]]
steps = [{{ text = "Whatever it is, it is answered.", pieces = 3 }}]
"""


def generated() -> dict[Path, str]:
    """The file, from what was recorded."""
    return {TARGET: text([SOURCE])}


def text(folders: list[Path]) -> str:
    """The settings file for the requests of some folders."""
    parts = [_HEAD.format(key=key_hash("first"))]
    for flow in load(folders):
        for name, steps in premises(flow).items():
            model = _toml(name)
            lines = [f'[models.{model}]\nkind = "scripted"\n\n[[models.{model}.scenes]]\nsteps = [']
            lines += [f"  {{ {_fields(step)} }}," for step in steps]
            parts.append("\n".join([*lines, "]\n"]))
    return "\n".join(parts)


def _fields(step: Step) -> str:
    said = {**step, "pieces": 8} if step.keys() & {"text", "reasoning", "call"} else step
    return ", ".join(f"{key} = {_toml(value)}" for key, value in said.items())


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    print(text([Path(name) for name in sys.argv[1:]]))
