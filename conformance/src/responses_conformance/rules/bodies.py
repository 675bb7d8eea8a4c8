"""Judges bodies: responses that have ended, errors, and what was asked for again."""

from collections.abc import Mapping
from typing import Any

from responses_conformance.findings import Findings, difference, shown
from responses_conformance.schemas import Schemas
from responses_conformance.texts import parsed

_FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})


def judge_response(response: dict[str, Any], where: str, findings: Findings) -> None:
    """Judge a response as such, whether it was streamed or not."""
    status = response.get("status")
    error, why = response.get("error"), response.get("incomplete_details")
    if status == "failed" and not (_named(error, "message") and _named(error, "code")):
        findings.add("LIFE-11", where, f"failed, error {shown(error)}")
    elif status == "incomplete" and not _named(why, "reason"):
        findings.add("LIFE-11", where, f"incomplete, incomplete_details {shown(why)}")
    elif status == "completed" and (error or why):
        findings.add("LIFE-11", where, f"completed, {shown(error or why)}")
    _usage(response.get("usage"), where, findings)
    if status in _FINAL and isinstance(response.get("output"), list):
        _calls(response["output"], where, findings)


def _named(holder: Any, name: str) -> bool:
    return isinstance(holder, dict) and bool(holder.get(name))


def _usage(usage: Any, where: str, findings: Findings) -> None:
    if not isinstance(usage, dict):
        return
    sent, made, total = (
        usage.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")
    )
    if (
        isinstance(sent, int)
        and isinstance(made, int)
        and isinstance(total, int)
        and sent + made != total
    ):
        findings.add("TOKENS-1", f"{where}, usage", f"{sent} + {made}, total {total}")
    for part, whole, number in (
        ("cached_tokens", "input_tokens_details", sent),
        ("reasoning_tokens", "output_tokens_details", made),
    ):
        details = usage.get(whole)
        some = details.get(part) if isinstance(details, dict) else None
        if isinstance(some, int) and isinstance(number, int) and some > number:
            findings.add("TOKENS-2", f"{where}, usage.{whole}", f"{part} {some} of {number}")


def _calls(output: list[Any], where: str, findings: Findings) -> None:
    seen: set[str] = set()
    for index, item in enumerate(output):
        if not isinstance(item, dict) or item.get("type") not in (
            "function_call",
            "custom_tool_call",
        ):
            continue
        place = f"{where}, output[{index}]"
        call_id = item.get("call_id")
        if isinstance(call_id, str) and (not call_id or call_id in seen):
            findings.add("ARGS-8", place, f"call_id {shown(call_id)}")
        seen.add(str(call_id))
        arguments = item.get("arguments")
        if (
            item["type"] == "function_call"
            and item.get("status") in (None, "completed")
            and isinstance(arguments, str)
            and not _is_object(arguments)
        ):
            findings.add("ARGS-7", place, shown(arguments))


def _is_object(text: str) -> bool:
    try:
        return isinstance(parsed(text), dict)
    except ValueError:
        return False


def judge_error(
    status: int, headers: Mapping[str, str], content: bytes, findings: Findings
) -> dict[str, Any] | None:
    """Judge the body of an answer that is no success; the error in it, if it is one."""
    where = f"status {status}"
    media = headers.get("content-type", "")
    if media.partition(";")[0].strip().lower() != "application/json":
        findings.add("FAULT-3", where, f"content-type {media or 'none'}")
    if status == 429 and "retry-after" not in headers:
        findings.add("FAULT-6", where, "no Retry-After")
    try:
        body = parsed(content)
    except ValueError:
        findings.add("FAULT-1", where, shown(content.decode("utf-8", "replace")))
        return None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not {"message", "type", "param", "code"} <= error.keys():
        findings.add("FAULT-1", where, shown(body))
        return error if isinstance(error, dict) else None
    message = error["message"]
    if not (isinstance(message, str) and message):
        findings.add("FAULT-2", where, f"message {shown(message)}")
    for name in ("code", "param"):
        if not isinstance(error[name], (str, type(None))):
            findings.add("FAULT-2", where, f"{name} {shown(error[name])}")
    return error


def judge_body(name: str, body: Any, schemas: Schemas, where: str, findings: Findings) -> None:
    """Judge a JSON body by the schema of its name, and a response as such."""
    schemas.judge(name, body, where, findings)
    if name == "Response" and isinstance(body, dict):
        judge_response(body, where, findings)


def judge_retrieved(
    retrieved: Any, terminal: dict[str, Any] | None, where: str, findings: Findings
) -> None:
    """Hold a response that was retrieved against the terminal one of its stream."""
    if terminal is None:
        return
    found = difference(terminal, retrieved, nulls=False)
    if found:
        findings.add("FOLD-3", where, f"{found} (first: streamed, second: retrieved)")


def judge_resumed(
    whole: tuple[dict[str, Any], ...],
    resumed: tuple[dict[str, Any], ...],
    after: int,
    findings: Findings,
) -> None:
    """Hold the events of a stream that was resumed after a number against the whole stream."""
    expected = [
        event
        for event in whole
        if isinstance(event.get("sequence_number"), int) and event["sequence_number"] > after
    ]
    found = difference(expected, list(resumed))
    if found:
        findings.add("FOLD-4", f"resumed after {after}", f"{found} (first: whole, second: resumed)")
