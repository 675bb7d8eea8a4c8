"""What becomes of each part of a request, as the coverage says."""

from types import SimpleNamespace
from typing import Any

import pytest

from antiphon import errors
from antiphon.responses.gate import Dropped, Gate
from antiphon.spec import Contract, packaged_contract

CREATE = "#/components/schemas/CreateResponse"
COVERAGE = packaged_contract().coverage

#: For each line of the coverage a value that asks for something.
REQUESTS: dict[str, Any] = {
    "model": "test-model",
    "input": "hi",
    "instructions": "Be brief.",
    "stream": True,
    "stream_options.include_obfuscation": True,
    "max_output_tokens": 16,
    "temperature": 0,
    "top_p": 0.5,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "seed": 7,
    "top_logprobs": 2,
    "include": ["message.output_text.logprobs"],
    "metadata": {"k": "v"},
    "safety_identifier": "u1",
    "user": "u1",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "client_metadata": {"k": "v"},
    "truncation": "auto",
    "tools": [],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tool_calls": 3,
    "reasoning.effort": "high",
    "reasoning.summary": "auto",
    "reasoning.generate_summary": "auto",
    "reasoning.context": "all_turns",
    "reasoning.mode": "deep",
    "text.format": {"type": "json_object"},
    "text.verbosity": "low",
    "store": True,
    "background": True,
    "background_options": {"a": 1},
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "service_tier": "priority",
    "prompt": {"id": "pmpt_1"},
    "context_management": [{"type": "compaction"}],
    "prompt_cache_options": {"a": 1},
    "moderation": {"a": 1},
    "image": {"a": 1},
    "access_programs": {"a": 1},
    "personality": "friendly",
}


def body_with(path: str, value: Any) -> dict[str, Any]:
    *outer, last = path.split(".")
    body: dict[str, Any] = {}
    holder = body
    for name in outer:
        holder = holder.setdefault(name, {})
    holder[last] = value
    return body


def with_status(section: str, status: str) -> list[str]:
    return [name for name, line in COVERAGE[section].items() if line["status"] == status]


@pytest.fixture(params=[False, True], ids=["lenient", "strict"])
def gate(contract: Contract, request: pytest.FixtureRequest) -> Gate:
    """A gate of either kind, for what does not depend on it."""
    return Gate(contract, strict=request.param, summarises=True)


@pytest.fixture
def lenient(contract: Contract) -> Gate:
    return Gate(contract)


@pytest.fixture
def strict(contract: Contract) -> Gate:
    return Gate(contract, strict=True)


def refusal(gate: Gate, body: dict[str, Any]) -> errors.InvalidRequest:
    with pytest.raises(errors.InvalidRequest) as caught:
        gate.apply(body)
    return caught.value


# Fields


def test_every_line_of_the_coverage_is_tested_with_a_value_that_the_document_allows(
    contract: Contract,
):
    assert set(REQUESTS) == set(COVERAGE["request"])
    for path, value in REQUESTS.items():
        if path != "personality":  # Of counting only.
            assert contract.accepts(CREATE, body_with(path, value)), path


@pytest.mark.parametrize("path", with_status("request", "served"))
def test_what_is_served_is_kept(gate: Gate, path: str):
    body = body_with(path, REQUESTS[path])
    assert gate.apply(body) == (body, [])


@pytest.mark.parametrize("path", with_status("request", "dropped"))
def test_what_is_dropped_is_left_out_and_named(lenient: Gate, path: str):
    kept, dropped = lenient.apply(body_with(path, REQUESTS[path]))
    assert dropped == [Dropped(path, path)]
    assert kept == ({path.split(".")[0]: {}} if "." in path else {})


@pytest.mark.parametrize("path", with_status("request", "dropped"))
def test_what_is_dropped_is_refused_with_strict(strict: Gate, path: str):
    error = refusal(strict, body_with(path, REQUESTS[path]))
    assert (type(error), error.param) == (errors.UnsupportedParameter, path)
    assert COVERAGE["request"][path]["why"] in error.message


