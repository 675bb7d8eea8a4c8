"""Recorded requests are read, what they rely on is found, and the command sends them."""

import json

import pytest
from answering import answering, error, recorded, response
from click.testing import CliRunner

from responses_conformance.cli import main
from responses_conformance.config import ConfigError
from responses_conformance.recorded.bodies import RecordedError, load
from responses_conformance.recorded.premises import premises, smallest
from responses_conformance.recorded.refusals import load as load_refusals

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS}
CALL = {
    "type": "function_call",
    "id": "fc_00000001",
    "call_id": "call_00000001",
    "name": "weather",
    "arguments": '{"city":"Oslo"}',
}
OUTPUT = {"type": "function_call_output", "call_id": "call_00000001", "output": "3"}


def write(folder, number, flow, body="Hi", **more):
    content = {
        "client": "c",
        "version": "1",
        "flow": flow,
        "transport": "http",
        "method": "POST",
        "path": "/v1/responses",
        "headers": {"X-Mark": "1"},
        "original_body_bytes": 1,
        "body": {"model": "m", "input": body},
    }
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:02}-{flow}.json"
    file.write_text(json.dumps({**content, **more}), "utf-8")
    return file


# --- files ---


def test_consecutive_requests_of_one_flow_are_a_conversation(tmp_path):
    for number, flow in ((10, "b"), (2, "a"), (9, "a"), (11, "a")):
        write(tmp_path / "client", number, flow)
    write(tmp_path / "other", 1, "a")
    names = [[request.name for request in flow] for flow in load([tmp_path])]
    assert names == [
        ["client/02-a", "client/09-a"],
        ["client/10-b"],
        ["client/11-a"],
        ["other/01-a"],
    ]


def test_paths_are_those_behind_the_base_url_and_headers_in_lower_case(tmp_path):
    write(tmp_path, 1, "a", path="/v1/responses/resp_00000001", method="GET")
    ((request,),) = load([tmp_path])
    assert (request.path, request.headers) == ("/responses/resp_00000001", {"x-mark": "1"})
    assert not request.creates


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"transport": "pigeon"}, "pigeon"), ({"headers": None}, "no recorded request")],
)
def test_a_file_that_holds_no_request_is_told_of(tmp_path, fields, why):
    file = write(tmp_path, 1, "a", **fields)
    with pytest.raises(RecordedError, match=why) as caught:
        load([tmp_path])
    assert file.name in str(caught.value)


def test_a_folder_without_requests_and_a_file_that_is_no_json_are_told_of(tmp_path):
    with pytest.raises(RecordedError, match="no recorded requests"):
        load([tmp_path])
    (tmp_path / "1-a.json").write_text("{")
    with pytest.raises(RecordedError, match=r"1-a\.json"):
        load([tmp_path])


# --- what they rely on ---


def asked(items, number, **fields):
    return recorded({"input": items, **fields}, number=number)


def test_what_a_request_brings_back_is_what_was_answered_before():
    first = asked("Weather?", 1, tools=[TOOL])
    thought = {"type": "reasoning", "id": "rs_00000001", "content": [{"text": "Look."}]}
    second = asked([thought, CALL, OUTPUT], 2)
    assert premises((first, second)) == {
        first.name: [
            {"reasoning": "Look."},
            {"call": "weather", "arguments": '{"city":"Oslo"}'},
        ]
    }


def test_an_output_alone_needs_a_call_of_a_tool_that_was_declared():
    first = asked("Weather?", 1, tools=[TOOL])
    second = asked([OUTPUT], 2, previous_response_id="resp_00000001")
    assert premises((first, second))[first.name] == [
        {"call": "weather", "arguments": '{"city": "a"}'}
    ]


def test_items_that_were_brought_before_need_no_new_answer():
    first, second = asked("Weather?", 1, tools=[TOOL]), asked([CALL, OUTPUT], 2)
    answer = {"role": "assistant", "content": "It is 3."}
    third = asked([CALL, OUTPUT, answer], 3)
    assert premises((first, second, third))[second.name] == [{"text": "It is 3."}]


def test_a_call_is_made_by_the_request_that_declares_its_tool():
    outer, inner = asked("Weather?", 1, tools=[TOOL]), asked("Think.", 2)
    assert list(premises((outer, inner, asked([CALL, OUTPUT], 3)))) == [outer.name]


