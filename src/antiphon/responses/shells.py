"""Items of shells and patches: made complete, and put as a call and what came of it.

These tools have a protocol of their own, which is not offered. What a model did with them under
another server is history, and to a model it is a call like any other: of `local_shell`, `shell` or
`apply_patch`, with its action or operation as JSON.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from antiphon import ids
from antiphon.turn import Call, CallResult

Item = dict[str, Any]

_COMMAND = ("timeout_ms", "user", "working_directory")
_LIMITS = ("timeout_ms", "max_output_length")


def entry(item: Mapping[str, Any]) -> Call | CallResult:
    """What a complete item of these types is to a model."""
    match item["type"]:
        case "local_shell_call" | "shell_call":
            return _call(item, item["action"])
        case "apply_patch_call":
            return _call(item, item["operation"])
        case "local_shell_call_output":
            return CallResult(item["call_id"] or "", item["output"])
        case "shell_call_output":
            lines = [line for printed in item["output"] for line in _printed(printed)]
            return CallResult(item["call_id"], "\n".join(lines))
        case _:
            told = item["status"].capitalize()
            return CallResult(item["call_id"], "\n".join(filter(None, (told, item["output"]))))


def _call(item: Mapping[str, Any], what: Mapping[str, Any]) -> Call:
    told = {name: value for name, value in what.items() if value not in (None, {})}
    return Call(item["call_id"], item["type"].removesuffix("_call"), orjson.dumps(told).decode())


def _printed(output: Mapping[str, Any]) -> Iterator[str]:
    """What a command printed, and how it ended."""
    yield from filter(None, (output["stdout"], output["stderr"]))
    outcome = output["outcome"]
    exited = outcome["type"] == "exit"
    yield f"Exit code: {outcome['exit_code']}" if exited else "It took too long and was stopped."


def _local_shell_call(given: Mapping[str, Any]) -> Item:
    action = given["action"]
    made = {"type": "exec", "command": action["command"], "env": action.get("env") or {}}
    optional = {name: action.get(name) for name in _COMMAND}
    return {
        "call_id": given["call_id"],
        "action": {**made, **optional},
        "status": _status(given),
    }


def _local_shell_call_output(given: Mapping[str, Any]) -> Item:
    # There are clients that put the call's id into `id` and send no `call_id`. Where it is null
    # the item comes from here, and its id is its own.
    call_id = given["call_id"] if "call_id" in given else given.get("id")
    return {"call_id": call_id, "output": given["output"], "status": _status(given)}


def _shell_call(given: Mapping[str, Any]) -> Item:
    action = given["action"]
    limits = {name: action.get(name) for name in _LIMITS}
    return {
        "call_id": given["call_id"],
        "action": {"commands": action["commands"], **limits},
        "environment": _environment(given.get("environment")),
        "status": _status(given),
    }


def _environment(given: Mapping[str, Any] | None) -> Item | None:
    """Where commands ran; None for a place that is not known."""
    kind, container = (given or {}).get("type"), (given or {}).get("container_id")
    if kind == "local":
        return {"type": kind}
    if kind == "container_reference" and isinstance(container, str):
        return {"type": kind, "container_id": container}
    return None


def _shell_call_output(given: Mapping[str, Any]) -> Item:
    return {
        "call_id": given["call_id"],
        "output": [
            {
                "stdout": printed["stdout"],
                "stderr": printed["stderr"],
                "outcome": _ended(printed["outcome"]),
            }
            for printed in given["output"]
        ],
        "max_output_length": given.get("max_output_length"),
        "status": _status(given),
    }


def _apply_patch_call(given: Mapping[str, Any]) -> Item:
    operation = given["operation"]
    names = ("type", "path") if operation["type"] == "delete_file" else ("type", "path", "diff")
    known = {name: operation[name] for name in names}
    return {"call_id": given["call_id"], "operation": known, "status": "completed"}


def _apply_patch_call_output(given: Mapping[str, Any]) -> Item:
    status = "failed" if given.get("status") == "failed" else "completed"
    return {"call_id": given["call_id"], "output": given.get("output"), "status": status}


def _ended(outcome: Mapping[str, Any]) -> Item:
    names = ("type", "exit_code") if outcome["type"] == "exit" else ("type",)
    return {name: outcome[name] for name in names}


def _status(given: Mapping[str, Any]) -> str:
    return "incomplete" if given.get("status") == "incomplete" else "completed"


#: What makes the ids and the fields of complete items, by their types.
FORMS: Mapping[str, tuple[Callable[[], str], Callable[[Mapping[str, Any]], Item]]] = {
    "local_shell_call": (ids.local_shell_call_id, _local_shell_call),
    "local_shell_call_output": (ids.local_shell_call_output_id, _local_shell_call_output),
    "shell_call": (ids.shell_call_id, _shell_call),
    "shell_call_output": (ids.shell_call_output_id, _shell_call_output),
    "apply_patch_call": (ids.apply_patch_call_id, _apply_patch_call),
    "apply_patch_call_output": (ids.apply_patch_call_output_id, _apply_patch_call_output),
}
