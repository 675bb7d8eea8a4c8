"""What the model is offered of the tools of a request, and what responses call it."""

from typing import Any

import pytest

from antiphon.errors import ArrayTooLong, InvalidValue
from antiphon.responses.presentation import ShownTool
from antiphon.responses.tools import (
    check_tools,
    effective_tools,
    grammars,
    model_name,
    strict_schemas,
    tool_table,
)
from antiphon.spec import Contract
from antiphon.turn import TextGrammar, Tool, ToolChoice

TOOL = "#/components/schemas/EffectiveTool"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
SHELL = {"type": "custom", "name": "sh"}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "description": "Finds one."},
        {"type": "custom", "name": "sql", "description": "Asks.", "format": LARK},
    ],
}
SEARCH = {"type": "tool_search", "execution": "client", "parameters": SCHEMA}


def names(*declared: dict[str, Any], items: Any = ()) -> list[str]:
    return [tool.name for tool in tool_table(declared, items).tools]


# What the model is offered


def test_a_function_is_offered_as_it_was_declared():
    declared = {**WEATHER, "description": "Tells it.", "strict": True}
    assert tool_table([declared]).tools == (
        Tool("get_weather", "Tells it.", parameters=SCHEMA, strict=True),
    )


@pytest.mark.parametrize("parameters", [{}, {"parameters": None}, {"parameters": {}}])
def test_tool_09_a_function_may_have_no_parameters(parameters: dict[str, Any]):
    (tool,) = tool_table([{"type": "function", "name": "now", **parameters}]).tools
    assert tool.parameters is None


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": False}])
def test_a_function_is_strict_only_where_it_says_so(strict: dict[str, Any]):
    (tool,) = tool_table([{**WEATHER, **strict}]).tools
    (shown,) = effective_tools([{**WEATHER, **strict}])
    assert not tool.strict
    assert shown["type"] == "function" and shown["strict"] is False


@pytest.mark.parametrize("name", ["gęt wetter", "天気", "a.b/c", "🌤️"])
def test_names_and_descriptions_are_of_any_script(name: str):
    (tool,) = tool_table([{"type": "function", "name": name, "description": name * 2}]).tools
    assert (tool.name, tool.description) == (name, name * 2)