@pytest.mark.parametrize("path", with_status("request", "rejected"))
def test_what_is_rejected_is_refused_and_says_why(gate: Gate, path: str):
    error = refusal(gate, body_with(path, REQUESTS[path]))
    assert (type(error), error.param) == (errors.UnsupportedParameter, path)
    assert COVERAGE["request"][path]["why"] in error.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (path, value)
        for path, line in COVERAGE["request"].items()
        for value in line.get("neutral", ())
    ],
)
def test_what_asks_for_nothing_is_let_through_in_silence(gate: Gate, path: str, value: Any):
    body = body_with(path, value)
    assert gate.apply(body) == (body, [])


@pytest.mark.parametrize("path", REQUESTS)
def test_inp_03_null_is_as_good_as_absent(gate: Gate, path: str):
    name = path.split(".")[0]
    assert gate.apply({name: None}) == ({}, [])
    if "." in path:
        body = body_with(path, None)
        assert gate.apply(body) == (body, [])


def test_inp_03_all_nulls_leave_the_same_request(gate: Gate):
    nulls = dict.fromkeys(path.split(".")[0] for path in REQUESTS)
    body = {**nulls, "model": "test-model", "input": "hi"}
    assert gate.apply(body) == ({"model": "test-model", "input": "hi"}, [])


def test_only_what_is_dropped_is_taken_out_of_an_object(lenient: Gate):
    body = {"text": {"format": {"type": "text"}, "verbosity": "low", "x_own": 1}}
    kept, dropped = lenient.apply(body)
    assert kept == {"text": {"format": {"type": "text"}, "x_own": 1}}
    assert dropped == [
        Dropped("text.x_own", "unknown field"),
        Dropped("text.verbosity", "text.verbosity"),
    ]


def test_an_unknown_option_is_refused_by_strict_servers(strict: Gate):
    with pytest.raises(errors.UnknownParameter) as refused:
        strict.apply({"reasoning": {"zz": 1}})
    assert refused.value.param == "reasoning.zz"


def test_several_fields_of_an_object_are_dropped_one_by_one(lenient: Gate):
    kept, dropped = lenient.apply({"reasoning": {"context": "all_turns", "summary": "auto"}})
    assert kept == {"reasoning": {}}
    assert [entry.path for entry in dropped] == ["reasoning.summary", "reasoning.context"]


def test_the_callers_body_is_left_as_it_is(lenient: Gate):
    body = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "zz": 1}
    before = repr(body)
    lenient.apply(body)
    assert repr(body) == before


def test_what_is_left_out_is_named_in_the_order_of_the_body(lenient: Gate):
    _, dropped = lenient.apply({"image": {"a": 1}, "zz": 1, "personality": "friendly"})
    assert [entry.path for entry in dropped] == ["image", "zz", "personality"]


# Fields that are not known


def test_unknown_fields_are_left_out_and_named_by_one_name_for_all(lenient: Gate):
    kept, dropped = lenient.apply({"input": "hi", "my_field": 1, "another": [2]})
    assert kept == {"input": "hi"}
    assert dropped == [
        Dropped("my_field", "unknown field"),
        Dropped("another", "unknown field"),
    ]


def test_unknown_fields_are_refused_with_strict(strict: Gate):
    error = refusal(strict, {"input": "hi", "my_field": 1})
    assert (type(error), error.param) == (errors.UnknownParameter, "my_field")


@pytest.mark.parametrize(("name", "instead"), COVERAGE["foreign"].items())
def test_inp_07_fields_of_chat_completions_are_refused_with_what_to_send_instead(
    gate: Gate, name: str, instead: str | None
):
    error = refusal(gate, {"input": "hi", name: 1})
    assert (type(error), error.param) == (errors.UnknownParameter, name)
    assert "Chat Completions" in error.message
    assert f"Use {instead} instead." in error.message if instead else "Use" not in error.message


