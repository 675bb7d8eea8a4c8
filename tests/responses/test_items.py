"""Input items made complete, matched to each other, and put before a model."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from antiphon.responses.items import (
    bare_reasoning,
    kind_of,
    normalized,
    references,
    turn_entries,
)
from antiphon.spec import Contract
from antiphon.turn import Call, CallResult, Message, Reasoning

RESOURCE = "#/components/schemas/ItemResource"
LISTED: TypeAdapter[Any] = TypeAdapter(ResponseItem)
CONVERSED: TypeAdapter[Any] = TypeAdapter(ConversationItem)

CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "3 C"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_1", "name": "sh", "input": "ls"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a b"}


def one(**given: Any) -> dict[str, Any]:
    """The complete form of one item."""
    (item,) = normalized([given])
    return item


def without_id(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "id"}


# --- complete items ---


def test_a_string_is_one_user_message():
    (item,) = normalized("Hi")
    assert without_id(item) == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_inp_01_a_message_needs_no_type_and_keeps_its_role(role):
    item = one(role=role, content="Hi")
    assert (item["type"], item["role"]) == ("message", role)
    assert item["content"] == [{"type": "input_text", "text": "Hi"}]


@pytest.mark.parametrize(
    "content",
    [
        "Hello",
        [{"type": "output_text", "text": "Hello"}],
        [{"type": "output_text", "text": "Hello", "annotations": None, "logprobs": None}],
        [{"type": "output_text", "text": "Hello", "annotations": [], "made_up": 1}],
    ],
)
def test_inp_02_what_the_assistant_said_is_an_answer_s_part_whatever_was_left_out(content):
    item = one(role="assistant", content=content)
    assert item["content"] == [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    ]


def test_inp_02_a_refusal_stays_one():
    part = {"type": "refusal", "refusal": "I cannot."}
    assert one(role="assistant", content=[part])["content"] == [part]


def test_a_message_without_parts_has_none():
    assert one(role="user", content=[])["content"] == []


def test_fields_that_no_item_has_are_left_out_and_so_are_nulls():
    item = one(type=None, role="user", content="Hi", id=None, status=None, phase=None, made_up=1)
    assert set(item) == {"type", "id", "role", "status", "content"}


def test_only_an_assistant_s_message_has_a_phase():
    assert one(role="assistant", content="Hi", phase="commentary")["phase"] == "commentary"
    assert "phase" not in one(role="user", content="Hi", phase="commentary")


def test_images_and_files_keep_what_they_are_made_of():
    parts = [
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "made_up": 1},
        {"type": "input_image", "file_id": "file_1", "detail": "low"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_data": "AA==", "filename": "a.pdf", "detail": "high"},
    ]
    assert one(role="user", content=parts)["content"] == [
        {
            "type": "input_image",
            "image_url": "data:image/png;base64,AA==",
            "file_id": None,
            "detail": "auto",
        },
        {"type": "input_image", "image_url": None, "file_id": "file_1", "detail": "low"},
        {
            "type": "input_file",
            "file_data": None,
            "file_url": "https://example.com/a.pdf",
            "file_id": None,
            "filename": None,
        },
        {
            "type": "input_file",
            "file_data": "AA==",
            "file_url": None,
            "file_id": None,
            "filename": "a.pdf",
            "detail": "high",
        },
    ]


def test_rsn_02_reasoning_needs_no_field():
    assert without_id(one(type="reasoning")) == {
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [],
    }
    assert one(type="reasoning", summary=None, content=None, encrypted_content=None).keys() == {
        "type",
        "id",
        "status",
        "summary",
        "content",
    }


def test_rsn_02_reasoning_keeps_its_summary_its_words_and_its_sealed_form():
    summary = [{"type": "summary_text", "text": "Greeted."}]
    content = [{"type": "reasoning_text", "text": "User greets me."}]
    item = one(type="reasoning", id="rs_2", summary=summary, content=content, encrypted_content="x")
    assert item == {
        "type": "reasoning",
        "id": "rs_2",
        "status": "completed",
        "summary": summary,
        "content": content,
        "encrypted_content": "x",
    }


def test_calls_and_outputs_are_kept_as_they_are():
    call, output, custom, custom_output = normalized(
        [CALL, OUTPUT, {**CUSTOM, "call_id": "call_2"}, {**CUSTOM_OUTPUT, "call_id": "call_2"}]
    )
    assert without_id(call) == {**CALL, "status": "completed"}
    assert without_id(output) == {**OUTPUT, "status": "completed"}
    assert without_id(custom) == {**CUSTOM, "call_id": "call_2", "status": "completed"}
    assert without_id(custom_output) == {
        **CUSTOM_OUTPUT,
        "call_id": "call_2",
        "status": "completed",
    }


def test_a_call_s_namespace_is_kept_if_it_has_one():
    assert one(**CALL, namespace="crm")["namespace"] == "crm"
    assert "namespace" not in one(**CALL, namespace=None)


@pytest.mark.parametrize("output", ["", [], [{"type": "input_text", "text": "size 1x1"}]])
def test_tool_06_an_output_may_be_empty_or_in_parts(output):
    assert one(**{**OUTPUT, "output": output})["output"] == output


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, "completed"),
        ("completed", "completed"),
        ("in_progress", "completed"),
        ("nonsense", "completed"),
        ("incomplete", "incomplete"),
    ],
)
def test_only_an_item_that_was_cut_is_not_complete(given, kept):
    assert one(role="assistant", content="He", status=given)["status"] == kept


NOTE = {
    "type": "url_citation",
    "url": "https://example.com",
    "title": "Example",
    "start_index": 0,
    "end_index": 5,
}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (NOTE, [NOTE]),
        ({**NOTE, "made_up": 1}, [NOTE]),
        ({"type": "file_path", "file_id": "f", "index": 3}, None),
        ({"type": "file_citation", "file_id": "f", "filename": "a", "index": 3}, None),
        ({**NOTE, "type": "made_up"}, []),
        ({**NOTE, "type": ["url_citation"]}, []),
        ({**NOTE, "title": None}, []),
        ({**NOTE, "start_index": -1}, []),
        ({**NOTE, "start_index": True}, []),
        ({}, []),
    ],
)
def test_annotations_are_kept_where_they_are_whole(given, kept):
    part = {"type": "output_text", "text": "Hello", "annotations": [given]}
    (made,) = one(role="assistant", content=[part])["content"]
    assert made["annotations"] == ([given] if kept is None else kept)


TOKEN = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
LOGPROB = {**TOKEN, "top_logprobs": [TOKEN]}


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ([LOGPROB, LOGPROB], True),
        ([{**LOGPROB, "logprob": -1}], True),
        ([LOGPROB, TOKEN], False),
        ([{**LOGPROB, "top_logprobs": [{}]}], False),
        ([{**LOGPROB, "top_logprobs": [None]}], False),
        ([{**LOGPROB, "bytes": [256]}], False),
        ([{**LOGPROB, "bytes": None}], False),
        ([{**LOGPROB, "token": 1}], False),
        ([{**LOGPROB, "logprob": True}], False),
        ([{**LOGPROB, "logprob": "-0.5"}], False),
        ([{}], False),
    ],
)
def test_log_probabilities_are_kept_if_all_are_whole(given, whole):
    part = {"type": "output_text", "text": "Hi", "logprobs": given}
    (made,) = one(role="assistant", content=[part])["content"]
    assert made["logprobs"] == (given if whole else [])


# --- ids ---


@pytest.mark.parametrize("item_id", ["msg_1", "a", "A.b:c-9_", "x" * 128])
def test_an_id_that_can_be_one_stays(item_id):
    assert one(role="user", content="Hi", id=item_id)["id"] == item_id


@pytest.mark.parametrize("item_id", [None, "", "a b", "a\0", "a\n", "é", "x" * 129, "a/b"])
@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        ({"role": "user", "content": "Hi"}, "msg_"),
        ({"type": "reasoning"}, "rs_"),
        (CALL, "fc_"),
        (OUTPUT, "fco_"),
        (CUSTOM, "ctc_"),
        (CUSTOM_OUTPUT, "ctco_"),
    ],
)
def test_any_other_id_is_replaced_by_one_of_the_item_s_kind(given, prefix, item_id):
    made = one(**given, id=item_id)["id"]
    assert made.startswith(prefix) and len(made) == len(prefix) + 32


def test_of_two_items_with_one_id_the_second_gets_its_own():
    message = {"role": "user", "content": "Hi", "id": "msg_1"}
    first, second = normalized([message, message])
    assert first["id"] == "msg_1"
    assert second["id"] != "msg_1" and second["id"].startswith("msg_")


# --- everything that is made is what the API shows ---

TEXT = st.text(max_size=8)
MAYBE_ID = st.none() | st.sampled_from(["msg_1", "x y", ""]) | TEXT
MAYBE_STATUS = st.none() | st.sampled_from(["completed", "incomplete", "other"])


def _given(kind: str | None, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    extras = {"id": MAYBE_ID, "status": MAYBE_STATUS, "made_up": TEXT}
    needed = dict(fields) if kind is None else {"type": st.just(kind), **fields}
    return st.fixed_dictionaries(needed, optional=extras)


INPUT_PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXT})
    | st.fixed_dictionaries({"type": st.just("input_image"), "image_url": st.none() | TEXT}),
    max_size=3,
)
ANSWER_PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("output_text"), "text": TEXT},
        optional={
            "annotations": st.none() | st.lists(st.sampled_from([NOTE, {}, {"type": "x"}])),
            "logprobs": st.none() | st.lists(st.sampled_from([LOGPROB, TOKEN])),
        },
    )
    | st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXT}),
    max_size=3,
)
REASONS = st.lists(st.fixed_dictionaries({"type": st.just("reasoning_text"), "text": TEXT}))
SUMMARIES = st.lists(st.fixed_dictionaries({"type": st.just("summary_text"), "text": TEXT}))
CALL_IDS = st.sampled_from(["call_1", "call_2", "3"])
FUNCTIONS = st.fixed_dictionaries(
    {"type": st.just("function"), "name": TEXT},
    optional={
        "description": st.none() | TEXT,
        "parameters": st.none() | st.just({"type": "object"}),
        "strict": st.none() | st.booleans(),
        "defer_loading": st.none() | st.booleans(),
        "made_up": TEXT,
    },
)
CUSTOM_TOOLS = st.fixed_dictionaries(
    {"type": st.just("custom"), "name": TEXT},
    optional={
        "description": st.none() | TEXT,
        "format": st.sampled_from(
            [
                None,
                {"type": "text", "made_up": 1},
                {"type": "grammar", "syntax": "regex", "definition": "a+", "made_up": 1},
            ]
        ),
    },
)
NAMESPACES = st.fixed_dictionaries(
    {
        "type": st.just("namespace"),
        "name": TEXT,
        "description": TEXT,
        "tools": st.lists(FUNCTIONS | CUSTOM_TOOLS, max_size=2),
    },
    optional={"made_up": TEXT},
)
TOOLS = st.lists(FUNCTIONS | CUSTOM_TOOLS | NAMESPACES, max_size=3)
GIVEN = st.one_of(
    _given(None, role=st.sampled_from(["user", "system", "developer"]), content=TEXT | INPUT_PARTS),
    _given("message", role=st.just("assistant"), content=TEXT | ANSWER_PARTS),
    _given("reasoning"),
    _given(
        "reasoning",
        summary=st.none() | SUMMARIES,
        content=st.none() | REASONS,
        encrypted_content=st.none() | TEXT,
    ),
    _given("function_call", call_id=CALL_IDS, name=TEXT, arguments=TEXT),
    _given("function_call_output", call_id=CALL_IDS, output=TEXT | INPUT_PARTS),
    _given("function_call_output", name=TEXT, output=TEXT),
    _given("custom_tool_call", call_id=CALL_IDS, name=TEXT, input=TEXT),
    _given("custom_tool_call_output", call_id=CALL_IDS, output=TEXT | INPUT_PARTS),
    _given("additional_tools", tools=TOOLS),
    _given("tool_search_call", arguments=TEXT | st.dictionaries(TEXT, TEXT, max_size=2)),
    _given("tool_search_output", tools=TOOLS, call_id=st.none() | CALL_IDS),
)


@settings(deadline=None, max_examples=200)
@given(items=st.lists(GIVEN, max_size=4))
def test_every_complete_item_is_one_that_the_document_and_the_sdk_know(
    contract: Contract, items: list[dict[str, Any]]
):
    made = normalized(items)
    assert [kind_of(item) for item in made] == [kind_of(item) for item in items]
    assert len({item["id"] for item in made}) == len(made)
    for item in made:
        assert contract.accepts(RESOURCE, item), item
        # Only the SDK's own fields are left over, and its types take what they get.
        assert not LISTED.validate_python(item, strict=True).model_extra
        CONVERSED.validate_python(item, strict=True)


@settings(deadline=None, max_examples=100)
@given(items=st.lists(GIVEN, max_size=4))
def test_complete_items_are_complete_already(items: list[dict[str, Any]]):
    first = normalized(items)
    # Reasoning of which only an id is left stands for what is stored.
    made = [item for number, item in enumerate(first) if number not in bare_reasoning(first)]
    again = normalized(made)
    assert again == made
    assert [list(item) for item in again] == [list(item) for item in made]


# --- references ---


BARE = {"type": "reasoning", "id": "rs_1", "summary": [], "content": None}


def test_reasoning_with_nothing_but_its_id_stands_for_what_is_stored():
    for bare in (BARE, {"type": "reasoning", "id": "rs_1", "encrypted_content": None}):
        assert normalized([bare]) == [{"type": "item_reference", "id": "rs_1"}]
        assert bare_reasoning([{"role": "user", "content": "Hi"}, bare]) == {1}


@pytest.mark.parametrize(
    "more",
    [
        {"id": None},
        {"id": "it_1"},
        {"content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"summary": [{"type": "summary_text", "text": "Hm"}]},
        {"encrypted_content": "x"},
    ],
)
def test_reasoning_that_says_something_or_has_another_s_id_is_not_looked_up(more: dict[str, Any]):
    given = {**BARE, **more}
    assert bare_reasoning([given]) == set()
    assert one(**given)["type"] == "reasoning"


def test_a_string_has_no_reasoning():
    assert bare_reasoning("rs_1") == set()


def test_inp_06_references_are_found_with_or_without_a_type_and_left_alone():
    given = [
        {"role": "user", "content": "Hi"},
        {"type": "item_reference", "id": "fc_1"},
        {"type": None, "id": "msg_2"},
        {"id": "msg 3"},
    ]
    assert references(given) == [(1, "fc_1"), (2, "msg_2"), (3, "msg 3")]
    assert normalized(given)[1:] == given[1:]
    assert references(normalized(given)) == references(given)


def test_a_string_has_no_references():
    assert references("item_reference") == []


# --- what a model is asked ---


def asked(*items: dict[str, Any]) -> list[Any]:
    return list(turn_entries(normalized(items)))


def test_every_kind_of_item_reaches_the_model_in_order():
    assert asked(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"role": "assistant", "content": "Hello."},
        CALL,
        {**CUSTOM, "call_id": "call_2"},
        OUTPUT,
        {**CUSTOM_OUTPUT, "call_id": "call_2"},
        {"role": "system", "content": "Go on."},
    ) == [
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Reasoning("Hm"),
        Message("assistant", "Hello."),
        Call("call_1", "f", "{}"),
        Call("call_2", "sh", "ls", custom=True),
        CallResult("call_1", "3 C"),
        CallResult("call_2", "a b"),
        Message("system", "Go on."),
    ]


def test_a_call_in_a_namespace_has_the_name_that_the_model_uses():
    call = {**CALL, "namespace": "crm", "name": "find"}
    custom = {**CUSTOM, "namespace": "functions", "call_id": "call_2"}
    assert asked(call, custom) == [
        Call("call_1", "crm__find", "{}"),
        Call("call_2", "functions__sh", "ls", custom=True),
    ]


FOUND = {
    "type": "tool_search_output",
    "call_id": "call_1",
    "execution": "client",
    "tools": [
        {
            "type": "namespace",
            "name": "crm",
            "description": "Customers.",
            "tools": [{"type": "function", "name": "find", "defer_loading": True}],
        }
    ],
}


def test_a_search_for_tools_is_a_call_and_what_it_found_its_result():
    search = {"type": "tool_search_call", "call_id": "call_1", "arguments": {"query": "é"}}
    assert asked(search, FOUND) == [
        Call("call_1", "tool_search", '{"query":"é"}'),
        CallResult("call_1", '{"tools":["crm__find"]}'),
    ]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({"query": "a"}, {"query": "a"}),
        ('{"query":"a"}', {"query": "a"}),
        ("", {}),
        ("[1]", {"query": "[1]"}),
        ("spawn agent", {"query": "spawn agent"}),
    ],
)
def test_what_is_searched_for_is_kept_as_an_object(arguments: Any, kept: dict[str, Any]):
    search = {"type": "tool_search_call", "call_id": "call_1", "execution": "client"}
    assert one(**search, arguments=arguments)["arguments"] == kept


def test_a_search_that_a_server_ran_and_added_tools_are_nothing_that_was_said():
    search = {"type": "tool_search_call", "arguments": {}}
    added = {"type": "additional_tools", "role": "developer", "tools": FOUND["tools"]}
    assert asked(search, {**FOUND, "call_id": None}, added) == []


def test_parts_begin_on_lines_of_their_own():
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    said = [{"type": "output_text", "text": "c"}, {"type": "refusal", "refusal": "d"}]
    assert asked({"role": "user", "content": parts}, {"role": "assistant", "content": said}) == [
        Message("user", "a\nb"),
        Message("assistant", "c\nd"),
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [("3 C", "3 C"), ([{"type": "input_text", "text": "3 C"}], "3 C"), ("", ""), ([], "")],
)
def test_tool_06_an_output_in_parts_is_that_of_the_same_text(output, text):
    assert asked({**OUTPUT, "output": output}) == [CallResult("call_1", text)]


def test_rsn_02_reasoning_that_cannot_be_read_is_nothing_to_the_model():
    summary = [{"type": "summary_text", "text": "Greeted."}]
    assert (
        asked(
            {"type": "reasoning", "summary": summary, "encrypted_content": "x"},
            {"type": "reasoning", "summary": [], "content": []},
        )
        == []
    )


def test_an_item_that_no_model_can_be_shown_is_never_left_out_in_silence():
    with pytest.raises(ValueError, match="compaction"):
        turn_entries([{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}])
