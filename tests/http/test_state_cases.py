"""Cases about stored conversations: what the model is shown of them, and what comes back."""

import pytest
from asked import AskedModel
from serving import scripted

from antiphon.turn import Call, CallResult

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CALL = {"call": "get_weather", "arguments": '{"city":"Oslo"}'}
TOOLS = {"tools": [WEATHER]}


def say(served, body, *, stream):
    """A response, asked for in either form."""
    return served.stream(body).response if stream else served.create(body)


@pytest.fixture
def weather():
    """Calls for the weather, reads the result out, and knows the city."""
    return AskedModel(
        ("Weather", [{"reasoning": "Look it up."}, {"text": "One moment."}, CALL]),
        ("3 C", [{"text": "3 C"}]),
        ("Which city", [{"text": "Oslo"}]),
        ("", [{"text": "ok"}]),
    )


@pytest.mark.parametrize("stream", [False, True])
def test_sta_01_the_answer_comes_back_as_the_assistants(every_state, server, stream):
    model = AskedModel(("Invent", [{"text": "The word is ZEBRA."}]), ("", [{"text": "ok"}]))
    served = server(model, **every_state)
    first = say(served, {"instructions": "Be brief.", "input": "Invent a word"}, stream=stream)
    say(
        served,
        {"previous_response_id": first["id"], "input": "Repeat the word you said"},
        stream=stream,
    )
    assert model.last == [
        ("user", "Invent a word"),
        ("assistant", "The word is ZEBRA."),
        ("user", "Repeat the word you said"),
    ]
    assert model.turns[-1].instructions is None


@pytest.mark.parametrize("stream", [False, True])
def test_sta_02_calls_results_and_reasoning_stay_each_once_and_in_order(
    every_state, server, weather, stream
):
    served = server(weather, **every_state)
    one = say(served, {"input": "Weather in Oslo?", **TOOLS}, stream=stream)
    call = one["output"][-1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3 C"}
    body = {"previous_response_id": one["id"], "input": [result]}  # Without tools, on purpose.
    two = say(served, body, stream=stream)
    say(
        served,
        {"previous_response_id": two["id"], "input": "Which city was it?", **TOOLS},
        stream=stream,
    )
    assert weather.last == [
        ("user", "Weather in Oslo?"),
        ("reasoning", "Look it up."),
        ("assistant", "One moment."),
        ("call", 'get_weather {"city":"Oslo"}'),
        ("result", "3 C"),
        ("assistant", "3 C"),
        ("user", "Which city was it?"),
    ]
    shown = weather.turns[-1].messages
    assert shown[3] == Call(call["call_id"], "get_weather", '{"city":"Oslo"}')
    assert shown[4] == CallResult(call["call_id"], "3 C")


def test_sta_02_a_chain_stays_whole_when_its_beginning_is_deleted(every_state, server):
    model = AskedModel(("", [{"echo": True}]))
    served = server(model, **every_state)
    last, ids = None, []
    for number in range(4):
        body = {"input": f"turn {number}"}
        if last is not None:
            body["previous_response_id"] = last["id"]
        last = served.create(body)
        ids.append(last["id"])
    for response_id in ids[:-1]:
        assert served.http.delete(f"/v1/responses/{response_id}").status_code == 200
    served.create({"previous_response_id": ids[-1], "input": "turn 4"})
    said = [text for _, text in model.last]
    assert said == [f"turn {number // 2}" for number in range(9)]


def test_two_turns_may_go_on_from_one(every_state, server):
    model = AskedModel(("", [{"echo": True}]))
    served = server(model, **every_state)
    first = served.create({"input": "one"})
    for text in ("left", "right"):
        answer = served.create({"previous_response_id": first["id"], "input": text})
        served.create({"previous_response_id": answer["id"], "input": "on"})
        assert [said for _, said in model.last] == ["one", "one", text, text, "on"]


def test_sta_04_instructions_and_settings_are_of_one_request_only(every_state, server):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model, **every_state)
    first = served.create(
        {"instructions": "Speak French.", "input": "hi", "temperature": 0.5, "user": "u", **TOOLS}
    )
    plain = served.create({"previous_response_id": first["id"], "input": "hi again"})
    assert model.turns[-1].instructions is None
    assert "French" not in str(model.last)
    dutch = served.create(
        {
            "previous_response_id": first["id"],
            "instructions": "Speak Dutch.",
            "input": "hi again",
        }
    )
    assert model.turns[-1].instructions == "Speak Dutch."
    assert "French" not in str(model.last)
    stored = [
        served.http.get(f"/v1/responses/{response['id']}").json()
        for response in (first, plain, dutch)
    ]
    assert [response["instructions"] for response in stored] == [
        "Speak French.",
        None,
        "Speak Dutch.",
    ]
    assert plain["tools"] == []
    assert (plain["temperature"], plain["user"]) == (1.0, None)


