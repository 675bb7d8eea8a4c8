"""Stored responses as resources: retrieved whole, continued, listed, deleted, lost and found."""

import asyncio
import json
import re
import socket
import sqlite3
import threading
import time

import pytest
from asked import AskedModel
from gated import GatedModel
from serving import scripted

from antiphon.store.failures import StoreUnavailable
from antiphon.turn import Finish, TextDelta

PREVIOUS = ("previous_response_not_found", "previous_response_id")
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
EVERY_FIELD = {
    "model": "alias",
    "input": [{"role": "user", "content": "x", "id": "msg_mine"}],
    "instructions": "Be brief.\n\u2028é\U0001f600",
    "metadata": {"a": "1", "é": "\U0001f600"},
    "temperature": 0.25,
    "top_p": 0.75,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "top_logprobs": 2,
    "max_output_tokens": 1000,
    "max_tool_calls": 3,
    "parallel_tool_calls": False,
    "truncation": "auto",
    "service_tier": "flex",
    "safety_identifier": "someone",
    "prompt_cache_key": "cache",
    "prompt_cache_retention": "24h",
    "tools": [WEATHER],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
}


def sweeper(served):
    return served.application._kept._store.sweeper


# Retrieving


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("fields", [EVERY_FIELD, {"input": "x"}], ids=["every", "none"])
def test_every_field_comes_back_as_it_was_answered(every_state, server, fields, background):
    call = {"call": "get_weather", "arguments": '{"city":"Oslo"}'}
    model = scripted({"reasoning": "hm"}, {"text": "ok"}, call)
    served = server(model, aliases={"alias": "test-model"}, **every_state)
    body = {"tools": [WEATHER], **fields, "background": background}
    live = served.stream(body)
    assert live.response["status"] == "completed"
    assert served.stored(live.response["id"]) == live.response
    made = served.create(body)
    if background:
        made = {**served.replay(made["id"]).response}
    stored = served.stored(made["id"])
    assert stored == made
    assert list(stored) == list(made)  # In the same order, too.
    assert stored["store"] is True
    unlike = {"id", "created_at", "completed_at", "output"}
    assert {k: v for k, v in live.response.items() if k not in unlike} == {
        k: v for k, v in stored.items() if k not in unlike
    }
    for name in ("metadata", "instructions", "temperature", "top_p", "max_output_tokens",
                 "safety_identifier", "truncation", "model"):  # fmt: skip
        if name in fields:
            assert stored[name] == fields[name]


def test_large_items_come_back_whole(every_state, server):
    text = "\U0001f600 and more, " * 20_000
    model = AskedModel(("", [{"echo": True}]))
    served = server(model, max_event_bytes=2**24, **every_state)
    made = served.create({"input": text})
    stored = served.stored(made["id"])
    assert stored == made
    assert stored["output"][0]["content"][0]["text"] == text
    items = served.http.get(f"/v1/responses/{made['id']}/input_items").json()["data"]
    assert items[0]["content"][0]["text"] == text
    served.create({"previous_response_id": made["id"], "input": "on"})
    assert [said for _, said in model.last] == [text, text, "on"]


# Continuing


def test_what_failed_or_was_cancelled_cannot_be_continued(every_state, server):
    model = AskedModel(("fail", [{"text": "a"}, {"fail": "x"}]), ("", [{"text": "ok"}]))
    served = server(model, GatedModel(), **every_state)
    failed = served.create({"input": "fail"})
    cancelled = served.create({"input": "x", "model": "gated", "background": True})
    served.http.post(f"/v1/responses/{cancelled['id']}/cancel")
    turns = len(model.turns)
    messages = set()
    for response_id in (failed["id"], cancelled["id"], "resp_none"):
        for extra in ({}, {"stream": True}, {"background": True}, {"store": False}):
            error = served.error({"input": "on", "previous_response_id": response_id, **extra})
            assert (error["code"], error["param"]) == PREVIOUS
            messages.add(re.sub(r"'\w+'", "…", error["message"]))
    assert len(messages) == 1
    assert len(model.turns) == turns


