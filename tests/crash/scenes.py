"""What the servers' model says, and what that comes to."""

import tomllib
from pathlib import Path
from typing import Any

_WORDS = "the quick brown fox jumps over the lazy dog and runs away from it all"

#: What a client asks, and how its answer is said. Pieces and pauses differ, so that a server dies
#: in all states of a response.
SCENES: dict[str, list[dict[str, Any]]] = {
    "quick": [{"text": _WORDS, "pieces": 3}],
    "slow": [step for word in _WORDS.split() for step in ({"text": word + " "}, {"delay": 0.05})],
    "late": [{"delay": 0.7}, {"text": _WORDS, "pieces": 8}],
    "bursts": [step for _ in range(6) for step in ({"text": _WORDS, "pieces": 4}, {"delay": 0.15})],
    "endless": [{"text": "and so on"}, {"delay": 60}],
    "silent": [{"delay": 2}, {"text": "at last"}],
    "mixed": [
        {"reasoning": _WORDS, "pieces": 6},
        {"delay": 0.2},
        {"text": _WORDS, "pieces": 6},
        {"delay": 0.2},
        {"call": "look", "arguments": '{"at": "all of it", "for": 3}', "pieces": 4},
    ],
}
#: What they call.
TOOLS = [{"type": "function", "name": "look"}]
#: Those that end by themselves, and soon.
BRIEF = ("bursts", "late", "mixed", "quick", "slow")
_DELTAS = {
    "response.output_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
}


def whole(name: str) -> str:
    """All that the model says in a scene."""
    return "".join(
        step.get("text") or step.get("reasoning") or step.get("arguments") or ""
        for step in SCENES[name]
    )


def said(events: list[dict[str, Any]]) -> str:
    """All that the model said in a stream."""
    return "".join(event["delta"] for event in events if event["type"] in _DELTAS)


def write_settings(file: Path, **settings: Any) -> Path:
    """A settings file with a model that plays the scenes."""
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    lines += ["[models.scripted]", 'kind = "scripted"']
    for name, steps in SCENES.items():
        lines += ["[[models.scripted.scenes]]", f"match = {_toml(name)}", "steps = ["]
        for step in steps:
            lines.append(f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in step.items())} }},")
        lines.append("]")
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    file.write_text(text)
    return file


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, (str, Path)) else str(value)
