"""Histories of shells and patches, which a model did under another server."""

from typing import Any

import pytest
from asked import AskedModel
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from antiphon.responses.items import normalized, turn_entries
from antiphon.spec import Contract
from antiphon.turn import Call, CallResult

RESOURCE = "#/components/schemas/ItemResource"
CREATE = "#/components/schemas/CreateResponse"
LISTED: TypeAdapter[Any] = TypeAdapter(ResponseItem)
CONVERSED: TypeAdapter[Any] = TypeAdapter(ConversationItem)

EXIT = {"type": "exit", "exit_code": 0}
SHELL = {
    "id": "it_1",
    "type": "shell_call",
    "call_id": "call_1",
    "action": {"commands": ["echo hi"], "max_output_length": 1000, "timeout_ms": None},
    "status": "completed",
}
SHELL_OUTPUT = {
    "type": "shell_call_output",
    "call_id": "call_1",
    "output": [{"stdout": "hi", "stderr": "", "outcome": EXIT}],
    "max_output_length": 1000,
}
PATCH = {
    "type": "apply_patch_call",
    "call_id": "call_2",
    "operation": {"type": "create_file", "path": "a.txt", "diff": "+hi\n"},
    "status": "completed",
}
PATCH_OUTPUT = {"type": "apply_patch_call_output", "call_id": "call_2", "status": "completed"}
LOCAL = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "call_3",
    "action": {"type": "exec", "command": ["ls", "-l"], "env": {}},
    "status": "completed",
}
LOCAL_OUTPUT = {"type": "local_shell_call_output", "id": "call_3", "output": "total 0"}
PAIRS = [(SHELL, SHELL_OUTPUT), (PATCH, PATCH_OUTPUT), (LOCAL, LOCAL_OUTPUT)]


def shown(*items: dict[str, Any]) -> list[Any]:
    """What a model is shown of items."""
    return list(turn_entries(normalized(items)))


def test_commands_are_a_call_and_what_they_printed_its_result():
    assert shown(SHELL, SHELL_OUTPUT) == [
        Call("call_1", "shell", '{"commands":["echo hi"],"max_output_length":1000}'),
        CallResult("call_1", "hi\nExit code: 0"),
    ]


def test_what_a_command_printed_as_errors_and_that_it_took_too_long_is_told():
    printed = {"stdout": "", "stderr": "oh", "outcome": {"type": "timeout"}}
    (result,) = shown({**SHELL_OUTPUT, "output": [*SHELL_OUTPUT["output"], printed]})
    assert result.output == "hi\nExit code: 0\noh\nIt took too long and was stopped."


@pytest.mark.parametrize(
    ("told", "result"),
    [
        ({"status": "completed"}, "Completed"),
        ({"status": "completed", "output": "a.txt is made"}, "Completed\na.txt is made"),
        ({"status": "failed", "output": "no such file"}, "Failed\nno such file"),
        ({"status": None, "output": None}, "Completed"),
    ],
)
def test_a_patch_is_a_call_and_whether_it_could_be_applied_its_result(
    told: dict[str, Any], result: str
):
    operation = '{"type":"create_file","path":"a.txt","diff":"+hi\\n"}'
    assert shown(PATCH, {**PATCH_OUTPUT, **told}) == [
        Call("call_2", "apply_patch", operation),
        CallResult("call_2", result),
    ]


def test_a_command_of_the_older_tool_is_found_by_the_id_of_its_output():
    assert shown(LOCAL, LOCAL_OUTPUT) == [
        Call("call_3", "local_shell", '{"type":"exec","command":["ls","-l"]}'),
        CallResult("call_3", "total 0"),
    ]


TEXT = st.text(max_size=6)
COUNT = st.none() | st.integers(0, 9)
MORE = {"made_up": TEXT, "id": st.none() | TEXT, "status": st.none() | TEXT}
OUTCOMES = st.one_of(
    st.fixed_dictionaries({"type": st.just("exit"), "exit_code": st.integers(-9, 9)}),
    st.fixed_dictionaries({"type": st.just("timeout")}, optional={"exit_code": COUNT}),
)
PRINTED = st.fixed_dictionaries({"stdout": TEXT, "stderr": TEXT, "outcome": OUTCOMES})
OPERATIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["create_file", "update_file", "delete_file"]),
        "path": TEXT,
        "diff": TEXT,
    }
)
ENVIRONMENTS = st.sampled_from(
    [
        None,
        {"type": "local", "skills": []},
        {"type": "container_reference", "container_id": "c"},
        {"type": "container_reference"},
        {"type": "moon"},
    ]
)


