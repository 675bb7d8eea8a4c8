"""Items as they are given back: what the document says of them, the official SDK takes."""

from typing import Any

import pytest
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem
from openai.types.responses import Response, ResponseItem
from pydantic import TypeAdapter

from antiphon.spec import Contract

ITEM = "#/components/schemas/ItemResource"
IMAGE = {"type": "input_image", "image_url": "data:,", "file_id": None, "detail": "auto"}
FILE = {
    "type": "input_file",
    "file_data": None,
    "file_url": "https://example.org/a.pdf",
    "file_id": None,
    "filename": "a.pdf",
    "detail": "low",
}
TEXT = {"type": "input_text", "text": "hi"}
SAID = {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
LOGPROB = {"token": "hello", "logprob": -0.5, "bytes": [104], "top_logprobs": []}
CITATION = {
    "type": "url_citation",
    "url": "https://example.org",
    "title": "x",
    "start_index": 0,
    "end_index": 1,
}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": "x-1", "status": "completed", **fields}


ITEMS = [
    item("message", role="user", content=[TEXT, IMAGE, FILE]),
    item("message", role="system", content=[]),
    item("message", role="developer", content=[TEXT], status="incomplete"),
    item("message", role="assistant", content=[SAID, {"type": "refusal", "refusal": "no"}]),
    item(
        "message",
        role="assistant",
        phase="commentary",
        content=[{**SAID, "annotations": [CITATION], "logprobs": [LOGPROB]}],
    ),
    item("reasoning", summary=[], content=[]),
    item(
        "reasoning",
        summary=[{"type": "summary_text", "text": "s"}],
        content=[{"type": "reasoning_text", "text": "r"}],
        encrypted_content="sealed",
    ),
    item("function_call", call_id="c", name="f", arguments="{}"),
    item("function_call", call_id="c", name="f", namespace="n", arguments=""),
    item("function_call_output", call_id="c", output="done"),
    item("function_call_output", call_id="c", output=[TEXT, IMAGE, FILE]),
    item("function_call_output", call_id=None, name="f", namespace="n", output=[]),
    item("custom_tool_call", call_id="c", name="t", input="in"),
    item("custom_tool_call_output", call_id="c", output=[TEXT]),
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"},
]


@pytest.mark.parametrize("stored", ITEMS)
def test_a_stored_item_is_what_the_document_says_and_the_sdk_takes_it(
    contract: Contract, stored: dict[str, Any]
):
    assert contract.accepts(ITEM, stored)
    for kind in (ResponseItem, ConversationItem):
        taken = TypeAdapter[Any](kind).validate_python(stored)
        # Extra fields would be kept, so whatever was not understood shows up here.
        assert taken.to_dict(mode="json") == stored


@pytest.mark.parametrize("stored", ITEMS)
def test_a_stored_item_has_all_its_fields_and_no_others(contract: Contract, stored: dict[str, Any]):
    optional = {"phase", "encrypted_content", "namespace", "name"}
    if stored["type"] in ("function_call", "custom_tool_call"):
        optional.remove("name")
    elif stored["type"] == "compaction":
        optional.remove("encrypted_content")
    for field in stored:
        without = {k: v for k, v in stored.items() if k != field}
        assert contract.accepts(ITEM, without) == (field in optional), field
    assert not contract.accepts(ITEM, {**stored, "x_own": 1})


def test_the_other_objects_of_the_store_are_taken_by_the_sdk(contract: Contract):
    examples = contract.document["components"]["examples"]
    for name, kind in (
        ("conversation", Conversation),
        ("conversation_deleted", ConversationDeletedResource),
        ("response_completed", Response),
        ("response_queued", Response),
        ("response_cancelled", Response),
    ):
        value = examples[name]["value"]
        assert kind.model_validate(value).to_dict(mode="json") == value, name