def test_what_has_expired_is_gone_everywhere(every_state, server):
    now = [0.0]
    model = scripted({"text": "ok"})
    served = server(model, retention_seconds=100, clock=lambda: time.time() + now[0], **every_state)
    made = served.create({"input": "x"})
    now[0] = 90
    assert served.stored(made["id"]) == made
    now[0] = 110
    path = f"/v1/responses/{made['id']}"
    for swept in (0, 1):
        for method, tail in (
            ("GET", ""),
            ("GET", "?stream=true"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ):
            assert served.http.request(method, path + tail).status_code == 404
        error = served.error({"input": "on", "previous_response_id": made["id"]})
        assert (error["code"], error["param"]) == PREVIOUS
        reference = {"type": "item_reference", "id": made["output"][0]["id"]}
        assert served.error({"input": [reference]}, 404)["code"] == "item_not_found"
        assert served.on_loop(sweeper(served).sweep()).responses == 1 - swept
    counts = served.http.get("/v1/status").json()["store"]["counts"]
    assert (counts["responses"], counts["items"], counts["events"]) == (0, 0, 0)


def test_what_is_continued_lives_on_in_what_continues_it(state, server):
    now = [0.0]
    model = AskedModel(("", [{"echo": True}]))
    served = server(model, retention_seconds=100, clock=lambda: time.time() + now[0], **state)
    first = served.create({"input": "one"})
    now[0] = 60
    second = served.create({"input": "two", "previous_response_id": first["id"]})
    now[0] = 120
    served.on_loop(sweeper(served).sweep())
    assert served.http.get(f"/v1/responses/{first['id']}").status_code == 404
    served.create({"input": "three", "previous_response_id": second["id"]})
    assert [said for _, said in model.last] == ["one", "one", "two", "two", "three"]


def test_a_chain_and_its_bytes_have_an_end(state, server):
    served = server(scripted({"text": "ok"}), max_chain_depth=2, max_entry_bytes=20_000, **state)
    first = served.create({"input": "x"})
    second = served.create({"input": "x", "previous_response_id": first["id"]})
    error = served.error({"input": "x", "previous_response_id": second["id"]})
    assert (error["code"], error["param"]) == ("chain_too_long", "previous_response_id")
    large = served.create({"input": "x" * 12_000})
    body = {"input": "x" * 12_000, "previous_response_id": large["id"]}
    error = served.error(body, 413)
    assert (error["code"], error["param"]) == ("history_too_large", "input")
    assert served.error({"input": "x" * 30_000}, 413)["code"] == "history_too_large"
    assert served.create({"input": "x", "previous_response_id": large["id"]})


def test_records_are_limited_and_those_used_longest_ago_go(state, server):
    now = [0.0]
    served = server(max_records=3, clock=lambda: time.time() + now[0], **state)
    made = []
    for number in range(3):
        now[0] = 100 * number
        made.append(served.create({"input": str(number)})["id"])
    now[0] = 500
    served.stored(made[0])
    now[0] = 600
    made.append(served.create({"input": "3"})["id"])
    there = [served.http.get(f"/v1/responses/{one}").status_code == 200 for one in made]
    assert there == [True, False, True, True]
    store = served.http.get("/v1/status").json()["store"]
    assert store["counters"]["evictions"] == 1


def test_histories_in_hand_are_limited(server):
    gate = threading.Event()
    model = AskedModel(("", [{"text": "ok"}]))
    prepare = model.prepare

    async def slow(turn):
        if len(turn.messages) > 1:
            await asyncio.get_running_loop().run_in_executor(None, gate.wait, 30)
        return await prepare(turn)

    model.prepare = slow
    served = server(model, max_history_bytes=20_000)
    first = served.create({"input": "x" * 15_000})
    body = {"input": "on", "previous_response_id": first["id"]}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(served.post(body)))
    thread.start()
    for _ in range(2000):
        if served.http.get("/v1/status").json()["store"]["history_bytes_in_use"]:
            break
    answer = served.post(body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "history_busy"
    assert int(answer.headers["retry-after"]) >= 1
    gate.set()
    thread.join()
    assert answers[0].status_code == 200
    assert served.post(body).status_code == 200
    assert served.http.get("/v1/status").json()["store"]["history_bytes_in_use"] == 0


# Input items


def test_input_items_are_listed_in_pages(every_state, server):
    served = server(scripted({"text": "ok"}), **every_state)
    client = served.sdk()
    given = [{"role": "user", "content": f"n{n}", "id": f"msg_{n}"} for n in range(25)]
    first = served.create({"input": given})
    made = served.create({"input": "last", "previous_response_id": first["id"]})
    whole = [item.id for item in client.responses.input_items.list(made["id"], order="asc")]
    assert whole[:25] == [item["id"] for item in given]
    assert whole[25] == first["output"][0]["id"]
    assert len(whole) == 27
    back = [item.id for item in client.responses.input_items.list(made["id"], limit=4)]
    assert back == whole[::-1]
    page = client.responses.input_items.list(made["id"])
    assert len(page.data) == 20
    assert (page.first_id, page.last_id, page.has_more) == (back[0], back[19], True)
    page = client.responses.input_items.list(made["id"], order="asc", after=whole[24], limit=100)
    assert [item.id for item in page.data] == whole[25:]
    assert page.has_more is False
    empty = client.responses.input_items.list(made["id"], order="asc", after=whole[-1])
    assert (empty.data, empty.has_more) == ([], False)
    path = f"/v1/responses/{made['id']}/input_items"
    include = "include[]=reasoning.encrypted_content&include[]=message.output_text.logprobs"
    assert served.http.get(f"{path}?{include}&order=asc&limit=100").json()["data"][0]["id"] == (
        "msg_0"
    )
    wrong = served.http.get(f"{path}?after=msg_none").json()["error"]
    assert (wrong["code"], wrong["param"]) == ("invalid_value", "after")
    # Its own output is not its input.
    assert made["output"][0]["id"] not in whole


def test_an_id_that_is_taken_by_another_content_is_replaced(state, server):
    served = server(scripted({"text": "ok"}), **state)
    ids = []
    for text in ("one", "one", "two"):
        made = served.create({"input": [{"role": "user", "content": text, "id": "msg_same"}]})
        page = served.http.get(f"/v1/responses/{made['id']}/input_items").json()
        assert page["data"][0]["content"][0]["text"] == text
        ids.append(page["data"][0]["id"])
    assert ids[0] == ids[1] == "msg_same"
    assert ids[2] != "msg_same"


# Storage that fails


def damage(folder, table, column):
    connection = sqlite3.connect(folder / "antiphon.db")
    with connection:
        connection.execute(f"UPDATE {table} SET {column} = substr({column}, 1, 20)")
    connection.close()


@pytest.mark.parametrize(("table", "column"), [("responses", "body"), ("items", "body")])
def test_what_cannot_be_read_is_a_503_and_never_made_up_again(server, tmp_path, table, column):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model, state="sqlite", data_dir=tmp_path, history_cache_mib=0)
    made = served.create({"input": "x"}, headers={"idempotency-key": "once"})
    turns = len(model.turns)
    damage(tmp_path, table, column)
    path = f"/v1/responses/{made['id']}"
    reads = [served.http.get(path)]
    if table == "items":
        reads += [served.http.get(f"{path}/input_items")]
        reads += [served.post({"input": "on", "previous_response_id": made["id"]})]
        reads += [served.post({"input": [{"id": made["output"][0]["id"]}]})]
    reads += [served.post({"input": "x"}, headers={"idempotency-key": "once"})]
    for answer in reads:
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "storage_corrupt"
    assert len(model.turns) == turns
    assert served.http.delete(path).status_code == 200
    assert served.create({"input": "x"})["status"] == "completed"


