"""What a model is told of its tools."""

import json
from collections.abc import Sequence
from typing import Any

from antiphon.formats.dialects.dialect import INPUT_KEY, Dialect
from antiphon.formats.dialects.spelling import spelled
from antiphon.turn import Call, Tool

_NOTHING = {"type": "object", "properties": {}}


def tool_json(tool: Tool) -> dict[str, Any]:
    """A tool as an element of a template's `tools`. A custom tool is a function of one text."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": _input(tool) if tool.custom else dict(tool.parameters or _NOTHING),
        },
    }


def example(dialect: Dialect) -> str:
    """A call, to show how one is written."""
    return spelled(dialect, [Call("abcdef123", "FUNCTION", '{"ARGUMENT": "VALUE"}')])


def tools_text(dialect: Dialect, tools: Sequence[Tool], shown: str) -> str:
    """A section of the system message, for a template that does not tell of tools by itself.

    `shown` is the `example`, or what stands for it.
    """
    several = (
        "To make several calls at once, write them one after the other.\n"
        if dialect.parallel and not dialect.array
        else ""
    )
    lines = "\n".join(json.dumps(tool_json(tool), ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\n"
        "You may call functions to help with what the user asks. These are the functions, one a "
        f"line, as JSON:\n<tools>\n{lines}\n</tools>\n\n"
        "To call a function, write its name and its arguments like this, and nothing after it:\n"
        f"{shown}\n"
        f"{several}"
        "What the function gives back comes with the next message. Call only functions that are "
        "listed. If none is needed, answer as usual."
    )


def _input(tool: Tool) -> dict[str, Any]:
    described = {"type": "string", "description": "The input of the tool, as plain text."}
    if tool.grammar is not None:
        described["description"] += (
            f" It has to obey this {tool.grammar.syntax} definition:\n{tool.grammar.definition}"
        )
    return {
        "type": "object",
        "properties": {INPUT_KEY: described},
        "required": [INPUT_KEY],
        "additionalProperties": False,
    }
