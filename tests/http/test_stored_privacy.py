"""What is not to be stored leaves nothing behind, and what is stored belongs to its key."""

import re
import sqlite3

import openai
import pytest
from asked import AskedModel
from serving import scripted

from antiphon.keys import KeyFile, KeyRing

SECRET = "my secret errand"
ANSWER = "a private answer"
PREVIOUS = ("previous_response_not_found", "previous_response_id")
#: Larger than what the database keeps in itself.
LARGE = " ".join(f"{SECRET} {number}" for number in range(8000))


@pytest.fixture
def keys(tmp_path):
    """Two keys, `keys.a` and `keys.b`."""
    file = KeyFile(tmp_path / "keys.toml")
    ring = KeyRing(file)
    ring.a, ring.b = file.add("a"), file.add("b")
    return ring


def bearer(key):
    return {"headers": {"authorization": f"Bearer {key}"}}


def found(folder, *words):
    """The files under a folder in which any of some words stand."""
    return [
        (file.name, word)
        for file in folder.rglob("*")
        if file.is_file()
        for word in words
        if word.encode() in file.read_bytes()
    ]


def rows(folder):
    """How many rows each table of the database has, those that are not about content left out."""
    connection = sqlite3.connect(folder / "antiphon.db")
    try:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if not re.match("sqlite_|antiphon_version|workers", name)
        ]
        return {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in tables
        }
    finally:
        connection.close()


# store: false