def test_a_system_message_of_the_input_is_history_instructions_are_not(server):
    model = AskedModel(("", [{"text": "ok"}]))
    served = server(model)
    first = served.create(
        {
            "instructions": "Be brief.",
            "input": [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "a"}],
        }
    )
    served.create({"previous_response_id": first["id"], "input": "b"})
    assert model.last == [
        ("system", "Rhyme."),
        ("user", "a"),
        ("assistant", "ok"),
        ("user", "b"),
    ]


# Strange characters

NUL_BODY = {
    "instructions": "say \u0000",
    "input": [
        {"role": "user", "content": "echo \u0000 please", "id": "msg_\u0000"},
        {
            "type": "function_call",
            "call_id": "call_\u0000",
            "name": "f",
            "arguments": '{"s":"\\u0000"}',
        },
        {"type": "function_call_output", "call_id": "call_\u0000", "output": "x\u0000y"},
        {"role": "user", "content": "literal \\u0000 and \\\\u0000, \ufffe\uffff\U0010ffff"},
    ],
    "metadata": {"k": "v\u0000", "\u0000": "\\u0000"},
    "prompt_cache_key": "p\u0000",
    "safety_identifier": "s\u0000",
    "user": "u\u0000",
    "tools": [{"type": "function", "name": "f"}],
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_sta_13_nul_comes_back_as_it_was(every_state, server, stream, background):
    model = AskedModel(("", [{"text": "a\u0000b"}, {"call": "f", "arguments": '{"s":"\\u0000"}'}]))
    served = server(model, **every_state)
    body = {**NUL_BODY, "background": background}
    if stream:
        made = served.stream(body).response
    else:
        made = served.create(body)
        if background:
            replay = served.http.get(f"/v1/responses/{made['id']}?stream=true")
            assert replay.status_code == 200
            made = served.http.get(f"/v1/responses/{made['id']}").json()
    assert made["status"] == "completed", made
    path = f"/v1/responses/{made['id']}"
    assert served.http.get(path).json() == made
    assert made["output"][0]["content"][0]["text"] == "a\u0000b"
    assert made["output"][1]["arguments"] == '{"s":"\\u0000"}'
    assert made["metadata"] == NUL_BODY["metadata"]
    assert made["instructions"] == "say \u0000"
    items = served.http.get(f"{path}/input_items?order=asc").json()["data"]
    assert items[0]["content"][0]["text"] == "echo \u0000 please"
    assert items[0]["id"] != "msg_\u0000"
    assert (items[1]["call_id"], items[1]["arguments"]) == ("call_\u0000", '{"s":"\\u0000"}')
    assert items[2]["output"] == "x\u0000y"
    assert items[3]["content"][0]["text"] == NUL_BODY["input"][3]["content"]
    served.create(
        {
            "previous_response_id": made["id"],
            "input": [
                {
                    "type": "function_call_output",
                    "call_id": made["output"][1]["call_id"],
                    "output": "\u0000",
                }
            ],
        }
    )
    assert ("assistant", "a\u0000b") in model.last
    assert model.last[-1] == ("result", "\u0000")


def test_sta_13_strange_ids_are_unknown_ones(every_state, server):
    served = server(**every_state)
    for strange in ("%00", "resp_%00", "resp_%f0%9f%98%80", "a" * 5000, "%27;--"):
        for method, tail in (
            ("GET", ""),
            ("GET", "?stream=true"),
            ("DELETE", ""),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
        ):
            answer = served.http.request(method, f"/v1/responses/{strange}{tail}")
            assert answer.status_code == 404, (strange, method, tail, answer.text)


def test_sta_13_strange_ids_in_bodies_are_unknown_ones(every_state, server):
    served = server(**every_state)
    for strange in ("\u0000", "resp_\u0000", "\U0001f600", "a" * 5000):
        error = served.error({"previous_response_id": strange, "input": "x"})
        assert (error["code"], error["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )
        error = served.error({"conversation": strange, "input": "x"}, 404)
        assert (error["code"], error["param"]) == ("conversation_not_found", "conversation")
        reference = {"type": "item_reference", "id": strange}
        error = served.error({"input": [reference]}, 404)
        assert (error["code"], error["param"]) == ("item_not_found", "input[0].id")


# References


@pytest.mark.parametrize("reference", [{"type": "item_reference"}, {}, {"type": None}])
def test_inp_06_a_reference_stands_for_its_item(every_state, server, weather, reference):
    served = server(weather, **every_state)
    first = served.create({"input": "Weather in Oslo?", **TOOLS})
    call = first["output"][-1]
    served.create(
        {
            "input": [
                {"role": "user", "content": "Weather in Oslo?"},
                {**reference, "id": call["id"]},
                {"type": "function_call_output", "call_id": call["call_id"], "output": "3 C"},
            ]
        }
    )
    assert weather.last == [
        ("user", "Weather in Oslo?"),
        ("call", 'get_weather {"city":"Oslo"}'),
        ("result", "3 C"),
    ]


def test_inp_06_items_of_any_response_and_of_the_input_can_be_named(server, weather):
    served = server(weather)
    one = served.create({"input": [{"role": "user", "content": "one", "id": "msg_mine"}]})
    two = served.create({"input": "Weather?", **TOOLS})
    answer = served.create(
        {
            "input": [
                {"id": "msg_mine"},
                *({"id": item["id"]} for item in (*one["output"], *two["output"][:2])),
                {"role": "user", "content": "so?"},
            ]
        }
    )
    assert [text for _, text in weather.last] == ["one", "ok", "Look it up.", "One moment.", "so?"]
    listed = served.http.get(f"/v1/responses/{answer['id']}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in listed] == [
        "message",
        "message",
        "reasoning",
        "message",
        "message",
    ]
    assert listed[1] == one["output"][0]


@pytest.mark.parametrize("name", ["msg_unknown", "deleted", "private"])
def test_inp_06_what_is_not_there_is_named_by_its_place(server, weather, name):
    served = server(weather)
    asked = {"role": "user", "content": "x"}
    if name == "deleted":
        made = served.create({"input": "x"})
        served.http.delete(f"/v1/responses/{made['id']}")
        name = made["output"][0]["id"]
    if name == "private":
        name = served.create({"input": "x", "store": False})["output"][0]["id"]
    turns = len(weather.turns)
    error = served.error({"input": [asked, {"type": "item_reference", "id": name}]}, 404)
    assert (error["code"], error["param"]) == ("item_not_found", "input[1].id")
    assert error["message"] == f"There is no item '{name}'."
    assert len(weather.turns) == turns


# Calls


def test_tool_08_duplicate_unknown_and_empty_call_ids_are_refused_before_the_model(server, weather):
    served = server(weather)
    call = {"type": "function_call", "call_id": "call_0", "name": "a", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_0", "output": "3 C"}
    for items, place, word in (
        ([{"role": "user", "content": "x"}, call, {**call, "name": "b"}, result], 2, "call_0"),
        ([{**result, "call_id": "call_zz"}], 0, "call_zz"),
        ([{**call, "call_id": ""}], 0, "call_id"),
        ([call, result, result], 2, "call_0"),
    ):
        error = served.error({"input": items})
        assert error["param"] == f"input[{place}].call_id"
        assert word in error["message"]
    assert not weather.turns


def test_tool_08_a_stored_call_is_answered_once(every_state, server, weather):
    served = server(weather, **every_state)
    first = served.create({"input": "Weather in Oslo?", **TOOLS})
    call_id = first["output"][-1]["call_id"]
    result = {"type": "function_call_output", "call_id": call_id, "output": "3 C"}
    second = served.create({"previous_response_id": first["id"], "input": [result]})
    turns = len(weather.turns)
    error = served.error({"previous_response_id": second["id"], "input": [result]})
    assert error["param"] == "input[0].call_id"
    call = {"type": "function_call", "call_id": call_id, "name": "delete", "arguments": "{}"}
    error = served.error({"previous_response_id": second["id"], "input": [call]})
    assert error["param"] == "input[0].call_id"
    assert len(weather.turns) == turns
    # From before it was answered it can be answered again, in another way.
    served.create({"previous_response_id": first["id"], "input": [{**result, "output": "4 C"}]})
    assert weather.last[-1] == ("result", "4 C")


def test_tool_08_ids_are_never_used_twice(server, weather):
    served = server(weather)
    made = [served.create({"input": "Weather in Oslo?", **TOOLS}) for _ in range(20)]
    ids = [item["id"] for response in made for item in response["output"]]
    calls = [response["output"][-1]["call_id"] for response in made]
    assert len(set(ids)) == len(ids) == 60
    assert len(set(calls)) == 20


# Errors and cut answers


def test_err_02_a_failure_in_a_stream_is_stored_as_it_was_told(every_state, server):
    served = server(scripted({"text": "Hel"}, {"fail": "boom"}), **every_state)
    stream = served.stream({"input": "hi"})
    assert stream.types[-2:] == ["error", "response.failed"]
    assert stream.done
    stored = served.http.get(f"/v1/responses/{stream.response['id']}").json()
    assert stored == stream.response
    assert (stored["status"], stored["error"]["code"]) == ("failed", "server_error")
    assert stored["output"][0]["status"] == "incomplete"
    assert stored["output"][0]["content"][0]["text"] == "Hel"


def test_err_02_a_failure_without_a_stream_is_stored_as_it_was_told(every_state, server):
    served = server(scripted({"text": "Hel"}, {"fail": "boom"}), **every_state)
    made = served.create({"input": "hi"})
    assert (made["status"], made["error"]["code"]) == ("failed", "server_error")
    assert served.http.get(f"/v1/responses/{made['id']}").json() == made


@pytest.mark.parametrize("background", [False, True])
def test_err_05_a_cut_answer_is_stored_as_incomplete_and_can_be_gone_on_with(
    every_state, server, background
):
    model = AskedModel(("Write", [{"text": "word " * 20, "pieces": 5}]), ("", [{"text": "ok"}]))
    served = server(model, **every_state)
    body = {"input": "Write", "max_output_tokens": 16, "background": background}
    stream = served.stream(body)
    assert stream.types[-1] == "response.incomplete"
    stored = served.http.get(f"/v1/responses/{stream.response['id']}").json()
    assert stored == stream.response
    assert stored["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (stored["completed_at"], stored["usage"]["output_tokens"]) == (None, 16)
    assert stored["output"][0]["status"] == "incomplete"
    served.create({"previous_response_id": stored["id"], "input": "on"})
    assert [text for _, text in model.last] == ["Write", ("word " * 16), "on"]


def test_err_04_what_is_left_out_of_a_long_history_stays_stored(server):
    model = AskedModel(("", [{"text": "ok"}]), context_window=40)
    served = server(model)
    last = served.create({"input": "one " * 10})
    for _ in range(2):
        body = {"previous_response_id": last["id"], "input": "two " * 10, "truncation": "auto"}
        last = served.create(body)
    error = served.error({"previous_response_id": last["id"], "input": "three " * 10})
    assert error["code"] == "context_length_exceeded"
    cut = served.create(
        {"previous_response_id": last["id"], "input": "three " * 10, "truncation": "auto"}
    )
    assert cut["usage"]["input_tokens"] < 40
    items = served.http.get(f"/v1/responses/{cut['id']}/input_items?order=asc").json()["data"]
    assert [item["content"][0]["text"][:3] for item in items] == [
        "one", "ok", "two", "ok", "two", "ok", "thr",
    ]  # fmt: skip
