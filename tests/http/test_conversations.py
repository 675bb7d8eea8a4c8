"""Conversations, by the official SDK and by hand, over a real socket."""

import json
from typing import Any

import openai
import pytest
from serving import Served, scripted

from antiphon.keys import KeyFile, KeyRing

QUESTION = {"role": "user", "content": "What is the capital of France?"}


@pytest.fixture
def served(server) -> Served:
    return server(scripted({"text": "Paris."}))


@pytest.fixture
def client(served) -> openai.OpenAI:
    return served.sdk()


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"message {n}", "id": f"msg_{n}"} for n in range(first, last)
    ]


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


# The conversation itself


def test_a_conversation_is_created_retrieved_updated_and_deleted(client):
    made = client.conversations.create(metadata={"topic": "geography"})
    assert made.id.startswith("conv_")
    assert (made.object, made.metadata) == ("conversation", {"topic": "geography"})
    assert client.conversations.retrieve(made.id) == made
    updated = client.conversations.update(made.id, metadata={"topic": "rivers", "n": "2"})
    assert updated == made.model_copy(update={"metadata": {"topic": "rivers", "n": "2"}})
    assert client.conversations.retrieve(made.id) == updated
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    for again in (client.conversations.retrieve, client.conversations.delete):
        with pytest.raises(openai.NotFoundError) as missing:
            again(made.id)
        assert (missing.value.code, missing.value.param) == (
            "conversation_not_found",
            "conversation_id",
        )


@pytest.mark.parametrize("body", [b"", b"{}", b'{"items": null, "metadata": null}'])
def test_a_conversation_needs_nothing_to_begin_with(served, body):
    answer = served.http.post("/v1/conversations", content=body)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert (made["object"], made["metadata"]) == ("conversation", {})
    page = served.http.get(f"/v1/conversations/{made['id']}/items").json()
    assert page == {
        "object": "list",
        "data": [],
        "first_id": "",
        "last_id": "",
        "has_more": False,
    }


def test_null_takes_all_metadata_away(client):
    made = client.conversations.create(metadata={"a": "b"})
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    assert client.conversations.retrieve(made.id).metadata == {}


def test_what_is_not_known_is_left_out_and_named(served):
    answer = served.post({"metadata": {}, "title": "x"}, "/v1/conversations")
    assert answer.headers["antiphon-dropped"] == "title"
    path = f"/v1/conversations/{answer.json()['id']}"
    assert served.post({"metadata": {}, "n": 1}, path).headers["antiphon-dropped"] == "n"
    tool = {"type": "mcp", "server_label": "x"}
    body = {"items": [QUESTION, {"type": "additional_tools", "tools": [tool]}]}
    added = served.post(body, f"{path}/items")
    assert added.headers["antiphon-dropped"] == "items[1].tools[0]"
    assert added.json()["data"][1]["tools"] == []


CALL = {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}
PICTURE = {"type": "input_image", "image_url": "data:,"}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"items": numbered(0, 21)}, "array_above_max_length", "items"),
        ({"items": "hello"}, "invalid_type", "items"),
        ({"items": [{"role": "user"}]}, "missing_required_parameter", "items[0].content"),
        ({"items": [QUESTION, CALL]}, "unsupported_value", "items[1].type"),
        (
            {"items": [{"role": "user", "content": [PICTURE]}]},
            "unsupported_value",
            "items[0].content[0].type",
        ),
        ({"metadata": {"k": 5}}, "invalid_type", "metadata.k"),
        (
            {"metadata": {f"k{n}": "v" for n in range(17)}},
            "object_above_max_properties",
            "metadata",
        ),
    ],
)
def test_err_01_a_wrong_beginning_is_refused_by_its_place(served, body, code, param):
    error = served.error(body, path="/v1/conversations")
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("", {}, "missing_required_parameter", "metadata"),
        ("", {"metadata": []}, "invalid_type", "metadata"),
        ("/items", {}, "missing_required_parameter", "items"),
        ("/items", {"items": []}, "array_below_min_length", "items"),
        ("/items", {"items": None}, "invalid_type", "items"),
        ("/items", {"items": numbered(0, 21)}, "array_above_max_length", "items"),
    ],
)
def test_err_01_a_wrong_change_is_refused_and_changes_nothing(
    served, client, path, body, code, param
):
    made = client.conversations.create(items=[QUESTION], metadata={"a": "b"})
    error = served.error(body, path=f"/v1/conversations/{made.id}{path}")
    assert (error["code"], error["param"]) == (code, param)
    assert client.conversations.retrieve(made.id) == made
    assert len(client.conversations.items.list(made.id).data) == 1