@pytest.mark.parametrize("text", [SECRET, LARGE], ids=["small", "large"])
def test_sta_06_unstored_responses_leave_no_byte_behind(server, tmp_path, text):
    model = AskedModel(
        ("fail", [{"text": ANSWER}, {"fail": "x"}]),
        ("", [{"reasoning": ANSWER}, {"text": ANSWER}, {"call": "f", "arguments": f'"{ANSWER}"'}]),
    )
    served = server(model, state="sqlite", data_dir=tmp_path)
    body = {
        "input": text,
        "instructions": f"{SECRET} too",
        "metadata": {"k": SECRET},
        "prompt_cache_key": SECRET,
        "user": SECRET,
        "tools": [{"type": "function", "name": "f", "description": SECRET}],
        "store": False,
    }
    made = [served.create(body), served.stream(body).response]
    made += [served.create({**body, "input": f"fail {text}"})]
    made += [served.stream({**body, "input": f"fail {text}"}).response]
    served.post({**body, "input": [{"role": "user", "content": SECRET}, {"type": SECRET}]})
    served.post({**body, "background": True})
    for response in made:
        assert response["store"] is False
        path = f"/v1/responses/{response['id']}"
        for method, tail in (
            ("GET", ""),
            ("GET", "?stream=true"),
            ("GET", "/input_items"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ):
            assert served.http.request(method, path + tail).status_code == 404
        error = served.error({"previous_response_id": response["id"], "input": "again"})
        assert (error["code"], error["param"]) == PREVIOUS
    served.post(body, headers={"idempotency-key": "once"})
    # While it runs, the write-ahead log included, and in the log; and after it.
    assert found(tmp_path, SECRET, ANSWER) == []
    assert {name for name, number in rows(tmp_path).items() if number} == set()


def test_sta_06_unstored_responses_are_never_logged(server, tmp_path, capsys):
    served = server(scripted({"text": ANSWER}), state="sqlite", data_dir=tmp_path, log_content=True)
    served.create({"input": SECRET, "store": False})
    served.stream({"input": SECRET, "metadata": {"k": SECRET}, "store": False})
    logged = capsys.readouterr()
    assert "request" in logged.out
    assert SECRET not in logged.out + logged.err
    assert ANSWER not in logged.out + logged.err


def test_sta_06_the_search_would_find_what_is_stored(server, tmp_path, capsys):
    served = server(scripted({"text": ANSWER}), state="sqlite", data_dir=tmp_path, log_content=True)
    served.create({"input": SECRET})
    assert {word for _, word in found(tmp_path, SECRET, ANSWER)} == {SECRET, ANSWER}
    logged = capsys.readouterr().out
    assert SECRET in logged
    assert ANSWER in logged


def test_sta_06_unstored_may_continue_what_is_stored(every_state, server):
    model = AskedModel(("", [{"text": ANSWER}]))
    served = server(model, **every_state)
    first = served.create({"input": "hello"})
    body = {"previous_response_id": first["id"], "input": SECRET, "store": False}
    for response in (served.create(body), served.stream(body).response):
        assert response["previous_response_id"] == first["id"]
        assert [text for _, text in model.last] == ["hello", ANSWER, SECRET]
        assert model.turns[-1].private
        assert served.http.get(f"/v1/responses/{response['id']}").status_code == 404
        error = served.error({"previous_response_id": response["id"], "input": "x"})
        assert (error["code"], error["param"]) == PREVIOUS
        reference = {"type": "item_reference", "id": response["output"][0]["id"]}
        assert served.error({"input": [reference]}, 404)["code"] == "item_not_found"
    again = served.create({"previous_response_id": first["id"], "input": "on"})
    assert [text for _, text in model.last] == ["hello", ANSWER, "on"]
    items = served.http.get(f"/v1/responses/{again['id']}/input_items").text
    assert SECRET not in items


def test_sta_06_unstored_turns_read_a_conversation_and_leave_it_as_it_was(state, server, tmp_path):
    model = AskedModel(("", [{"text": ANSWER}]))
    served = server(model, **state)
    made = served.post({"items": [{"role": "user", "content": "hello"}]}, "/v1/conversations")
    conversation = made.json()["id"]
    body = {"conversation": conversation, "input": SECRET, "store": False}
    for response in (served.create(body), served.stream(body).response):
        assert response["conversation"] == {"id": conversation}
        assert [text for _, text in model.last] == ["hello", SECRET]
    items = served.http.get(f"/v1/conversations/{conversation}/items").json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["hello"]
    assert found(tmp_path, SECRET, ANSWER) == []


def test_sta_06_a_background_response_must_be_stored(plain):
    for body in ({"store": False}, {"store": False, "stream": True}):
        error = plain.error({"input": "x", "background": True, **body})
        assert (error["code"], error["param"]) == ("invalid_value", "background")


def test_what_is_deleted_leaves_no_byte_behind(server, tmp_path):
    served = server(scripted({"text": ANSWER}), state="sqlite", data_dir=tmp_path)
    made = [served.create({"input": text, "metadata": {"k": SECRET}}) for text in (SECRET, LARGE)]
    assert found(tmp_path, SECRET)
    for response in made:
        served.http.delete(f"/v1/responses/{response['id']}")
    # What the write-ahead log still holds goes with the next sweep.
    sweeper = served.application._kept._store.sweeper
    served.on_loop(sweeper.sweep())
    assert [name for name, _ in found(tmp_path / "blobs", SECRET)] in ([], [name_of_blob(tmp_path)])
    assert found_in_database(tmp_path) == []


def name_of_blob(folder):
    """Blobs stay an hour, as somebody may be about to refer to one again."""
    return next((file.name for file in (folder / "blobs").rglob("*") if file.is_file()), None)


def found_in_database(folder):
    return [hit for hit in found(folder, SECRET, ANSWER) if hit[0].startswith("antiphon.db")]


@pytest.mark.parametrize(("asked", "kept"), [(None, False), (True, True), (False, False)])
def test_storing_may_be_left_to_those_who_ask_for_it(server, tmp_path, asked, kept):
    served = server(
        scripted({"text": ANSWER}), state="sqlite", data_dir=tmp_path, store_by_default=False
    )
    body = {"input": SECRET} if asked is None else {"input": SECRET, "store": asked}
    for response in (served.create(body), served.stream(body).response):
        assert response["store"] is kept
        status = served.http.get(f"/v1/responses/{response['id']}").status_code
        assert status == (200 if kept else 404)
    assert bool(found(tmp_path, SECRET)) is kept
    if asked is None:
        error = served.error({**body, "background": True})
        assert error["param"] == "background"


def test_without_storage_the_server_says_what_it_leaves_out(server):
    served = server(state="off")
    answer = served.post({"input": "x", "store": True})
    assert answer.headers["antiphon-dropped"] == "store"
    made = answer.json()
    assert made["store"] is False
    for method, tail in (
        ("GET", ""),
        ("GET", "?stream=true"),
        ("GET", "/input_items"),
        ("DELETE", ""),
        ("POST", "/cancel"),
    ):
        answer = served.http.request(method, f"/v1/responses/{made['id']}{tail}")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "response_not_found"
    assert served.http.get("/v1/conversations/conv_1").status_code == 404
    for name, value in (
        ("previous_response_id", made["id"]),
        ("conversation", "conv_1"),
        ("background", True),
    ):
        error = served.error({"input": "x", name: value})
        assert (error["code"], error["param"]) == ("unsupported_parameter", name)
    assert "store" not in served.post({"input": "x"}).headers.get("antiphon-dropped", "")


# Keys


def calls(response_id, item_id, conversation_id):
    """Every call that names a response, one of its items or a conversation."""
    path = f"/v1/responses/{response_id}"
    conversation = f"/v1/conversations/{conversation_id}"
    return [
        ("GET", path, None),
        ("GET", f"{path}?stream=true", None),
        ("GET", f"{path}?stream=true&starting_after=1", None),
        ("GET", f"{path}?stream=true&starting_after=9999", None),
        ("GET", f"{path}/input_items", None),
        ("GET", f"{path}/input_items?after={item_id}", None),
        ("POST", f"{path}/cancel", None),
        ("DELETE", path, None),
        ("POST", "/v1/responses", {"previous_response_id": response_id, "input": "x"}),
        (
            "POST",
            "/v1/responses",
            {"previous_response_id": response_id, "input": "x", "stream": True, "store": False},
        ),
        (
            "POST",
            "/v1/responses",
            {"previous_response_id": response_id, "input": "x", "background": True},
        ),
        ("POST", "/v1/responses", {"input": [{"type": "item_reference", "id": item_id}]}),
        ("POST", "/v1/responses/input_tokens", {"previous_response_id": response_id, "input": "x"}),
        ("POST", "/v1/responses", {"conversation": conversation_id, "input": "x"}),
        ("GET", conversation, None),
        ("POST", conversation, {"metadata": {"a": "b"}}),
        ("GET", f"{conversation}/items", None),
        ("POST", f"{conversation}/items", {"items": [{"role": "user", "content": "x"}]}),
        ("GET", f"{conversation}/items/{item_id}", None),
        ("DELETE", f"{conversation}/items/{item_id}", None),
        ("DELETE", conversation, None),
        ("POST", "/v1/conversations", {"items": [{"type": "item_reference", "id": item_id}]}),
    ]


def test_sta_14_what_belongs_to_another_looks_like_what_does_not_exist(every_state, server, keys):
    model = AskedModel(("", [{"text": "A-secret"}]))
    served = server(model, keys=keys, **every_state)
    conversation = served.post({}, "/v1/conversations", **bearer(keys.a)).json()["id"]
    made = served.create(
        {"input": "hi", "prompt_cache_key": "shared", "metadata": {"k": "A-secret"}},
        **bearer(keys.a),
    )
    inside = served.create({"conversation": conversation, "input": "hi"}, **bearer(keys.a))
    item = inside["output"][0]["id"]
    before = served.http.get(f"/v1/responses/{made['id']}", **bearer(keys.a)).json()
    turns = len(model.turns)
    foreign = calls(made["id"], item, conversation)
    unknown = calls("resp_" + "0" * 48, "msg_" + "0" * 48, "conv_" + "0" * 48)
    for (method, path, body), (_, other, body_2) in zip(foreign, unknown, strict=True):
        answers = [
            served.http.request(method, p, json=b, **bearer(keys.b))
            for p, b in ((path, body), (other, body_2))
        ]
        assert answers[0].status_code in (400, 404), (method, path, answers[0].text)
        errors = [
            {**answer.json()["error"], "message": re.sub(r"'\w+'", "…", answer.text)}
            for answer in answers
        ]
        assert errors[0] == errors[1], (method, path)
        assert answers[0].status_code == answers[1].status_code
        assert "A-secret" not in answers[0].text
        headers = [
            sorted(set(answer.headers) - {"x-request-id", "openai-processing-ms"})
            for answer in answers
        ]
        assert headers[0] == headers[1]
    assert len(model.turns) == turns
    # Nothing of A's has changed.
    assert served.http.get(f"/v1/responses/{made['id']}", **bearer(keys.a)).json() == before
    listed = served.http.get(f"/v1/conversations/{conversation}/items", **bearer(keys.a)).json()
    assert len(listed["data"]) == 2
    assert served.create(
        {"previous_response_id": made["id"], "input": "on"}, **bearer(keys.a)
    )["status"] == "completed"  # fmt: skip


def test_sta_14_a_running_response_cannot_be_seen_or_stopped_by_another(server, keys):
    served = server(scripted({"text": "a"}, {"delay": 0.3}, {"text": "b"}), keys=keys)
    with served.http.stream(
        "POST",
        "/v1/responses",
        json={"input": "x", "stream": True, "background": True},
        **bearer(keys.a),
    ) as answer:
        lines = answer.iter_lines()
        response_id = re.search(
            r'"id":"(resp_\w+)"', next(line for line in lines if "data:" in line)
        )[1]
        path = f"/v1/responses/{response_id}"
        for method, tail in (("POST", "/cancel"), ("GET", ""), ("GET", "?stream=true")):
            assert served.http.request(method, path + tail, **bearer(keys.b)).status_code == 404
        assert served.http.delete(path, **bearer(keys.b)).status_code == 404
        assert served.http.delete(path, **bearer(keys.a)).status_code == 409
        list(lines)
    assert served.http.get(path, **bearer(keys.a)).json()["status"] == "completed"


def test_sta_14_the_model_is_told_who_asks(server, keys):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model, keys=keys)
    for key in (keys.a, keys.b):
        served.create({"input": "hi", "prompt_cache_key": "shared"}, **bearer(key))
    assert len({turn.tenant for turn in model.turns}) == 2


