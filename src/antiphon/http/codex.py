"""The catalogue of models in the form that the Codex CLI reads.

Codex knows its own models only. Of any other it learns its tools, its context and its prompt from
such a catalogue; a model that it knows nothing of gets a prompt made for much larger ones.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from antiphon.errors import StartError
from antiphon.models.router import Route
from antiphon.spec.types import CodexCatalog, CodexModel
from antiphon.turn import Effort

#: Tokens of a tool's output that Codex shows a model of its own.
_MOST_OUTPUT = 10_000
_EFFORTS: Mapping[Effort, str] = {
    "none": "Does not reason.",
    "minimal": "Reasons as little as it can.",
    "low": "Reasons briefly.",
    "medium": "Reasons as much as usual.",
    "high": "Reasons at length.",
    "xhigh": "Reasons at great length.",
    "max": "Reasons for as long as it likes.",
}
#: The share of a context that one output of a tool may fill.
_SHARE = 8


def codex_prompt(file: Path | None) -> str:
    """The prompt that Codex is to begin with: that of `file`, or the one in the package.

    Raises `StartError` if the file cannot be read.
    """
    if file is None:
        return (resources.files(__package__) / "static" / "codex_prompt.md").read_text("utf-8")
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"codex_prompt_file {file} cannot be read: {error}") from error


def codex_catalog(routes: Sequence[Route], prompt: str) -> CodexCatalog:
    """The catalogue of `routes`, in their order."""
    return {"models": [_model(number, route, prompt) for number, route in enumerate(routes)]}


def _model(number: int, route: Route, prompt: str) -> CodexModel:
    model = route.model
    window = model.context_window
    return {
        "slug": route.name,
        "display_name": route.name,
        "description": f"Stands for {route.alias_of}." if route.alias_of else "Served by antiphon.",
        "base_instructions": prompt,
        "context_window": window,
        "input_modalities": ["text"],
        "shell_type": "unified_exec",
        "apply_patch_tool_type": "freeform",
        "supports_search_tool": True,
        "supports_parallel_tool_calls": True,
        "experimental_supported_tools": [],
        "truncation_policy": {
            "mode": "tokens",
            "limit": _MOST_OUTPUT
            if window is None
            else min(max(window // _SHARE, 1), _MOST_OUTPUT),
        },
        "default_reasoning_level": None,
        "supported_reasoning_levels": [
            {"effort": effort, "description": about}
            for effort, about in _EFFORTS.items()
            if model.effort(effort) == effort
        ],
        "supports_reasoning_summaries": True,
        "support_verbosity": False,
        "default_verbosity": None,
        "visibility": "list",
        "supported_in_api": True,
        "priority": number,
        "upgrade": None,
    }
