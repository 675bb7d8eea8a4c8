"""What real clients send, and what becomes of it."""

import json

import pytest
from serving import scripted

from antiphon.models.scripted import ScriptedModel
from antiphon.settings import SceneSettings


class Listener(ScriptedModel):
    """Remembers the turns it was asked."""

    def __init__(self):
        super().__init__("test-model", [SceneSettings(steps=({"text": "ok"},))])
        self.turns = []

    async def prepare(self, turn):
        self.turns.append(turn)
        return await super().prepare(turn)

    def asked(self):
        """The entries of the last turn, each with the role of a message or the name of its kind."""
        entries = self.turns[-1].messages
        return [(getattr(e, "role", type(e).__name__.lower()), e.text) for e in entries]


@pytest.fixture
def listener():
    return Listener()


def test_inp_01_items_with_a_role_are_messages_whatever_their_type(server, listener):
    served = server(listener)
    served.create(
        {
            "model": "test-model",
            "input": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello."},
                {
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "How can I help?"}],
                },
                {"role": "user", "content": [{"type": "input_text", "text": "Say ok"}]},
            ],
        }
    )
    assert listener.asked() == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("assistant", "How can I help?"),
        ("user", "Say ok"),
    ]


def test_inp_02_assistant_history_is_taken_in_every_form(server, listener):
    served = server(listener)
    served.create(
        {
            "input": [
                {"type": "message", "role": "user", "content": "hello"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hi there"}],
                },
                {"type": "message", "role": "assistant", "content": "(string form)"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": "I cannot."}],
                },
                {"type": "message", "role": "user", "content": "What did I say?"},
            ],
            "store": False,
        }
    )
    assert listener.asked()[1:4] == [
        ("assistant", "Hi there"),
        ("assistant", "(string form)"),
        ("assistant", "I cannot."),
    ]
    error = served.error(
        {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]}
    )
    assert error["param"] == "input[0].content[0].type"


OPTIONAL = (
    "tools tool_choice metadata max_output_tokens max_tool_calls parallel_tool_calls "
    "reasoning text temperature top_p truncation instructions previous_response_id stream "
    "store background include service_tier user stream_options top_logprobs safety_identifier "
    "prompt_cache_key conversation presence_penalty frequency_penalty seed prompt moderation "
).split()


def test_inp_03_null_is_the_same_as_absent(plain):
    with_nulls = plain.post({"input": "hi", **dict.fromkeys(OPTIONAL)})
    assert with_nulls.status_code == 200
    assert "antiphon-dropped" not in with_nulls.headers
    without = plain.create({"input": "hi"})
    volatile = {"id", "created_at", "completed_at", "output"}
    assert {k: v for k, v in with_nulls.json().items() if k not in volatile} == {
        k: v for k, v in without.items() if k not in volatile
    }
    assert without["tools"] == [] and without["metadata"] == {}
    assert without["tool_choice"] == "auto" and without["parallel_tool_calls"] is True


def test_inp_07_legal_fields_are_taken_and_echoed(plain):
    answer = plain.post(
        {
            "model": "test-model",
            "input": "ping",
            "metadata": {"trace_id": "t-1"},
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "safety_identifier": "u1",
            "user": "u2",
            "service_tier": "auto",
            "text": {"verbosity": "low"},
            "client_metadata": {"secret": "never echoed"},
        }
    )
    assert answer.status_code == 200
    response = answer.json()
    assert response["metadata"] == {"trace_id": "t-1"}
    assert response["prompt_cache_key"] == "k"
    assert response["safety_identifier"] == "u1"
    assert response["user"] is None
    assert response["prompt_cache_retention"] == "24h"
    assert answer.headers["antiphon-dropped"] == "text.verbosity"
    assert "never echoed" not in answer.text


@pytest.mark.parametrize(
    ("field", "value", "instead"),
    [
        ("response_format", {"type": "json_object"}, "text.format"),
        ("max_tokens", 20, "max_output_tokens"),
        ("messages", [], "input"),
        ("stop", ["x"], ""),
    ],
)
def test_inp_07_fields_of_the_other_api_are_refused_with_the_right_name(
    plain, field, value, instead
):
    error = plain.error({"input": "hi", field: value})
    assert (error["code"], error["param"]) == ("unknown_parameter", field)
    assert instead in error["message"]


