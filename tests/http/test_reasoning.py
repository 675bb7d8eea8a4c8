"""Reasoning over a real socket: sealed, sent back, hidden, summarised, and as much as is asked."""

import base64
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from asked import AskedModel
from serving import Served, scripted, serve
from working import work

from antiphon.keys import KeyFile, KeyRing
from antiphon.store.keyring import MasterKeyFile
from antiphon.turn import Effort

INCLUDE = ["reasoning.encrypted_content"]
TOOL = {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "list"}
PLAN: list[dict[str, Any]] = [{"reasoning": "secret plan", "pieces": 3}]
CALLS: list[dict[str, Any]] = [*PLAN, {"call": "ls", "arguments": "{}"}]


def lister(**options: Any) -> AskedModel:
    """Reasons and calls `ls`, then says what it has got."""
    return AskedModel(("a.txt", [{"text": "ok"}]), ("", CALLS), **options)


class OtherModel(AskedModel):
    """A model of another family, which knows two efforts and reasons always."""

    family = "other"

    def effort(self, asked: Effort | None) -> Effort | None:
        return "high" if asked in ("high", "xhigh", "max") else "low"


class HabitualModel(AskedModel):
    """A model that reasons in its own way."""

    def effort(self, asked: Effort | None) -> Effort | None:
        return None


def result(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}


def reasoning_of(response: dict[str, Any]) -> dict[str, Any]:
    (item,) = (item for item in response["output"] if item["type"] == "reasoning")
    return dict(item)


def sealed_by(served: Served, **options: Any) -> str:
    """The sealed form of some reasoning."""
    body = {"input": [USER], "include": INCLUDE, "store": False, "tools": [TOOL]}
    sealed: str = reasoning_of(served.create(body, **options))["encrypted_content"]
    return sealed


def replay(sealed: str, **fields: Any) -> dict[str, Any]:
    """A request with reasoning as a client sends it back that keeps no ids."""
    item = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    said = {"role": "assistant", "content": "Hm."}
    return {"input": [USER, item, said, USER], "store": False, **fields}


# The loop of a client that keeps everything itself


@pytest.mark.parametrize("settings", [{}, {"state": "off"}, {"hide_reasoning": True}])
@pytest.mark.parametrize("ids", [True, False], ids=["with-ids", "without-ids"])
def test_rsn_04_a_stateless_tool_loop_carries_its_reasoning_sealed(
    server: Callable[..., Served], settings: dict[str, Any], ids: bool
):
    model = lister()
    client = server(model, **settings).sdk()
    asked: dict[str, Any] = {"model": "test-model", "store": False, "tools": [TOOL]}
    history: list[Any] = [USER]
    with client.responses.stream(input=history, include=INCLUDE, **asked) as stream:
        events = list(stream)
    (done,) = (
        event.item
        for event in events
        if event.type == "response.output_item.done" and event.item.type == "reasoning"
    )
    response = events[-1].response
    assert response.output[0].encrypted_content == done.encrypted_content
    assert "secret" not in str(base64.urlsafe_b64decode(done.encrypted_content))
    items = [item.to_dict() for item in response.output]
    for item in items:
        item.pop("content", None)
        if not ids:
            item.pop("id")
    history += [*items, result(items[-1])]
    answer = client.responses.create(input=history, include=INCLUDE, **asked)
    assert answer.output_text == "ok"
    assert model.last == [
        ("user", "list"),
        ("reasoning", "secret plan"),
        ("call", "ls {}"),
        ("result", "a.txt"),
    ]


@pytest.mark.parametrize("mode", [{}, {"store": False}, {"background": True}, {"stream": True}])
def test_rsn_04_without_the_wish_nothing_is_sealed(
    server: Callable[..., Served], mode: dict[str, Any]
):
    answer = server(scripted(*CALLS)).post({"input": [USER], "tools": [TOOL], **mode})
    assert answer.status_code == 200
    assert "encrypted_content" not in answer.text


def test_the_sealed_form_is_the_same_wherever_the_item_is_shown(
    server: Callable[..., Served], state: dict[str, Any]
):
    served = server(scripted(*PLAN, {"text": "ok"}), **state)
    conversation = served.post({}, "/v1/conversations").json()["id"]
    stream = served.stream({"input": "hi", "include": INCLUDE, "conversation": conversation})
    (added, _) = stream.of("response.output_item.added")
    assert "encrypted_content" not in added["item"]
    done = stream.of("response.output_item.done")[0]["item"]
    assert len(done["encrypted_content"]) > 40
    response_id = stream.response["id"]
    last = served.create({"input": "again", "previous_response_id": response_id})
    listed = served.http.get(f"/v1/responses/{last['id']}/input_items?order=asc").json()["data"]
    kept = served.http.get(f"/v1/conversations/{conversation}/items?order=asc").json()["data"]
    for shown in (
        stream.response["output"][0],
        served.stored(response_id)["output"][0],
        served.replay(response_id).response["output"][0],
        listed[1],
        kept[1],
        served.http.get(f"/v1/conversations/{conversation}/items/{done['id']}").json(),
    ):
        assert shown == done


