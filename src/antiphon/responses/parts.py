"""Content parts of input items, made complete: as the API shows them later."""

from collections.abc import Mapping, Sequence
from typing import Any

Part = dict[str, Any]

#: The fields of annotations; all are needed.
_ANNOTATIONS: Mapping[str, Mapping[str, type]] = {
    "url_citation": {"url": str, "title": str, "start_index": int, "end_index": int},
    "file_citation": {"file_id": str, "filename": str, "index": int},
    "container_file_citation": {
        "container_id": str,
        "file_id": str,
        "filename": str,
        "start_index": int,
        "end_index": int,
    },
    "file_path": {"file_id": str, "index": int},
}


def input_part(given: Mapping[str, Any]) -> Part:
    """A part of what a user says or a tool gives back: text, an image or a file."""
    match given["type"]:
        case "input_text":
            return {"type": "input_text", "text": given["text"]}
        case "input_image":
            return {
                "type": "input_image",
                "image_url": given.get("image_url"),
                "file_id": given.get("file_id"),
                "detail": given.get("detail") or "auto",
            }
        case "input_file":
            names = ("file_data", "file_url", "file_id", "filename")
            part = {"type": "input_file", **{name: given.get(name) for name in names}}
            if given.get("detail") is not None:
                part["detail"] = given["detail"]
            return part
        case kind:
            raise ValueError(f"parts of type {kind} are not kept")


def answer_part(given: Mapping[str, Any]) -> Part:
    """A part of what the assistant said. Notes on it that are damaged are left out."""
    if given["type"] == "refusal":
        return {"type": "refusal", "refusal": given["refusal"]}
    annotations = (_annotation(note) for note in given.get("annotations") or ())
    logprobs = [_logprob(entry) for entry in given.get("logprobs") or ()]
    return {
        "type": "output_text",
        "text": given["text"],
        "annotations": [note for note in annotations if note is not None],
        # One for each token, so that some of them alone would say something wrong.
        "logprobs": [] if None in logprobs else logprobs,
    }


def reasoning_parts(given: Sequence[Mapping[str, Any]] | None) -> list[Part]:
    """The parts of reasoning or of its summary."""
    return [{"type": part["type"], "text": part["text"]} for part in given or ()]


def _annotation(given: Mapping[str, Any]) -> Part | None:
    kind = given.get("type")
    fields = _ANNOTATIONS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return None
    note = {"type": kind}
    for name, expected in fields.items():
        value = given.get(name)
        if not (_whole(value) if expected is int else isinstance(value, expected)):
            return None
        note[name] = value
    return note


def _logprob(given: Any) -> Part | None:
    entry = _token(given)
    top = given.get("top_logprobs") if entry is not None else None
    if entry is None or not isinstance(top, list):
        return None
    others = [_token(other) for other in top]
    return None if None in others else {**entry, "top_logprobs": others}


def _token(given: Any) -> Part | None:
    if not isinstance(given, Mapping):
        return None
    token, logprob, data = given.get("token"), given.get("logprob"), given.get("bytes")
    if not isinstance(token, str) or not isinstance(data, list):
        return None
    if not isinstance(logprob, (int, float)) or isinstance(logprob, bool):
        return None
    if not all(_whole(byte) and byte < 256 for byte in data):
        return None
    return {"token": token, "logprob": logprob, "bytes": data}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