def test_inp_07_what_is_to_be_sent_instead_exists(contract: Contract):
    known = contract.document["components"]["schemas"]["CreateResponse"]["properties"]
    for name, instead in COVERAGE["foreign"].items():
        assert name not in known
        assert instead is None or instead.split(".")[0].split(":")[0] in known


def test_inp_07_a_foreign_field_that_is_null_asks_for_nothing(gate: Gate):
    assert gate.apply({"input": "hi", "max_tokens": None}) == ({"input": "hi"}, [])


# Values of include


def test_values_of_include_are_kept_or_left_out_one_by_one(lenient: Gate):
    values = list(COVERAGE["include"])
    kept, dropped = lenient.apply({"include": values})
    assert kept == {"include": with_status("include", "served")}
    assert dropped == [
        Dropped(f"include[{values.index(v)}]", f"include.{v}")
        for v in with_status("include", "dropped")
    ]


@pytest.mark.parametrize("value", with_status("include", "dropped"))
def test_values_of_include_are_refused_with_strict(strict: Gate, value: str):
    error = refusal(strict, {"include": ["message.output_text.logprobs", value]})
    assert (type(error), error.param) == (errors.UnsupportedValue, "include[1]")
    assert value in error.message and COVERAGE["include"][value]["why"] in error.message


# Items


def user(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": "hi", **fields}


def test_messages_are_kept_whatever_else_they_hold(gate: Gate):
    items = [
        user(),
        user(type="message", id="x", status="done", phase=None, output=[1, {"type": "zz"}]),
        user(type=None, content=[{"type": "input_text", "text": "hi", "refusal": 5}]),
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
    ]
    assert gate.apply({"input": items}) == ({"input": items}, [])


@pytest.mark.parametrize("kind", with_status("input_items", "rejected"))
def test_items_that_are_rejected_are_refused_by_their_place(gate: Gate, kind: str):
    error = refusal(gate, {"input": [user(), user(), {"type": kind, "id": "x"}]})
    assert (type(error), error.param) == (errors.UnsupportedValue, "input[2].type")
    assert kind in error.message and COVERAGE["input_items"][kind]["why"] in error.message


@pytest.mark.parametrize("kind", with_status("input_items", "served"))
def test_items_that_are_served_are_kept(gate: Gate, kind: str):
    items = [{"type": kind, "id": "x", "tools": []}]
    assert gate.apply({"input": items}) == ({"input": items}, [])


def test_parts_of_reasoning_and_of_results_are_kept(gate: Gate):
    items = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "content": ["the client's own"], "output": [5]},
        {"type": "tool_search_output", "tools": [], "output": ["the client's own"]},
        {"type": "shell_call_output", "output": [{"stdout": "a"}]},
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "3 C"}]},
    ]
    assert gate.apply({"input": items}) == ({"input": items}, [])


REFERENCES = [{"id": "msg_1"}, {"type": None, "id": "msg_1"}]


@pytest.mark.parametrize("reference", REFERENCES)
def test_inp_06_a_reference_without_a_type_is_known_for_one(gate: Gate, reference: dict[str, Any]):
    assert gate.apply({"input": [reference]}) == ({"input": [reference]}, [])


@pytest.mark.parametrize("kind", with_status("content_parts", "rejected"))
def test_parts_that_are_rejected_are_refused_by_their_place(gate: Gate, kind: str):
    parts = [{"type": "input_text", "text": "look"}, {"type": kind}]
    error = refusal(gate, {"input": [user(), user(content=parts)]})
    assert (type(error), error.param) == (errors.UnsupportedValue, "input[1].content[1].type")
    assert kind in error.message


def test_text_as_input_is_kept(gate: Gate):
    assert gate.apply({"input": ""}) == ({"input": ""}, [])


# Tools


@pytest.mark.parametrize("kind", with_status("tools", "dropped"))
def test_tool_01_tools_that_are_not_served_are_left_out_and_named(lenient: Gate, kind: str):
    kept, dropped = lenient.apply({"tools": [{"type": kind, "name": "a"}]})
    assert kept == {"tools": []}
    assert dropped == [Dropped("tools[0]", f"tools.{kind}")]


