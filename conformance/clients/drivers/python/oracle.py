"""A tool server over the Model Context Protocol, with one tool, for Codex to call.

Codex shows the tools of such a server to the model as a namespace.
"""

import json
import sys
from typing import Any

_TOOL = {
    "name": "ask",
    "description": "Answers any question.",
    "inputSchema": {
        "type": "object",
        "properties": {"question": {"type": "string"}},
        "required": ["question"],
    },
    "annotations": {"readOnlyHint": True},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "oracle", "version": "1"},
            }
        case "tools/list":
            return {"tools": [_TOOL]}
        case "tools/call":
            said = f"The oracle says: because you asked {params['arguments']['question']}"
            return {"content": [{"type": "text", "text": said}]}
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(request["method"], request.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