# Its items


def test_items_are_added_listed_retrieved_and_deleted(client):
    made = client.conversations.create(items=numbered(0, 2))
    added = client.conversations.items.create(made.id, items=numbered(2, 4))
    assert texts(added.data) == ["message 2", "message 3"]
    assert (added.first_id, added.last_id, added.has_more) == ("msg_2", "msg_3", False)
    listed = client.conversations.items.list(made.id, order="asc").data
    assert texts(listed) == [f"message {n}" for n in range(4)]
    assert listed[2:] == added.data
    assert client.conversations.items.retrieve("msg_1", conversation_id=made.id) == listed[1]
    left = client.conversations.items.delete("msg_1", conversation_id=made.id)
    assert left == client.conversations.retrieve(made.id)
    kept = client.conversations.items.list(made.id, order="asc").data
    assert kept == [listed[0], *listed[2:]]
    for again in (client.conversations.items.retrieve, client.conversations.items.delete):
        with pytest.raises(openai.NotFoundError) as missing:
            again("msg_1", conversation_id=made.id)
        assert (missing.value.code, missing.value.param) == ("item_not_found", "item_id")


def test_items_are_listed_newest_first_twenty_at_a_time(client):
    made = client.conversations.create(items=numbered(0, 20))
    client.conversations.items.create(made.id, items=numbered(20, 25))
    page = client.conversations.items.list(made.id)
    assert texts(page.data) == [f"message {n}" for n in range(24, 4, -1)]
    assert (page.has_more, page.last_id) == (True, "msg_5")


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 4, 5, 9, 10, 100])
def test_the_sdk_pages_through_every_item_once(client, order, limit):
    made = client.conversations.create(items=numbered(0, 10))
    expected = [f"message {n}" for n in range(10)]
    if order == "desc":
        expected.reverse()
    listed = client.conversations.items.list(made.id, order=order, limit=limit)
    assert len(listed.data) == min(limit, 10)
    assert texts(listed) == expected


def test_a_page_begins_after_an_item(client):
    made = client.conversations.create(items=numbered(0, 6))
    page = client.conversations.items.list(made.id, after="msg_2", order="asc", limit=2)
    assert (texts(page.data), page.has_more) == (["message 3", "message 4"], True)
    page = client.conversations.items.list(made.id, after="msg_2", order="desc", limit=2)
    assert (texts(page.data), page.has_more) == (["message 1", "message 0"], False)
    with pytest.raises(openai.BadRequestError) as missing:
        client.conversations.items.list(made.id, after="msg_none")
    assert (missing.value.code, missing.value.param) == ("invalid_value", "after")