@pytest.mark.parametrize("kind", with_status("tools", "dropped"))
def test_tool_01_tools_that_are_not_served_are_refused_with_strict(strict: Gate, kind: str):
    error = refusal(strict, {"tools": [{"type": kind}]})
    assert (type(error), error.param) == (errors.InvalidTool, "tools[0].type")


def test_tool_01_tools_of_unknown_types_are_named_without_their_type(lenient: Gate):
    # The type is the client's own word, and names are counted.
    kept, dropped = lenient.apply({"tools": [{"type": "telepathy"}]})
    assert kept == {"tools": []}
    assert dropped == [Dropped("tools[0]", "unknown tool")]


def test_tool_01_tools_of_unknown_types_are_refused_with_strict(strict: Gate):
    error = refusal(strict, {"tools": [{"type": "telepathy"}]})
    assert (type(error), error.param) == (errors.InvalidTool, "tools[0].type")


HOSTED = ["web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation"]


def offering(contract: Contract, how: Any) -> Gate:
    return Gate(contract, hosted_tools=how)


@pytest.mark.parametrize("kind", HOSTED)
def test_tool_01_hosted_tools_may_be_offered_as_functions(contract: Contract, kind: str):
    kept, dropped = offering(contract, "offer").apply({"tools": [{"type": kind, "knob": 1}]})
    (function,) = kept["tools"]
    assert dropped == []
    assert contract.accepts("#/components/schemas/FunctionTool", function)
    assert function["type"] == "function" and function["description"]
    assert function["name"] == kind.removesuffix("_preview")
    assert len(function["parameters"]["required"]) == 1


@pytest.mark.parametrize("kind", ["mcp", "computer", "shell", "apply_patch", "telepathy"])
def test_tool_01_tools_that_cannot_be_functions_are_left_out_all_the_same(
    contract: Contract, kind: str
):
    kept, dropped = offering(contract, "offer").apply({"tools": [{"type": kind}]})
    assert kept == {"tools": []}
    assert [entry.path for entry in dropped] == ["tools[0]"]


@pytest.mark.parametrize("kind", ["web_search", "mcp", "telepathy"])
def test_tool_01_hosted_tools_may_be_refused(contract: Contract, kind: str):
    function = {"type": "function", "name": "ls"}
    error = refusal(offering(contract, "refuse"), {"tools": [function, {"type": kind}]})
    assert (type(error), error.param) == (errors.InvalidTool, "tools[1].type")
    body = {"input": "hi", "tools": [function], "text": {"verbosity": "low"}}
    assert len(offering(contract, "refuse").apply(body)[1]) == 1  # Nothing else is.


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
def test_tools_that_items_bring_are_held_to_the_same_rules(
    lenient: Gate, strict: Gate, contract: Contract, kind: str
):
    function = {"type": "function", "name": "ls"}
    item = {"type": kind, "tools": [{"type": "web_search"}, function]}
    body = {"input": [user(), item]}
    kept, dropped = lenient.apply(body)
    assert kept == {"input": [user(), {"type": kind, "tools": [function]}]}
    assert dropped == [Dropped("input[1].tools[0]", "tools.web_search")]
    error = refusal(strict, body)
    assert (type(error), error.param) == (errors.InvalidTool, "input[1].tools[0].type")
    kept, dropped = offering(contract, "offer").apply(body)
    assert [tool["name"] for tool in kept["input"][1]["tools"]] == ["web_search", "ls"]
    assert dropped == []


# A server without summaries, and a model without efforts


@pytest.mark.parametrize("field", ["reasoning.summary", "reasoning.generate_summary"])
def test_without_summaries_a_wish_for_one_is_left_out_and_named_or_with_strict_refused(
    lenient: Gate, strict: Gate, field: str
):
    body = body_with(field, "auto")
    assert lenient.apply(body) == ({"reasoning": {}}, [Dropped(field, field)])
    error = refusal(strict, body)
    assert (type(error), error.param) == (errors.UnsupportedParameter, field)
    assert COVERAGE["unsummarised"]["request"][field]["why"] in error.message