def test_sta_14_a_key_of_another_may_be_used_for_idempotency(server, keys):
    served = server(keys=keys)
    made = {
        served.create(
            {"input": "x"},
            headers={"authorization": f"Bearer {key}", "idempotency-key": "the-same"},
        )["id"]
        for key in (keys.a, keys.b)
    }
    assert len(made) == 2


def test_sta_14_ids_cannot_be_guessed(plain):
    made = plain.create({"input": "x"})
    assert re.fullmatch(r"resp_[0-9a-f]{32,}", made["id"])
    assert re.fullmatch(r"msg_[0-9a-f]{32,}", made["output"][0]["id"])


def test_sta_14_status_and_metrics_name_nothing_of_what_is_stored(every_state, server, keys):
    served = server(scripted({"text": "A-secret"}), keys=keys, **every_state)
    made = served.create(
        {"input": "my question", "metadata": {"k": "my label"}, "user": "somebody"},
        **bearer(keys.a),
    )
    for path in ("/v1/status", "/metrics"):
        page = served.http.get(path, **bearer(keys.b))
        assert page.status_code == 200
        for word in ("A-secret", "my question", "my label", "somebody", made["id"], keys.a[:12]):
            assert word not in page.text
        assert made["output"][0]["id"] not in page.text
    counts = served.http.get("/v1/status", **bearer(keys.b)).json()["store"]["counts"]
    assert (counts["responses"], counts["items"]) == (1, 2)


def test_sta_14_the_sdk_meets_another_s_response_as_not_found(server, keys):
    served = server(keys=keys)
    made = served.sdk(keys.a).responses.create(model="test-model", input="x")
    other = served.sdk(keys.b)
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        other.responses.create(model="test-model", input="x", previous_response_id=made.id)
    assert refused.value.code == "previous_response_not_found"