def failing_writes(served):
    """Have every commit fail from now on."""

    async def write(*_, **__):
        raise StoreUnavailable("the disk is full")

    database = served.application._kept._store.shared.db
    database.write = write


def test_err_02_storage_that_fails_meanwhile_ends_the_stream_as_failed(state, server):
    model = GatedModel()
    served = server(model, **state)
    with served.http.stream("POST", "/v1/responses", json={"input": "x", "stream": True}) as live:
        chunks = live.iter_text()
        seen = next(chunks)
        while "in_progress" not in seen:
            seen += next(chunks)
        failing_writes(served)
        model.say(TextDelta("never stored"), Finish("stop"))
        seen += "".join(chunks)
    kinds = re.findall("^event: (.*)$", seen, re.M)
    assert kinds[-2:] == ["error", "response.failed"]
    assert '"code":"storage_unavailable"' in seen
    assert "never stored" not in seen
    assert "response.completed" not in kinds
    assert seen.endswith("data: [DONE]\n\n")


def test_err_02_storage_that_fails_meanwhile_is_a_503(state, server):
    model = GatedModel()
    served = server(model, **state)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(served.post({"input": "x"})))
    thread.start()
    assert model.started.wait(10)
    failing_writes(served)
    model.say(TextDelta("never stored"), Finish("stop"))
    thread.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "storage_unavailable"
    # Nor is anything begun that could not be kept; what is not to be stored goes on.
    assert served.error({"input": "x"}, 503)["code"] == "storage_unavailable"
    assert served.error({"input": "x", "background": True}, 503)
    model.say(Finish("stop"))
    assert served.create({"input": "x", "store": False})["status"] == "completed"


# Callers that leave


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", [False, True])
def test_net_02_a_stored_response_is_finished_without_its_caller_unless_told_otherwise(
    every_state, server, stop, stream
):
    model = GatedModel()
    served = server(model, stop_on_disconnect=stop, **every_state)
    host, port = served.url.removeprefix("http://").split(":")
    content = json.dumps({"input": "x", "stream": stream}).encode()
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(content), content)
        )
        assert model.started.wait(10)
        (response_id,) = served.application._kept.worker._live
        model.say(TextDelta("one "))
    if stop:
        assert model.stopped.wait(10)
    else:
        model.say(TextDelta("two"), Finish("stop"))
    events = served.replay(response_id)
    stored = served.stored(response_id)
    if stop:
        assert stored["status"] == "cancelled"
        assert events.types[-1] == "error"
    else:
        assert stored == events.response
        assert (stored["status"], events.text()) == ("completed", "one two")