def test_a_field_is_left_out_later_as_if_it_had_never_passed(lenient: Gate, strict: Gate):
    kept, dropped = {"reasoning": {"effort": "low", "summary": "auto"}}, [Dropped("zz", "zz")]
    lenient.leave_out(kept, "reasoning.effort", "There is none.", dropped)
    assert kept == {"reasoning": {"summary": "auto"}}
    assert dropped[1:] == [Dropped("reasoning.effort", "reasoning.effort")]
    with pytest.raises(errors.UnsupportedParameter, match="There is none") as caught:
        strict.leave_out({"reasoning": {"effort": "low"}}, "reasoning.effort", "There is none.", [])
    assert caught.value.param == "reasoning.effort"


# A server that keeps nothing


@pytest.fixture(params=[False, True], ids=["lenient", "strict"])
def stateless(contract: Contract, request: pytest.FixtureRequest) -> Gate:
    return Gate(contract, strict=request.param, stateless=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [("background", True), ("previous_response_id", "resp_1"), ("conversation", {"id": "conv_1"})],
)
def test_without_a_store_what_needs_one_is_refused_and_says_why(
    stateless: Gate, path: str, value: Any
):
    error = refusal(stateless, {"input": "hi", path: value})
    assert (type(error), error.param) == (errors.UnsupportedParameter, path)
    assert COVERAGE["stateless"]["request"][path]["why"] in error.message


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "msg_1"}, *REFERENCES])
def test_without_a_store_references_are_refused(stateless: Gate, reference: dict[str, Any]):
    error = refusal(stateless, {"input": [user(), reference]})
    assert type(error) is errors.UnsupportedValue
    assert (error.param or "").startswith("input[1]")
    assert COVERAGE["stateless"]["input_items"]["item_reference"]["why"] in error.message


def test_without_a_store_storing_is_left_out_and_named_or_with_strict_refused(contract: Contract):
    kept, dropped = Gate(contract, stateless=True).apply({"input": "hi", "store": True})
    assert (kept, dropped) == ({"input": "hi"}, [Dropped("store", "store")])
    error = refusal(Gate(contract, strict=True, stateless=True), {"input": "hi", "store": True})
    assert (type(error), error.param) == (errors.UnsupportedParameter, "store")


def test_without_a_store_what_asks_for_none_is_let_through(stateless: Gate):
    body = {"input": "hi", "store": False, "background": False}
    assert stateless.apply({**body, "conversation": None}) == (body, [])


def test_without_a_store_all_else_is_as_with_one(contract: Contract):
    body = {"input": [user(), {"type": "reasoning"}], "temperature": 0, "user": "u", "zz": 1}
    assert Gate(contract, stateless=True).apply(body) == Gate(contract).apply(body)


# Conversations


def test_what_a_conversation_is_made_of_is_kept(gate: Gate):
    body = {"items": [user()], "metadata": {"k": "v"}}
    assert gate.apply_conversation(body) == (body, [])
    assert gate.apply_conversation({"items": None, "metadata": None}) == ({}, [])


def test_items_of_conversations_are_held_to_the_same_rules_as_input(lenient: Gate, strict: Gate):
    added = {"type": "additional_tools", "tools": [{"type": "mcp"}]}
    kept, dropped = lenient.apply_conversation({"items": [user(), added]})
    assert kept == {"items": [user(), {**added, "tools": []}]}
    assert dropped == [Dropped("items[1].tools[0]", "tools.mcp")]
    for body, param in (
        ({"items": [user(), {"type": "mcp_call"}]}, "items[1].type"),
        ({"items": [user(content=[{"type": "input_audio"}])]}, "items[0].content[0].type"),
    ):
        with pytest.raises(errors.UnsupportedValue) as refused:
            lenient.apply_conversation(body)
        assert refused.value.param == param