def _given(kind: str, needed: dict[str, Any], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    fields = {"type": st.just(kind), "call_id": st.just("call_1"), **needed}
    return st.fixed_dictionaries(fields, optional={**MORE, **more})


GIVEN = st.one_of(
    _given(
        "local_shell_call",
        {"action": st.fixed_dictionaries({"command": st.lists(TEXT)}, optional={"user": TEXT})},
    ),
    _given("local_shell_call_output", {"output": TEXT}),
    st.fixed_dictionaries({"type": st.just("local_shell_call_output"), "output": TEXT}),
    _given(
        "shell_call",
        {
            "action": st.fixed_dictionaries(
                {"commands": st.lists(TEXT)}, optional={"timeout_ms": COUNT, "made_up": TEXT}
            )
        },
        environment=ENVIRONMENTS,
        caller=st.just({"type": "direct"}),
    ),
    _given(
        "shell_call_output",
        {"output": st.lists(PRINTED, max_size=2)},
        max_output_length=COUNT,
    ),
    _given("apply_patch_call", {"operation": OPERATIONS}),
    _given("apply_patch_call_output", {}, output=st.none() | TEXT),
)


@settings(deadline=None, max_examples=150)
@given(item=GIVEN)
def test_what_is_kept_is_an_item_that_the_document_and_the_sdk_know(
    contract: Contract, item: dict[str, Any]
):
    assert contract.accepts(CREATE, {"input": [item]})
    (made,) = normalized([item])
    assert contract.accepts(RESOURCE, made), made
    # The SDK knows of no `call_id` there, without which nobody could tell what was answered.
    beyond = {"call_id"} if made["type"] == "local_shell_call_output" else set()
    assert set(LISTED.validate_python(made, strict=True).model_extra or ()) == beyond
    CONVERSED.validate_python(made, strict=True)
    assert normalized([made]) == [made]


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=lambda item: item["type"])
def test_a_history_of_them_is_taken_shown_and_kept(server, call, output):
    model = AskedModel(("", [{"text": "Done."}]))
    served = server(model)
    body = {"input": [{"role": "user", "content": "Go."}, call, output]}
    made = served.create(body)
    assert [role for role, _ in model.last] == ["user", "call", "result"]
    kept = served.http.get(f"/v1/responses/{made['id']}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in kept] == ["message", call["type"], output["type"]]
    assert kept[1]["call_id"] == kept[2]["call_id"] == call["call_id"]
    # What is kept may come back as it is.
    assert served.create({"input": kept})["status"] == "completed"


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=lambda item: item["type"])
def test_a_conversation_holds_them_and_goes_on(server, call, output):
    model = AskedModel(("", [{"text": "Done."}]))
    served = server(model)
    made = served.http.post("/v1/conversations", json={"items": [call, output]}).json()
    served.create({"input": "Go on.", "conversation": made["id"]})
    assert [role for role, _ in model.last] == ["call", "result", "user"]
    place = f"/v1/conversations/{made['id']}/items?order=asc"
    kept = [item["type"] for item in served.http.get(place).json()["data"]]
    assert kept == [call["type"], output["type"], "message", "message"]


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=lambda item: item["type"])
def test_a_call_without_an_output_and_an_output_without_a_call_are_refused(server, call, output):
    served = server(AskedModel(("", [{"text": "Done."}])))
    for items, place in (([call], 0), ([output], 0), ([call, output, output], 2)):
        answer = served.post({"input": items})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == f"input[{place}].call_id"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({**SHELL, "action": {}}, "input[0].action.commands"),
        ({**SHELL_OUTPUT, "output": [{"stdout": ""}]}, "input[0].output[0].stderr"),
        ({**PATCH, "operation": {"type": "burn_file"}}, "input[0].operation.type"),
        ({**LOCAL, "action": {"command": "ls"}}, "input[0].action.command"),
    ],
)
def test_an_item_of_another_shape_is_refused_at_its_place(server, item, param):
    answer = server(AskedModel(("", [{"text": "Done."}]))).post({"input": [item]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