CODEX_TOOLS = [
    {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}},
    {"type": "web_search"},
    {"type": "namespace", "name": "mcp_files", "tools": []},
    {"type": "of_tomorrow", "knob": 1},
]


def test_tool_01_tools_that_cannot_be_served_are_named_and_left_out(plain):
    answer = plain.post({"input": "hi", "tools": CODEX_TOOLS, "tool_choice": "auto"})
    assert answer.status_code == 200
    assert answer.headers["antiphon-dropped"] == "tools[1], tools[3]"
    # What is told of is what the model was offered.
    assert answer.json()["tools"] == [
        {**CODEX_TOOLS[0], "description": None, "strict": False},
        {**CODEX_TOOLS[2], "description": ""},
    ]


def test_tool_01_strict_servers_refuse_them(server):
    served = server(scripted({"text": "ok"}), strict=True)
    error = served.error({"input": "hi", "tools": CODEX_TOOLS[1:], "tool_choice": "auto"})
    assert (error["code"], error["param"]) == ("invalid_tool", "tools[0].type")


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_tool_05_a_forced_tool_is_never_silently_left_out(plain, choice):
    error = plain.error({"input": "hi", "tools": CODEX_TOOLS[1:2], "tool_choice": choice})
    assert error["param"] == "tool_choice"


def test_rsn_02_reasoning_in_history_is_never_an_error(server, listener):
    served = server(listener)
    answer = served.post(
        {
            "store": False,
            "input": [
                {"role": "user", "content": "hi"},
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "Greeted."}],
                    "encrypted_content": None,
                },
                {
                    "type": "reasoning",
                    "id": "rs_2",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "User greets me."}],
                },
                {"type": "reasoning"},
                {"type": "reasoning", "content": None, "summary": None},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hello"}],
                },
                {"role": "user", "content": "again"},
            ],
        }
    )
    assert answer.status_code == 200
    assert "antiphon-dropped" not in answer.headers
    assert listener.asked() == [
        ("user", "hi"),
        ("reasoning", "User greets me."),
        ("assistant", "Hello"),
        ("user", "again"),
    ]


def test_unknown_fields_are_named_whatever_they_are_called(plain):
    odd = {"my_field": 1, "x" * 500: 1, "a,b\r\nset-cookie: c": 1, "ключ": 1}
    answer = plain.post({"input": "hi", **odd})
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    named = answer.headers["antiphon-dropped"].split(", ")
    assert named[0] == "my_field"
    assert len(named) == len(odd)
    assert all(len(name) <= 64 for name in named)


def test_the_dropped_header_stays_short(plain):
    answer = plain.post({"input": "hi", **{f"unknown_{n}": n for n in range(1000)}})
    assert answer.status_code == 200
    header = answer.headers["antiphon-dropped"]
    assert len(header) < 2200
    assert header.endswith(" more")


def test_dropped_parts_are_counted_by_a_name_of_ours(server):
    served = server(scripted({"text": "ok"}))
    body = {"input": "hi", "text": {"verbosity": "low"}, "tools": CODEX_TOOLS}
    served.create({**body, "clients own name": 1})
    metrics = served.http.get("/metrics").text
    assert 'antiphon_dropped_total{name="text.verbosity"} 1.0' in metrics
    assert 'antiphon_dropped_total{name="tools.web_search"} 1.0' in metrics
    assert 'antiphon_dropped_total{name="unknown tool"} 1.0' in metrics
    assert "clients own name" not in metrics


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("temperature", 2.1, "temperature"),
        ("temperature", -1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 1.5, "top_p"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("max_output_tokens", 15, "max_output_tokens"),
        ("top_logprobs", 21, "top_logprobs"),
        ("include", ["nonsense"], "include[0]"),
        ("safety_identifier", "x" * 65, "safety_identifier"),
        ("metadata", {str(n): "" for n in range(17)}, "metadata"),
        ("metadata", {"k": "x" * 513}, "metadata.k"),
        ("seed", "lucky", "seed"),
        ("previous_response_id", "resp_1", "previous_response_id"),
        ("background", "yes", "background"),
        ("conversation", 5, "conversation"),
    ],
)
def test_use_02_values_out_of_range_are_refused_by_name(plain, field, value, param):
    assert plain.error({"input": "hi", field: value})["param"] == param


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-9, 1, 2])
@pytest.mark.parametrize("top_p", [0, 0.0001, 1])
def test_use_02_settings_are_echoed_as_they_were_sent(plain, temperature, top_p):
    response = plain.create({"input": "hi", "temperature": temperature, "top_p": top_p})
    assert (response["temperature"], response["top_p"]) == (temperature, top_p)


