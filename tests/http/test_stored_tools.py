"""Stored responses that call tools: shown as they were declared, however they are made."""

import pytest
from serving import scripted, serve

TOOLS = [
    {
        "type": "namespace",
        "name": "crm",
        "description": "Customers.",
        "tools": [{"type": "function", "name": "find", "parameters": None}],
    }
]


@pytest.mark.parametrize("body", [{}, {"background": True}])
def test_a_call_is_shown_in_its_namespace(body):
    with serve(scripted({"call": "crm__find", "arguments": "{}"})) as server:
        made = server.create({"input": "hi", "tools": TOOLS, **body})
        (item,) = server.replay(made["id"]).response["output"]
        assert (item["name"], item.get("namespace")) == ("find", "crm")
        assert server.stored(made["id"])["output"] == [item]