def test_reasoning_that_is_cut_off_is_sealed_as_far_as_it_came(server: Callable[..., Served]):
    model = AskedModel(("list", PLAN), ("", [{"text": "ok"}]))
    served = server(model, min_output_tokens=1)
    body = {"input": [USER], "include": INCLUDE, "max_output_tokens": 2, "store": False}
    response = served.create(body)
    assert response["status"] == "incomplete"
    item = reasoning_of(response)
    assert item["status"] == "incomplete"
    served.create({"input": [USER, {**item, "content": None}, {"role": "user", "content": "on"}]})
    assert model.last[1] == ("reasoning", "secret")


def test_sealed_reasoning_counts_as_what_it_holds(server: Callable[..., Served]):
    served = server(lister())
    body = replay(sealed_by(served))
    counted = served.post({"input": body["input"]}, "/v1/responses/input_tokens").json()
    plain = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "secret plan"}]}
    body["input"][1] = plain
    assert counted["input_tokens"] == served.create(body)["usage"]["input_tokens"]


@pytest.mark.parametrize("mode", [{}, {"background": True}, {"stream": True}])
def test_what_was_reasoned_is_counted(server: Callable[..., Served], mode: dict[str, Any]):
    served = server(scripted(*PLAN, {"text": "four", "pieces": 1}))
    if mode.get("stream"):
        response = served.stream({"input": "hi"}).response
    else:
        response = served.create({"input": "hi", **mode})
        response = served.replay(response["id"]).response
    usage = response["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 4}
    assert usage["output_tokens"] == 8


# What is refused


def damaged(sealed: str) -> dict[str, str]:
    """A sealed text damaged in every part of it, by the name of the part."""
    data = base64.urlsafe_b64decode(sealed)

    def flipped(place: int) -> str:
        changed = bytearray(data)
        changed[place] ^= 0x40
        return base64.urlsafe_b64encode(changed).decode()

    places = {"version": 0, "key": 3, "nonce": 10, "content": 20, "tag": len(data) - 1}
    return {
        **{name: flipped(place) for name, place in places.items()},
        "cut": base64.urlsafe_b64encode(data[:-1]).decode(),
        "longer": base64.urlsafe_b64encode(data + b"x").decode(),
        "no-base64": "!" + sealed[1:],
        "foreign": "gAAAAABpAGzY" + "x" * 60,
    }


@pytest.mark.parametrize("part", sorted(damaged("A" * 400)))
def test_damaged_reasoning_is_refused_at_its_place(server: Callable[..., Served], part: str):
    served = server(lister())
    body = replay(damaged(sealed_by(served))[part])
    error = served.error(body)
    assert error["code"] == "invalid_encrypted_content"
    assert error["param"] == "input[1].encrypted_content"
    assert served.error({**body, "stream": True}) == error
    assert served.error({"input": body["input"], "store": True, "background": True}) == error
    assert served.error({"input": body["input"]}, path="/v1/responses/input_tokens") == error


def test_damaged_reasoning_cannot_be_put_into_a_conversation(server: Callable[..., Served]):
    served = server(lister())
    items = replay(damaged(sealed_by(served))["tag"])["input"]
    error = served.error({"items": items}, path="/v1/conversations")
    assert error["code"] == "invalid_encrypted_content"
    assert error["param"] == "items[1].encrypted_content"
    conversation = served.post({}, "/v1/conversations").json()["id"]
    path = f"/v1/conversations/{conversation}/items"
    assert served.error({"items": items}, path=path) == error
    assert served.http.get(path).json()["data"] == []


def test_rsn_04_sealed_reasoning_is_of_no_use_to_another_key(tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    anna, bert = ({"authorization": f"Bearer {file.add(name)}"} for name in ("anna", "bert"))
    with serve(lister(), keys=KeyRing(file)) as served:
        sealed = sealed_by(served, headers=anna)
        error = served.error(replay(sealed), headers=bert)
        assert (error["code"], error["param"]) == (
            "invalid_encrypted_content",
            "input[1].encrypted_content",
        )
        served.create(replay(sealed), headers=anna)


# Keys


@pytest.mark.parametrize("where", ["data-folder", "key-file", "encryption-keys"])
def test_rsn_04_another_process_of_the_deployment_opens_it(tmp_path, where: str):
    settings: dict[str, Any] = {"state": "sqlite", "data_dir": tmp_path}
    if where == "key-file":
        settings = {"state": "off", "reasoning_keys_file": tmp_path / "reasoning.toml"}
    elif where == "encryption-keys":
        settings["encryption_keys_file"] = tmp_path / "ring.toml"
        MasterKeyFile(tmp_path / "ring.toml").create()
    model = lister()
    with serve(lister(), **settings) as one, serve(model, **settings) as two:
        sealed = sealed_by(one)
        two.create(replay(sealed))
        assert model.last[1] == ("reasoning", "secret plan")
    with serve(model, **settings) as later:
        later.create(replay(sealed))
    assert (tmp_path / "reasoning-keys.toml").exists() is (where == "data-folder")


def test_a_server_that_stores_nothing_has_keys_of_its_own():
    with serve(lister(), state="off") as one, serve(lister(), state="off") as two:
        assert two.error(replay(sealed_by(one)))["code"] == "invalid_encrypted_content"


def test_keys_are_rotated(tmp_path):
    settings: dict[str, Any] = {"reasoning_keys_file": tmp_path / "reasoning.toml"}
    ring = MasterKeyFile(settings["reasoning_keys_file"])
    with serve(lister(), **settings) as served:
        old = sealed_by(served)
    ring.add()
    with serve(lister(), **settings) as served:
        new = sealed_by(served)
        served.create(replay(old))
        served.create(replay(new))
    ring.remove(ring.read().keys[1].id, {})
    with serve(lister(), **settings) as served:
        served.create(replay(new))
        error = served.error(replay(old))
        assert error["code"] == "invalid_encrypted_content"


def test_stored_reasoning_outlives_its_key(tmp_path):
    keys = tmp_path / "reasoning.toml"
    settings: dict[str, Any] = {
        "state": "sqlite",
        "data_dir": tmp_path,
        "reasoning_keys_file": keys,
    }
    with serve(scripted(*PLAN, {"text": "ok"}), **settings) as served:
        first = served.create({"input": "hi", "include": INCLUDE})
    keys.unlink()
    model = lister()
    with serve(model, **settings) as served:
        served.create({"input": "a.txt", "previous_response_id": first["id"]})
    assert ("reasoning", "secret plan") in model.last


# What brings reasoning besides


def test_reasoning_may_be_sealed_in_a_response_that_continues_another(
    server: Callable[..., Served],
):
    model = lister()
    served = server(model)
    body = {"input": [USER], "include": INCLUDE, "tools": [TOOL]}
    first = served.create(body)
    result_ = result(first["output"][-1])
    served.create({**body, "input": [result_], "previous_response_id": first["id"]})
    assert model.last[1] == ("reasoning", "secret plan")


def test_with_the_strict_rules_it_is_one_or_the_other(server: Callable[..., Served]):
    served = server(lister(), history_rules="strict")
    first = served.create({"input": "a.txt", "include": INCLUDE})
    body = {"input": "a.txt", "previous_response_id": first["id"], "include": INCLUDE}
    error = served.error(body)
    assert (error["code"], error["param"]) == ("invalid_value", "include")


def test_a_conversation_keeps_sealed_reasoning_for_the_model(server: Callable[..., Served]):
    model = lister()
    served = server(model, hide_reasoning=True)
    items = replay(sealed_by(served))["input"]
    conversation = served.post({"items": items}, "/v1/conversations").json()["id"]
    served.create({"input": "a.txt", "conversation": conversation})
    assert model.last[1] == ("reasoning", "secret plan")


def test_another_family_s_model_is_not_shown_it(server: Callable[..., Served]):
    other = OtherModel(("", [{"text": "ok"}]), name="other")
    served = server(lister(), other)
    body = replay(sealed_by(served, headers={}), model="other")
    served.create(body)
    assert [who for who, _ in other.last] == ["user", "assistant", "user"]


# Background, and other processes


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request, tmp_path) -> dict[str, Any]:
    settings: dict[str, Any] = {"state": request.param, "data_dir": tmp_path, "lease_seconds": 3}
    if request.param == "postgres":
        settings["database_url"] = request.getfixturevalue("postgres_url")
    return settings


def front_of(served: Served, num_models: int) -> Served:
    """A front, once its worker has told it of so many models."""
    deadline = time.monotonic() + 20
    while len(served.http.get("/v1/models").json()["data"]) < num_models:
        assert time.monotonic() < deadline, "nobody tells of any"
        time.sleep(0.02)
    return served


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_a_worker_seals_what_its_front_checks(
    server: Callable[..., Served], storage: dict[str, Any], background: bool, hides: bool
):
    model = lister()
    with work(model, **storage, hide_reasoning=hides):
        served = front_of(server(engine=False, **storage, hide_reasoning=hides), 1)
        asked = {"tools": [TOOL], "include": INCLUDE, "background": background}
        first = served.stream({"input": [USER], **asked}).response
        thought, call = first["output"]
        assert served.stored(first["id"])["output"][0] == thought
        again = [USER, {**thought, "id": None, "content": None}, call, result(call)]
        last = served.stream({"input": again, **asked}).response
        assert last["output"][0]["content"][0]["text"] == "ok"
        assert model.last[1] == ("reasoning", "secret plan")
        again[1]["encrypted_content"] = damaged(thought["encrypted_content"])["tag"]
        assert served.error({"input": again, **asked})["code"] == "invalid_encrypted_content"


# Hidden reasoning


@pytest.mark.parametrize("mode", [{}, {"background": True}, {"store": False}])
def test_hidden_reasoning_is_nowhere_to_be_read(
    server: Callable[..., Served], every_state: dict[str, Any], mode: dict[str, Any]
):
    served = server(scripted(*PLAN, {"text": "ok"}), **every_state, hide_reasoning=True)
    streamed = served.post({"input": "hi", "stream": True, **mode})
    assert "response.reasoning_text" not in streamed.text
    shown = [streamed.text, served.post({"input": "hi", **mode}).text]
    if mode.get("store", True):
        conversation = served.post({}, "/v1/conversations").json()["id"]
        body = {"input": "hi", "conversation": conversation}
        first = served.stream(body).response
        again = served.create({"input": "hi", "previous_response_id": first["id"]})
        items = served.http.get(f"/v1/conversations/{conversation}/items").json()["data"]
        (thought,) = (item for item in items if item["type"] == "reasoning")
        assert thought == reasoning_of(first)
        assert (thought["content"], thought["summary"]) == ([], [])
        paths = (
            f"responses/{first['id']}",
            f"responses/{first['id']}?stream=true",
            f"responses/{again['id']}/input_items",
            f"conversations/{conversation}/items",
            f"conversations/{conversation}/items/{thought['id']}",
        )
        shown += [served.http.get(f"/v1/{path}").text for path in paths]
        cancelled = served.post({}, f"/v1/responses/{first['id']}/cancel")
        shown += [json.dumps([first, again, items]), cancelled.text]
    for text in shown:
        assert "secret" not in text and "encrypted" not in text


def test_hidden_reasoning_is_there_for_what_continues_it(
    server: Callable[..., Served], every_state: dict[str, Any]
):
    model = lister()
    served = server(model, **every_state, hide_reasoning=True)
    first = served.create({"input": [USER], "tools": [TOOL]})
    thought, call = first["output"]
    served.create({"input": [result(call)], "previous_response_id": first["id"]})
    assert model.last[1] == ("reasoning", "secret plan")
    # A client that sends the history itself has got nothing but the item's id.
    for sent in (thought, {"type": "item_reference", "id": thought["id"]}):
        last = served.create({"input": [USER, sent, call, result(call)]})
        assert model.last[1] == ("reasoning", "secret plan")
        listed = served.http.get(f"/v1/responses/{last['id']}/input_items?order=asc").json()
        assert listed["data"][1] == thought


def test_hidden_reasoning_is_sealed_if_that_is_asked_for(server: Callable[..., Served]):
    served = server(scripted(*PLAN, {"text": "ok"}), hide_reasoning=True)
    client = served.sdk()
    with client.responses.stream(model="test-model", input="hi", include=INCLUDE) as stream:
        events = list(stream)
    assert not any(event.type.startswith("response.reasoning") for event in events)
    thought = events[-1].response.output[0]
    assert (thought.content, thought.summary) == ([], [])
    assert thought.encrypted_content
    assert client.responses.retrieve(events[-1].response.id).output[0] == thought


# Summaries


def test_the_reasoning_is_given_as_its_summary_where_that_is_set(server: Callable[..., Served]):
    client = server(scripted(*PLAN, {"text": "ok"}), reasoning_summary="raw").sdk()
    with client.responses.stream(
        model="test-model", input="hi", reasoning={"summary": "auto", "effort": "low"}
    ) as stream:
        events = list(stream)
    deltas = [e.delta for e in events if e.type == "response.reasoning_summary_text.delta"]
    assert deltas == ["sec", "ret", " pl", "an"]
    (part,) = (e.part for e in events if e.type == "response.reasoning_summary_part.done")
    (text,) = (e.text for e in events if e.type == "response.reasoning_summary_text.done")
    response = events[-1].response
    assert part.text == text == response.output[0].summary[0].text == "secret plan"
    assert response.output[0].content[0].text == "secret plan"
    assert response.reasoning.to_dict() == {"effort": "low", "summary": "detailed"}
    assert client.responses.retrieve(response.id).output[0] == response.output[0]
    without = client.responses.create(model="test-model", input="hi")
    assert (without.output[0].summary, without.reasoning.summary) == ([], None)


def test_summaries_are_left_out_and_named_otherwise(server: Callable[..., Served]):
    body = {"input": "hi", "reasoning": {"summary": "auto"}}
    answer = server(scripted(*PLAN, {"text": "ok"})).post(body)
    assert answer.headers["antiphon-dropped"] == "reasoning.summary"
    assert reasoning_of(answer.json())["summary"] == []
    error = server(scripted(*PLAN), strict=True).error(body)
    assert (error["code"], error["param"]) == ("unsupported_parameter", "reasoning.summary")


def test_a_summary_that_comes_back_is_not_taken_for_the_reasoning(server: Callable[..., Served]):
    model = lister()
    served = server(model, reasoning_summary="raw")
    body = {"input": [USER], "include": INCLUDE, "reasoning": {"summary": "auto"}, "store": False}
    thought = reasoning_of(served.create({**body, "tools": [TOOL]}))
    served.create({"input": [USER, {**thought, "content": None}, USER]})
    assert model.last == [("user", "list"), ("reasoning", "secret plan"), ("user", "list")]
    thought = {**thought, "content": None, "encrypted_content": None}
    served.create({"input": [USER, thought, USER]})
    assert model.last == [("user", "list"), ("user", "list")]


# Effort


def test_the_effort_none_gives_no_reasoning(server: Callable[..., Served]):
    served = server(scripted(*PLAN, {"text": "ok"}))
    response = served.create({"input": "hi", "reasoning": {"effort": "none"}})
    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["reasoning"]["effort"] == "none"
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize(
    ("asked", "effective"),
    [(None, "low"), ("none", "low"), ("low", "low"), ("xhigh", "high"), ("max", "high")],
)
def test_the_model_is_asked_for_the_effort_that_is_told(
    server: Callable[..., Served], asked: str | None, effective: str
):
    model = OtherModel(("", [{"text": "ok"}]))
    response = server(model).create({"input": "hi", "reasoning": {"effort": asked}})
    assert response["reasoning"]["effort"] == model.turns[-1].effort == effective


def test_an_effort_without_effect_is_left_out_and_named(server: Callable[..., Served]):
    model = HabitualModel(("", [{"text": "ok"}]))
    body = {"input": "hi", "reasoning": {"effort": "high"}}
    answer = server(model).post(body)
    assert answer.headers["antiphon-dropped"] == "reasoning.effort"
    assert answer.json()["reasoning"] == {"effort": None, "summary": None}
    error = server(HabitualModel(("", [])), strict=True).error(body)
    assert (error["code"], error["param"]) == ("unsupported_parameter", "reasoning.effort")


@pytest.mark.parametrize("effort", ["none", None])
def test_no_effort_is_no_wish_that_could_be_left_out(
    server: Callable[..., Served], effort: str | None
):
    served = server(HabitualModel(("", [{"text": "ok"}])), strict=True)
    answer = served.post({"input": "hi", "reasoning": {"effort": effort}})
    assert answer.status_code == 200 and "antiphon-dropped" not in answer.headers


def test_a_front_tells_the_effort_that_its_worker_s_model_has(
    server: Callable[..., Served], tmp_path
):
    storage: dict[str, Any] = {"state": "sqlite", "data_dir": tmp_path, "lease_seconds": 3}
    other = OtherModel(("", [{"text": "ok"}]), name="other")
    with ExitStack() as workers:
        workers.enter_context(work(other, HabitualModel(("", [{"text": "ok"}])), **storage))
        served = front_of(server(engine=False, **storage), 2)
        body = {"input": "hi", "reasoning": {"effort": "max"}}
        assert served.create({**body, "model": "other"})["reasoning"]["effort"] == "high"
        assert other.turns[-1].effort == "high"
        answer = served.post({**body, "model": "test-model"})
        assert answer.headers["antiphon-dropped"] == "reasoning.effort"
        assert answer.json()["reasoning"]["effort"] is None