def test_items_of_every_kind_are_given_back_complete(served, client, contract):
    given = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}], "id": "msg_mine"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "t", "input": "in"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "out"}],
        },
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    made = client.conversations.create(items=given)
    listed = client.conversations.items.list(made.id, order="asc")
    assert [item.type for item in listed.data] == [item.get("type", "message") for item in given]
    raw = served.http.get(f"/v1/conversations/{made.id}/items?order=asc").json()
    assert contract.accepts("#/components/schemas/ItemList", raw)
    assert raw["data"][1] == {**given[1], "type": "message", "status": "completed"}
    assert raw["data"][7]["content"] == [
        {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    ]
    ids = [item["id"] for item in raw["data"]]
    assert len(set(ids)) == len(ids)
    for item in raw["data"]:
        path = f"/v1/conversations/{made.id}/items/{item['id']}"
        assert served.http.get(path).json() == item


def test_a_reference_is_replaced_by_the_item_it_names(client):
    first = client.conversations.create(items=numbered(0, 1))
    reference = {"type": "item_reference", "id": "msg_0"}
    second = client.conversations.create(items=[reference, QUESTION])
    listed = client.conversations.items.list(second.id, order="asc").data
    assert texts(listed) == ["message 0", QUESTION["content"]]
    client.conversations.items.create(first.id, items=[{"id": listed[1].id}])
    assert texts(client.conversations.items.list(first.id).data)[0] == QUESTION["content"]


def test_a_reference_to_what_is_not_there_is_refused_by_its_place(served, client):
    body = {"items": [QUESTION, {"type": "item_reference", "id": "msg_none"}]}
    error = served.error(body, 404, path="/v1/conversations")
    assert (error["code"], error["param"]) == ("item_not_found", "items[1].id")


# Responses in it


def test_a_response_is_made_in_a_conversation_and_added_to_it(client):
    made = client.conversations.create(items=[{"role": "developer", "content": "Be brief."}])
    response = client.responses.create(
        model="test-model", conversation=made.id, input=QUESTION["content"]
    )
    assert response.conversation is not None and response.conversation.id == made.id
    listed = client.conversations.items.list(made.id, order="asc").data
    assert [item.role for item in listed] == ["developer", "user", "assistant"]
    assert listed[2].id == response.output[0].id
    client.responses.delete(response.id)
    assert client.conversations.items.list(made.id, order="asc").data == listed


def test_while_a_response_is_made_in_a_conversation_it_is_locked(server):
    served = server(scripted({"text": "a"}, {"delay": 600}))
    client = served.sdk()
    made = client.conversations.create(items=numbered(0, 1), metadata={"a": "b"})
    running = client.responses.create(
        model="test-model", conversation=made.id, input="hi", background=True
    )
    for attempt, param in (
        (lambda: client.conversations.delete(made.id), "conversation_id"),
        (lambda: client.conversations.items.create(made.id, items=[QUESTION]), "conversation_id"),
        (
            lambda: client.conversations.items.delete("msg_0", conversation_id=made.id),
            "conversation_id",
        ),
        (
            lambda: client.responses.create(model="test-model", conversation=made.id, input="x"),
            "conversation",
        ),
    ):
        with pytest.raises(openai.ConflictError) as locked:
            attempt()
        assert (locked.value.code, locked.value.param) == ("conversation_locked", param)
        assert locked.value.response.headers["retry-after"] == "1"
    # What changes none of its items goes on.
    assert texts(client.conversations.items.list(made.id).data) == ["message 0"]
    assert client.conversations.update(made.id, metadata={}).metadata == {}
    assert client.responses.cancel(running.id).status == "cancelled"
    client.conversations.items.create(made.id, items=[QUESTION])
    listed = client.conversations.items.list(made.id, order="asc").data
    assert texts(listed)[0] == "message 0" and texts(listed)[-1] == QUESTION["content"]


# Whose it is

OPERATIONS = [
    ("GET", "", None),
    ("POST", "", {"metadata": {}}),
    ("DELETE", "", None),
    ("GET", "/items", None),
    ("POST", "/items", {"items": [QUESTION]}),
    ("GET", "/items/msg_0", None),
    ("DELETE", "/items/msg_0", None),
]


@pytest.mark.parametrize(("method", "place", "body"), OPERATIONS)
def test_sta_14_what_belongs_to_another_looks_like_what_does_not_exist(
    server, tmp_path, method, place, body
):
    file = KeyFile(tmp_path / "keys.toml")
    mine = file.add("mine")
    theirs = file.add("theirs")
    served = server(keys=KeyRing(file))
    owner = served.sdk(api_key=theirs)
    made = owner.conversations.create(items=numbered(0, 1), metadata={"a": "b"})

    def asked(conversation_id: str) -> Any:
        answer = served.http.request(
            method,
            f"/v1/conversations/{conversation_id}{place}",
            headers={"authorization": f"Bearer {mine}"},
            json=body,
        )
        return answer.status_code, json.loads(answer.text.replace(conversation_id, "ID"))

    unknown = "conv_" + "0" * 32
    assert asked(made.id) == asked(unknown)
    assert asked(made.id)[0] == 404
    assert owner.conversations.retrieve(made.id) == made
    assert texts(owner.conversations.items.list(made.id).data) == ["message 0"]


def test_an_item_of_another_cannot_be_referred_to(server, tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    mine = file.add("mine")
    theirs = file.add("theirs")
    served = server(keys=KeyRing(file))
    served.sdk(api_key=theirs).conversations.create(items=numbered(0, 1))
    with pytest.raises(openai.NotFoundError) as missing:
        served.sdk(api_key=mine).conversations.create(items=[{"id": "msg_0"}])
    assert (missing.value.code, missing.value.param) == ("item_not_found", "items[0].id")


# A server that keeps nothing


@pytest.mark.parametrize(("method", "place", "body"), OPERATIONS)
def test_a_server_without_state_has_no_conversation(server, method, place, body):
    served = server(state="off")
    answer = served.http.request(method, f"/v1/conversations/conv_1{place}", json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "conversation_not_found"


def test_a_server_without_state_makes_no_conversation(server):
    error = server(state="off").error({}, 404, path="/v1/conversations")
    assert error["code"] == "unknown_url"
