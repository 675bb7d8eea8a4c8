"""What real clients send first, as `conformance/recorded` holds it, is taken."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from asked import AskedModel

from antiphon.spec import Contract

RECORDED = Path(__file__).resolve().parents[2] / "conformance" / "recorded"
CLIENTS = sorted(folder.name for folder in RECORDED.iterdir())
#: Flows that ask for what is not served, or for too much.
REFUSED = {
    "picture": "unsupported_value",
    "file": "unsupported_value",
    "compaction": "unsupported_value",
    "too_few_tokens": "integer_below_min_value",
    "wrong_value": "decimal_above_max_value",
}
#: Of flows of these names Codex's own are answered.
ANSWERED = {("codex", "compaction")}


def recorded(client: str) -> list[dict[str, Any]]:
    """A client's requests for responses, in their order."""
    files = sorted((RECORDED / client).glob("*.json"))
    requests = [json.loads(file.read_text("utf-8")) for file in files]
    return [one for one in requests if (one["method"], one["path"]) == ("POST", "/v1/responses")]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_body_is_one_that_the_document_describes(contract: Contract, client: str):
    for request in recorded(client):
        if request["flow"] not in ("too_few_tokens", "wrong_value"):
            assert contract.accepts("#/components/schemas/CreateResponse", request["body"])


@pytest.mark.parametrize("client", CLIENTS)
def test_the_first_request_of_every_conversation_is_answered_or_refused_as_said(server, client):
    served = server(AskedModel(("", [{"text": "{}"}])))
    for flow, requests in groupby(recorded(client), lambda request: request["flow"]):
        first = next(requests)
        if "conversation" in first["body"]:
            continue  # It names one that was made before it.
        headers = {name: first["headers"][name] for name in ("accept", "user-agent")}
        body = {**first["body"], "model": None, "tool_choice": "auto", "text": None}
        answer = served.http.post("/v1/responses", json=body, headers=headers)
        expected = None if (client, flow) in ANSWERED else REFUSED.get(flow)
        told = None if answer.status_code == 200 else answer.json()["error"]["code"]
        assert told == expected, (flow, answer.text[:300])