def test_use_01_usage_is_whole_in_both_forms(server):
    served = server(
        scripted(
            {"reasoning": "a b c d e f g ", "pieces": 2},
            {"text": "h i j k l ", "pieces": 2},
            {"call": "get_weather", "arguments": "m n o p q r ", "pieces": 2},
        )
    )
    tools = [{"type": "function", "name": "get_weather"}]
    body = {"input": "one two three", "instructions": "four", "tools": tools}
    usage = served.create(body)["usage"]
    assert usage == {
        "input_tokens": 4,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 18,
        "output_tokens_details": {"reasoning_tokens": 7},
        "total_tokens": 22,
    }
    stream = served.stream(body)
    assert stream.response["usage"] == usage
    assert stream.of("response.created")[0]["response"]["usage"] is None
    counted = served.post(body, "/v1/responses/input_tokens").json()
    assert counted == {"object": "response.input_tokens", "input_tokens": 4}


def test_use_04_every_field_of_a_response_is_there(plain, contract):
    stream = plain.stream({"input": "hi"})
    snapshots = [event.data["response"] for event in stream.events if "response" in event.data]
    for response in [*snapshots, plain.create({"input": "hi"})]:
        assert contract.accepts("#/components/schemas/Response", response)
        assert isinstance(response["created_at"], int)
    assert stream.response["completed_at"] >= stream.response["created_at"]
    assert [response["completed_at"] for response in snapshots[:-1]] == [None, None]


def test_sec_01_no_address_is_ever_fetched(plain):
    for url in ("http://127.0.0.1:1/", "file:///etc/passwd", "http://169.254.169.254/latest/"):
        part = {"type": "input_image", "image_url": url}
        error = plain.error({"input": [{"role": "user", "content": [part]}]})
        assert error["param"] == "input[0].content[0].type"


@pytest.mark.parametrize(
    "url", ["data:image/png;base64,%%%", "data:image/png", "data:text/plain;base64,aGk=", "", None]
)
def test_sec_03_a_picture_for_a_model_without_eyes_is_a_400(plain, url):
    part = {"type": "input_image", "image_url": url}
    error = plain.error({"input": [{"role": "user", "content": [part]}]})
    assert error["param"] == "input[0].content[0].type"


def test_sta_06_background_needs_storage(plain):
    body = {"input": "x", "store": False, "background": True}
    assert plain.error(body)["param"] == "background"


def test_sta_13_nul_goes_through_unchanged(server):
    served = server(scripted({"echo": True}))
    text = "echo \u0000 please \\u0000"
    response = served.create({"input": text, "metadata": {"k": "v\u0000"}})
    assert response["output"][0]["content"][0]["text"] == text
    assert response["metadata"] == {"k": "v\u0000"}


def test_the_input_must_hold_something(plain):
    assert plain.error({"input": []})["param"] == "input"
    assert plain.create({"input": []} | {"instructions": "Say hello."})["status"] == "completed"
    assert plain.create({"input": ""})["status"] == "completed"


def test_aliases_stand_for_models_and_are_listed(server):
    served = server(scripted({"text": "ok"}), aliases={"gpt-5.5": "test-model"})
    assert served.create({"input": "x", "model": "gpt-5.5"})["model"] == "gpt-5.5"
    assert served.create({"input": "x"})["model"] == "test-model"
    listed = served.http.get("/v1/models").json()["data"]
    assert [(model["id"], model["alias_of"]) for model in listed] == [
        ("test-model", None),
        ("gpt-5.5", "test-model"),
    ]
    assert served.http.get("/v1/models/gpt-5.5").json() == listed[1]


def test_an_alias_may_stand_for_every_name(server):
    served = server(scripted({"text": "ok"}), aliases={"*": "test-model"})
    assert served.create({"input": "x", "model": "whatever/else"})["model"] == "whatever/else"


def test_big_histories_are_taken(server, listener):
    served = server(listener)
    items = [{"role": "user", "content": f"{n} " + "word " * 100} for n in range(2000)]
    assert len(json.dumps(items)) > 1_000_000
    served.create({"input": items})
    assert len(listener.asked()) == 2000
