"""The form that a request asks its answer to have."""

from collections.abc import Mapping
from typing import Any

from antiphon.spec.types import EffectiveText
from antiphon.turn import AnswerFormat

SCHEMA_PLACE = "text.format.schema"


def answer_format(text: Mapping[str, Any] | None) -> AnswerFormat | None:
    """What the answer is held to, by a request's `text`; None for any text."""
    wanted = _wanted(text)
    match wanted["type"]:
        case "json_schema":
            return AnswerFormat(wanted["schema"], strict=bool(wanted.get("strict")))
        case "json_object":
            return AnswerFormat()
        case _:
            return None


def effective_text(text: Mapping[str, Any] | None) -> EffectiveText:
    """A request's `text` as its response gives it back."""
    wanted = _wanted(text)
    match wanted["type"]:
        case "json_schema":
            return {
                "format": {
                    "type": "json_schema",
                    "name": wanted["name"],
                    "schema": wanted["schema"],
                    "description": wanted.get("description"),
                    "strict": bool(wanted.get("strict")),
                }
            }
        case "json_object":
            return {"format": {"type": "json_object"}}
        case _:
            return {"format": {"type": "text"}}


def _wanted(text: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (text or {}).get("format") or {"type": "text"}