def test_references_stand_for_items_of_their_kind():
    first = asked("Hi", 1)
    second = asked([{"type": "item_reference", "id": "msg_00000001"}], 2)
    assert premises((first, second)) == {first.name: [{"text": "Well."}]}


def test_calls_in_a_namespace_and_of_custom_tools_have_the_names_that_a_model_uses():
    space = {"type": "namespace", "name": "crm", "tools": [{**TOOL, "name": "find"}]}
    first = asked("Hi", 1, tools=[space, {"type": "custom", "name": "sh"}])
    custom = {"type": "custom_tool_call", "id": "ctc_00000001", "call_id": "call_00000002"}
    found = {**CALL, "name": "find", "namespace": "crm"}
    second = asked([found, {**custom, "name": "sh", "input": "ls"}], 2)
    assert [step["call"] for step in premises((first, second))[first.name]] == ["crm__find", "sh"]


def test_a_strict_function_is_called_with_what_fits_it():
    first = asked("Hi", 1, tools=[{**TOOL, "strict": True}])
    second = asked([{**CALL, "arguments": '{"city":1}'}, OUTPUT], 2)
    assert premises((first, second))[first.name][0]["arguments"] == '{"city": "a"}'


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_that_is_required_is_made(choice):
    request = asked("Hi", 1, tools=[TOOL], tool_choice=choice)
    assert premises((request,))[request.name][0]["call"] == "weather"


def test_an_answer_has_the_form_that_is_asked_for():
    form = {"type": "json_schema", "name": "n", "schema": PARAMETERS}
    request = asked("Hi", 1, text={"format": form})
    assert premises((request,)) == {request.name: [{"text": '{"city": "a"}'}]}


def test_what_is_cancelled_still_runs():
    flow = asked("Hi", 1, background=True), recorded(None, path="/responses/resp_00000001/cancel")
    assert "delay" in premises(flow)[flow[0].name][0]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        ({"type": ["string", "null"], "minLength": 3}, "aaa"),
        ({"enum": ["x", "y"]}, "x"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 7}}}, 7),
        ({"type": "number", "minimum": 4}, 4),
    ],
)
def test_small_values_fit_their_schemas(schema, value):
    assert smallest(schema) == value


# --- documented refusals ---


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: b", "must be a list"),
        ("- {name: a, code: b}", "a name and a reason"),
        ("- {name: a, reason: b}", "nothing tells it"),
        ("- {name: a, reason: b, colour: red}", "there is no colour"),
        ("- {name: a, reason: b, param: '('}", "param"),
        ("[", "refusals.yaml"),
    ],
)
def test_a_file_of_refusals_that_cannot_be_used_is_told_of(tmp_path, text, why):
    file = tmp_path / "refusals.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_refusals(file)


# --- the command ---


def run(folder, url, *more):
    arguments = ["resend", folder, "--base-url", url, "--model", "m", "--claim", "core", *more]
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_command_succeeds_where_all_is_accepted_and_writes_reports(tmp_path):
    write(tmp_path / "in", 1, "a")
    table, report = tmp_path / "t.md", tmp_path / "r.json"
    with answering(response()) as (config, _):
        said = run(tmp_path / "in", config.base_url, "--json", report, "--markdown", table)
    assert said.exit_code == 0, said.output
    assert "| c | 1 | 1 | 1 |" in table.read_text()
    assert json.loads(report.read_text())["counts"] == {"accepted": 1}


def test_the_command_fails_for_refusals_unless_they_are_documented_and_met(tmp_path):
    write(tmp_path / "in", 1, "a")
    file = tmp_path / "refusals.yaml"
    file.write_text("- {name: all, reason: It refuses all., code: invalid_value}\n")
    with answering((400, error()), (400, error()), response(), response()) as (config, _):
        codes = [
            run(tmp_path / "in", config.base_url, *more).exit_code
            for more in (
                (),
                ("--refusals", file),
                ("--refusals", file),
                ("--refusals", file, "--unused-refusals"),
            )
        ]
    assert codes == [1, 0, 1, 0]


def test_the_command_says_what_is_wrong_with_files(tmp_path):
    said = run(tmp_path, "http://127.0.0.1:9/v1")
    assert said.exit_code == 1 and "no recorded requests" in said.output
