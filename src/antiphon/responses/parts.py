"""Content parts of input items, made complete: as the API shows them later."""

from collections.abc import Mapping, Sequence
from typing import Any

Part = dict[str, Any]

#: The fields of parts that no client must fill in; those of other names are the client's own.
_INPUT_FIELDS: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "input_image": ("detail", "file_id", "image_url"),
    "input_file": ("detail", "file_data", "file_id", "file_url", "filename"),
    "input_video": ("video_url",),
    "input_audio": ("input_audio",),
}
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
    """A part of what a user says or a tool gives back."""
    kind = given["type"]
    part = {"type": kind}
    for field in _INPUT_FIELDS[kind]:
        if given.get(field) is not None:
            part[field] = given[field]
    if kind == "input_image":
        part.setdefault("detail", "auto")
    return part


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