@pytest.mark.parametrize(
    ("given", "grammar"),
    [
        ({}, None),
        ({"format": None}, None),
        ({"format": {"type": "text"}}, None),
        ({"format": LARK}, TextGrammar("lark", 'start: "a"')),
        (
            {"format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
            TextGrammar("regex", "a+"),
        ),
    ],
)
def test_a_custom_tool_takes_text_or_what_obeys_a_grammar(given: Any, grammar: Any):
    assert tool_table([{**SHELL, **given}]).tools == (Tool("sh", custom=True, grammar=grammar),)


def test_tools_in_a_namespace_have_its_name_before_their_own():
    table = tool_table([CRM, WEATHER])
    assert [tool.name for tool in table.tools] == ["crm__find", "crm__sql", "get_weather"]
    assert [tool.custom for tool in table.tools] == [False, True, False]
    assert table.shown == {
        "crm__find": ShownTool("find", "crm"),
        "crm__sql": ShownTool("sql", "crm"),
        "get_weather": ShownTool("get_weather"),
    }
    called = [model_name(shown.name, shown.namespace) for shown in table.shown.values()]
    assert called == list(table.shown)


def test_what_a_namespace_is_for_is_said_once():
    first, second = tool_table([CRM]).tools
    assert first.description == "crm: Customers.\n\nFinds one."
    assert second.description == "Asks."


def test_an_empty_namespace_is_no_tool():
    assert names({"type": "namespace", "name": "crm", "tools": []}) == []


# Tools that items bring


def added(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "additional_tools", "tools": list(tools)}


def found(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_search_output", "tools": list(tools)}


def test_tools_that_items_bring_are_offered_behind_the_declared_ones():
    items = [{"type": "message"}, found(SHELL), added(CRM)]
    assert names(WEATHER, items=items) == ["get_weather", "crm__find", "crm__sql", "sh"]


def test_a_later_tool_takes_the_place_of_one_of_its_name():
    again = {**WEATHER, "description": "Better."}
    (tool, _) = tool_table([WEATHER, SHELL], [added(again)]).tools
    assert tool.description == "Better."
    assert names(WEATHER, SHELL, items=[found(again)]) == ["get_weather", "sh"]


def test_tools_that_wait_to_be_found_are_offered_once_they_are():
    waiting = {**WEATHER, "defer_loading": True}
    assert names(waiting, SEARCH, SHELL) == ["tool_search", "sh"]
    assert names(waiting, SEARCH, items=[found(waiting)]) == ["tool_search", "get_weather"]
    assert names(items=[added(waiting, SEARCH)]) == ["tool_search"]


def test_without_a_search_nothing_waits_to_be_found():
    assert names({**WEATHER, "defer_loading": True}, SHELL) == ["get_weather", "sh"]


# What responses tell of


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        (
            WEATHER,
            {**WEATHER, "description": None, "strict": False},
        ),
        (
            {"type": "function", "name": "now", "parameters": {}, "strict": True, "made_up": 1},
            {
                "type": "function",
                "name": "now",
                "description": None,
                "parameters": {},
                "strict": True,
            },
        ),
        (
            {**WEATHER, "defer_loading": True},
            {**WEATHER, "description": None, "strict": False, "defer_loading": True},
        ),
        (SHELL, {**SHELL, "description": None, "format": {"type": "text"}}),
        (
            {**SHELL, "format": {**LARK, "made_up": 1}},
            {**SHELL, "description": None, "format": LARK},
        ),
        (
            {"type": "namespace", "name": "crm", "tools": [SHELL]},
            {
                "type": "namespace",
                "name": "crm",
                "description": "",
                "tools": [{**SHELL, "description": None, "format": {"type": "text"}}],
            },
        ),
        (SEARCH, {**SEARCH, "description": None}),
    ],
)
def test_tools_are_told_as_they_were_declared(declared: Any, told: Any, contract: Contract):
    (made,) = effective_tools([declared])
    assert made == told
    assert contract.accepts(TOOL, made)
    assert effective_tools([made]) == [made]
    assert tool_table([made]) == tool_table([declared])


# Choices


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (
            {"type": "function", "name": "get_weather"},
            ToolChoice("required", frozenset({"get_weather"})),
        ),
        ({"type": "custom", "name": "sh"}, ToolChoice("required", frozenset({"sh"}))),
        (
            {"type": "function", "name": "find", "namespace": "crm"},
            ToolChoice("required", frozenset({"crm__find"})),
        ),
        ({"type": "function", "name": "find"}, ToolChoice("required", frozenset({"crm__find"}))),
        ({"type": "custom", "name": "sql"}, ToolChoice("required", frozenset({"crm__sql"}))),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "get_weather"}]},
            ToolChoice("auto", frozenset({"get_weather"})),
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [
                    {"type": "namespace", "name": "crm"},
                    {"type": "custom", "name": "sh"},
                    {"type": "web_search"},
                ],
            },
            ToolChoice("required", frozenset({"crm__find", "crm__sql", "sh"})),
        ),
    ],
)
def test_tool_05_a_choice_names_what_the_model_may_or_must_call(given: Any, choice: ToolChoice):
    assert tool_table([WEATHER, SHELL, CRM]).choice(given) == choice


def test_a_function_by_itself_is_meant_before_one_in_a_namespace():
    table = tool_table([CRM, {"type": "function", "name": "find"}])
    given = {"type": "function", "name": "find"}
    assert table.choice(given).allowed == {"find"}
    assert table.choice({**given, "namespace": "crm"}).allowed == {"crm__find"}