def test_unknown_fields_of_conversations_are_left_out_and_named(lenient: Gate, strict: Gate):
    # Fields of create requests and of Chat Completions are nothing special here.
    body = {"metadata": {}, "messages": [], "store": True}
    kept, dropped = lenient.apply_conversation(body)
    assert kept == {"metadata": {}}
    assert dropped == [Dropped("messages", "unknown field"), Dropped("store", "unknown field")]
    with pytest.raises(errors.UnknownParameter) as refused:
        strict.apply_conversation(body)
    assert refused.value.param == "messages"


# Coverages of other days


def gate_of(*, strict: bool = False, **sections: Any) -> Gate:
    """A gate over a coverage made up here."""
    names = ("request", "conversation", "foreign", "include", "input_items")
    names += ("content_parts", "tools")
    coverage = {name: sections.get(name, {}) for name in names}
    contract: Any = SimpleNamespace(coverage=coverage)
    return Gate(contract, strict=strict, summarises=True)


def line(status: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "why": "Because.", **more}


def test_tool_01_served_tools_stay_among_those_that_are_left_out():
    sections = {
        "request": {"tools": line("served")},
        "tools": {"function": line("served"), "web_search": line("dropped")},
    }
    function = {"type": "function", "name": "ls"}
    body = {"tools": [function, {"type": "web_search"}, {"type": "namespace"}]}
    kept, dropped = gate_of(**sections).apply(body)
    assert kept == {"tools": [function]}
    assert [entry.path for entry in dropped] == ["tools[1]", "tools[2]"]
    error = refusal(gate_of(strict=True, **sections), body)
    assert (type(error), error.param) == (errors.InvalidTool, "tools[1].type")


def test_items_that_are_dropped_are_left_out_and_named_by_their_place():
    sections = {
        "request": {"input": line("served")},
        "input_items": {"message": line("served"), "program": line("dropped")},
    }
    first, last = user(content="first"), user(content="last")
    body = {"input": [first, {"type": "program"}, last]}
    kept, dropped = gate_of(**sections).apply(body)
    assert kept == {"input": [first, last]}
    assert dropped == [Dropped("input[1]", "input.program")]
    error = refusal(gate_of(strict=True, **sections), body)
    assert (type(error), error.param) == (errors.UnsupportedValue, "input[1].type")


def test_a_tool_that_is_rejected_is_refused():
    sections = {"request": {"tools": line("served")}, "tools": {"mcp": line("rejected")}}
    error = refusal(gate_of(**sections), {"tools": [{"type": "mcp"}]})
    assert (type(error), error.param) == (errors.InvalidTool, "tools[0].type")
    assert "Because." in error.message


def test_a_part_of_what_a_tool_gave_back_is_refused_by_its_place():
    sections = {
        "request": {"input": line("served")},
        "input_items": {"function_call_output": line("served")},
        "content_parts": {"input_text": line("served"), "input_image": line("rejected")},
    }
    output = [{"type": "input_text", "text": "1x1"}, {"type": "input_image"}]
    item = {"type": "function_call_output", "output": output, "content": ["the client's own"]}
    error = refusal(gate_of(**sections), {"input": [item]})
    assert error.param == "input[0].output[1].type"


def test_a_field_deep_inside_is_taken_out_and_its_neighbours_stay():
    gate = gate_of(request={"a.b.c": line("dropped"), "a.d": line("served")})
    kept, dropped = gate.apply({"a": {"b": {"c": 1, "x": 2}, "d": 3}})
    assert kept == {"a": {"b": {"x": 2}, "d": 3}}
    assert dropped == [Dropped("a.b.c", "a.b.c")]


def test_a_rule_on_what_is_inside_does_not_mind_what_is_no_object():
    gate = gate_of(request={"a.b": line("rejected")})
    assert gate.apply({"a": "text"}) == ({"a": "text"}, [])
