"""What is left of a request once it is answered."""

import asyncio
import gc
import json
from typing import Any

import pytest
from serving import scripted, serve

_MARK = "a name that is in no other object"


def _form(**schema: Any) -> dict[str, Any]:
    marked = {"properties": {"MARK": {"type": "string"}}, **schema}
    return {"text": {"format": {"type": "json_schema", "name": "x", "schema": marked}}}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"store": False}, 200),
        ({"store": True}, 200),
        ({"store": False, "stream": True}, 200),
        ({"store": True, "stream": True}, 200),
        (_form(type="word"), 400),
        (_form(pattern="("), 400),
        ({"input": 5}, 400),
        ({"messages": []}, 400),
        ({"model": "unknown"}, 404),
        ({"previous_response_id": "resp_unknown"}, 400),
    ],
    ids=lambda value: str(value)[:60],
)
def test_nothing_of_a_body_waits_for_garbage_to_be_collected(more: dict[str, Any], status: int):
    body = json.dumps({"model": "test-model", "input": "Hi", **_form(), **more})
    with serve(scripted({"text": '{"a":1}'})) as server:
        server.post(body)  # What is kept for ever is kept now.
        gc.collect()
        gc.freeze()  # What is there already is not looked at.
        gc.disable()
        try:
            answer = server.post(body.replace("MARK", _MARK))
            server.on_loop(_until_gone())
        finally:
            gc.enable()
            gc.unfreeze()
    assert answer.status_code == status


async def _until_gone() -> None:
    """Let the server do what it has still to do, but for what it waits longer for, such as the next
    request of a connection."""
    async with asyncio.timeout(30):
        while any(isinstance(one, dict) and _MARK in one for one in gc.get_objects()):
            await asyncio.sleep(0.01)