def test_a_hosted_tool_that_is_offered_as_a_function_can_be_chosen():
    table = tool_table([{"type": "function", "name": "web_search"}])
    for kind in ("web_search", "web_search_preview"):
        assert table.choice({"type": kind}).allowed == {"web_search"}
        allowed = {"type": "allowed_tools", "tools": [{"type": kind}]}
        assert table.choice(allowed) == ToolChoice("auto", frozenset({"web_search"}))


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"type": "function", "name": "finish"}, "tool_choice"),
        ({"type": "custom", "name": "get_weather"}, "tool_choice"),
        ({"type": "function", "name": "sh"}, "tool_choice"),
        ({"type": "function", "name": "get_weather", "namespace": "crm"}, "tool_choice"),
        ({"type": "function", "name": "find", "namespace": "other"}, "tool_choice"),
        ({"type": "function", "name": "crm__find"}, "tool_choice"),
        ({"type": "mcp", "server_label": "x", "name": "find"}, "tool_choice"),
        ({"type": "web_search"}, "tool_choice"),
        ({"type": "shell"}, "tool_choice"),
        (
            {
                "type": "allowed_tools",
                "tools": [{"type": "custom", "name": "sh"}, {"type": "function", "name": "x"}],
            },
            "tool_choice.tools[1]",
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "namespace", "name": "erp"}]},
            "tool_choice.tools[0]",
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "web_search"}, {"type": ["a"]}, {}]},
            "tool_choice.tools",
        ),
    ],
)
def test_tool_05_a_choice_of_what_is_not_there_is_refused(given: Any, param: str):
    with pytest.raises(InvalidValue) as caught:
        tool_table([WEATHER, SHELL, CRM]).choice(given)
    assert caught.value.param == param


def test_a_name_that_two_namespaces_have_does_not_choose():
    table = tool_table([CRM, {**CRM, "name": "erp"}])
    with pytest.raises(InvalidValue):
        table.choice({"type": "function", "name": "find"})


@pytest.mark.parametrize(
    "given",
    [
        "required",
        {"type": "function", "name": "f"},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_tool_05_without_tools_no_call_can_be_asked_for(given: Any):
    with pytest.raises(InvalidValue) as caught:
        tool_table([]).choice(given)
    assert caught.value.param == "tool_choice"
    assert tool_table([]).choice("auto") == ToolChoice()


# What is checked


def placed(*tools: dict[str, Any]) -> tuple[Any, list[str]]:
    return tools, [f"tools[{number}]" for number in range(len(tools))]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ((WEATHER, SHELL, WEATHER), "tools[2].name"),
        ((SHELL, {"type": "function", "name": "sh"}), "tools[1].name"),
        ((CRM, CRM), "tools[1].tools[0].name"),
        ((CRM, {"type": "function", "name": "crm__sql"}), "tools[1].name"),
    ],
)
def test_two_tools_of_one_name_are_refused(tools: Any, param: str):
    with pytest.raises(InvalidValue) as caught:
        check_tools(*placed(*tools), param="tools", most=128)
    assert caught.value.param == param


def test_tools_of_one_name_in_different_namespaces_are_taken():
    check_tools(*placed(CRM, {**CRM, "name": "erp"}, *CRM["tools"]), param="tools", most=6)


def test_there_may_be_so_many_tools_and_no_more():
    many = [{"type": "function", "name": f"f{number}"} for number in range(126)]
    check_tools(*placed(*many, CRM), param="tools", most=128)
    with pytest.raises(ArrayTooLong) as caught:
        check_tools(*placed(*many, CRM, SHELL), param="tools", most=128)
    assert caught.value.param == "tools"


def test_schemas_that_arguments_are_held_to_are_told_with_their_places():
    strict = {**WEATHER, "strict": True}
    inner = {"type": "namespace", "name": "n", "tools": [SHELL, strict]}
    nothing = {"type": "function", "name": "now", "strict": True, "parameters": {}}
    assert list(strict_schemas(*placed(WEATHER, strict, inner, nothing))) == [
        ("tools[1].parameters", SCHEMA),
        ("tools[2].tools[1].parameters", SCHEMA),
    ]


def test_grammars_are_told_with_their_places():
    custom = {**SHELL, "format": LARK}
    assert list(grammars(*placed(WEATHER, SHELL, custom, CRM))) == [
        ("tools[2].format.definition", LARK["definition"]),
        ("tools[3].tools[1].format.definition", LARK["definition"]),
    ]
