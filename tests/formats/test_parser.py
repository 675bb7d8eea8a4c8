"""What the parser does where outputs are not as the book says."""

import json

import pytest
from parsed import NOW, WEATHER, call, items, parsed, parser
from writing import written

from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.parser import marker_tokens, starts_in_reasoning
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    Tool,
)

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OSLO = call("get_weather", '{"city": "Oslo"}')

# --- text and white space ---


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("text", ["Hi.", "  two\n\n", "a < b\n", "\n", "1 [x] {y} `z`", "🎉 é"])
def test_a_plain_answer_is_told_as_it_is(name, text):
    header = "<|channel|>final<|message|>" if DIALECTS[name].channels else ""
    assert parsed(name, header + text) == [("text", text)]


def test_white_space_at_marks_is_no_text():
    output = (
        f"<think>\n\nWhy not.\n\n</think>\n\n  Let me see. \n\n{HERMES}\n\n{HERMES}\n\n Done. \n"
    )
    assert parsed("hermes", output) == [
        ("reasoning", "Why not."),
        ("text", "  Let me see."),
        OSLO,
        OSLO,
        ("text", "Done. \n"),
    ]


def test_nothing_but_white_space_between_marks_is_no_item():
    assert parsed("hermes", f"<think>\n\n</think>\n\n{HERMES}\n\n") == [OSLO]


@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
def test_tool_03_a_call_after_reasoning_is_a_call_and_nothing_else(length):
    output = (
        "<think>need tool</think>\n\n"
        '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo"}}</tool_call>'
    )
    reader = parser("hermes")
    pieces = [output[start : start + length] for start in range(0, len(output), length)]
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    events = written(*deltas, *reader.finish())
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert response["output"][0]["content"][0]["text"] == "need tool"
    assert response["output"][1]["arguments"] == '{"city":"Oslo"}'
    said = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert not [piece for piece in said if "<tool_call" in piece or piece.isspace()]
    assert "response.output_text.delta" not in [event["type"] for event in events]


def test_text_is_told_at_once_up_to_what_may_be_a_mark():
    reader = parser("hermes")
    assert reader.feed("Hello") == [TextDelta("Hello")]
    assert reader.feed(" <") == []
    assert reader.feed("b>") == [TextDelta(" <b>")]
    assert reader.feed("\n<tool_c") == []
    assert reader.finish() == [TextDelta("\n<tool_c")]


def test_arguments_are_told_as_they_come():
    reader = parser("qwen3-coder")
    assert reader.feed("<tool_call>\n<function=get_weather>\n") == [
        CallStart(0, "get_weather"),
    ]
    assert reader.feed("<parameter=city>\nOs") == [CallArguments(0, '{"city": "Os')]
    assert reader.feed('lo "x"\n</param') == [CallArguments(0, 'lo \\"x\\"')]
    assert reader.feed("eter>\n<parameter=days>\n1") == [CallArguments(0, '"')]
    # A value that is no string is told when it is whole.
    assert reader.feed("2\n</parameter>\n</fun") == []
    assert reader.feed("ction>\n</tool_call>") == [CallArguments(0, ', "days": 12}'), CallEnd(0)]


def test_a_text_may_speak_of_marks():
    for text in ("Use <tool_call> tags.", "The <tool_call>\n[/] mark", "<think is no tag"):
        assert parsed("hermes", text) == [("text", text)]
    assert parsed("hermes", "First. <think>no</think>") == [("text", "First. <think>no")]


def test_without_tools_calls_are_text():
    assert parsed("hermes", HERMES, tools=()) == [("text", HERMES)]
    assert parsed("llama-4", "[get_time()]", tools=()) == [("text", "[get_time()]")]


# --- reasoning ---


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("Hm.\n</think>\n\nYes.", [("reasoning", "Hm."), ("text", "Yes.")]),
        ("Hm.", [("reasoning", "Hm.")]),
        ("</think>Yes.", [("text", "Yes.")]),
        (f"Hm.\n{HERMES}", [("reasoning", "Hm."), OSLO]),
        ("I could use <tool_call> here.", [("reasoning", "I could use <tool_call> here.")]),
    ],
)
def test_reasoning_that_the_prompt_began_goes_on_to_its_end(output, found):
    assert parsed("hermes", output, starts_in_reasoning=True) == found


def test_an_end_of_reasoning_without_a_beginning_is_dropped():
    assert parsed("hermes", "Yes.</think>\n\nNo.") == [("text", "Yes.\n\nNo.")]


def test_a_call_inside_reasoning_ends_it():
    output = f"<think>\nHm.\n{HERMES}\nAnd then.</think>"
    assert parsed("hermes", output) == [("reasoning", "Hm."), OSLO, ("text", "And then.")]


def test_reasoning_may_come_again_behind_a_call():
    output = f"<think>One.</think>{HERMES}\n<think>Two.</think>Done."
    assert parsed("hermes", output) == [
        ("reasoning", "One."),
        OSLO,
        ("reasoning", "Two."),
        ("text", "Done."),
    ]


def test_marks_of_an_answer_itself_are_dropped():
    output = "It is <|begin_of_box|>42<|end_of_box|>."
    assert parsed("glm-4.5", output) == [("text", "It is 42.")]


@pytest.mark.parametrize(
    ("name", "prompt", "inside"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n", True),
        ("hermes", "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("hermes", "<|im_start|>assistant\n", False),
        ("deepseek-v3.1", "<｜Assistant｜></think>", False),
        ("gemma-4", "<|turn>model\n<|channel>thought\n<channel|>", False),
        ("gemma-4", "<|turn>model\n<|channel>thought\n", True),
        ("harmony", "<|start|>assistant", False),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>", True),
        ("kimi-k3", '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>', True),
    ],
)
def test_the_prompt_says_whether_the_model_is_reasoning(name, prompt, inside):
    assert starts_in_reasoning(DIALECTS[name], prompt) is inside


# --- calls that are none, and names that are none ---


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("hermes", '<tool_call>\n{"city": "Oslo"}\n</tool_call>'),
        ("hermes", "<tool_call>{broken"),
        ("hermes", '<tool_call>\n{"name": 3}'),
        ("deepseek-v3.1", "<｜tool▁calls▁begin｜>hm"),
        ("mistral-v3", "[TOOL_CALLS] none"),
        ("phi-4-mini-functools", "functools[ This is just text ]"),
        ("llama-3", '{"city": "Oslo"}'),
        ("llama-3", '{"name": "Ann", "age": 3}'),
        ("llama-3", '{"name": "get_weather"}'),
        ("llama-3", 'Here: {"name": "get_weather", "parameters": {}}'),
        ("llama-4", '["a", "b"]'),
        ("llama-4", "[note] [link](x)"),
        ("llama-4", "[print(3)]"),
        ("gemma-4", "<|tool_call> nothing"),
    ],
)
def test_what_begins_like_no_call_is_text(name, output):
    assert parsed(name, output) == [("text", output)]


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("hermes", HERMES.replace("get_weather", "rm")),
        ("mistral-v3", '[TOOL_CALLS] [{"name": "rm", "arguments": {}}]'),
        ("mistral-v13", "[TOOL_CALLS]rm[ARGS]{}"),
        ("qwen3-coder", "<tool_call>\n<function=rm>\n</function>\n</tool_call>"),
        ("glm-4.7", "<tool_call>rm</tool_call>"),
        ("llama-3", '{"name": "rm", "parameters": {}}'),
        ("llama-4", "[get_time(), rm()]"),
        ("gemma-4", "<|tool_call>call:rm{}<tool_call|>"),
        ("harmony", "<|channel|>commentary to=functions.rm<|message|>{}"),
        ("harmony", "<|channel|>analysis to=rm code<|message|>x"),
    ],
)
def test_a_call_of_no_tool_is_told_by_name_and_nothing_behind_it(name, output):
    reader = parser(name)
    deltas = [*reader.feed(output), *reader.feed(" More."), *reader.finish()]
    assert reader.undeclared == "rm"
    assert not any(isinstance(d, CallStart) and d.name == "rm" for d in deltas)
    assert not any(isinstance(d, TextDelta) for d in deltas)


def test_only_given_tools_may_be_called():
    reader = parser("hermes", (NOW,))
    assert reader.feed("Hm. " + HERMES) == [TextDelta("Hm.")]
    assert reader.undeclared == "get_weather"


def test_a_prefix_that_models_know_from_others_is_no_part_of_a_name():
    output = HERMES.replace("get_weather", "functions.get_weather")
    assert parsed("hermes", output) == [OSLO]
    dotted = Tool("functions.get_weather")
    found = parsed("hermes", output, tools=[dotted, WEATHER])
    assert found == [call("functions.get_weather", '{"city": "Oslo"}')]


def test_names_may_be_of_any_script():
    tool = Tool("天気 2")
    assert parsed("glm-4.7", "<tool_call>天気 2</tool_call>", tools=[tool]) == [
        call("天気 2", "{}")
    ]
    assert parsed("gemma-4", "<|tool_call>call:天気 2{}", tools=[tool]) == [call("天気 2", "{}")]


# --- calls that break off ---


@pytest.mark.parametrize(
    ("name", "output", "arguments"),
    [
        ("hermes", HERMES[:60], '{"city": "O'),
        (
            "kimi-k2",
            "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            '{"city": "Beijing" <|tool_call_end|>',
            '{"city": "Beijing" ',
        ),
        ("llama-4", "[get_weather(city=datetime(3))]", '{"city": "datetime"'),
        ("glm-4.7", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Os", '{"city": "Os'),
        ("mistral-v13", '[TOOL_CALLS]get_weather[ARGS]{"ci', '{"ci'),
        ("gemma-4", "<|tool_call>call:get_weather{city:,}<tool_call|>", '{"city": '),
    ],
)
def test_a_call_that_breaks_off_stays_open(name, output, arguments):
    assert parsed(name, output) == [("call", "get_weather", arguments, False)]


def test_calls_behind_one_that_is_broken_are_read():
    output = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Bei" <|tool_call_end|><|tool_call_begin|>'
        "functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )
    assert parsed("kimi-k2", output) == [
        ("call", "get_weather", '{"city": "Bei" ', False),
        call("get_time", "{}"),
    ]


@pytest.mark.parametrize(
    ("name", "output", "inside"),
    [
        ("hermes", '<tool_call>\n{"na', True),
        ("hermes", "<tool_call>", True),
        ("hermes", HERMES + "\n<tool_call>\n{", True),
        ("hermes", HERMES, False),
        ("hermes", HERMES[:-12], False),
        ("hermes", "Yes.", False),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_w", True),
        ("mistral-v3", '[TOOL_CALLS] [{"name": "get_time", "arguments": {}}, {"na', True),
        ("llama-4", "[get_time(), get_w", True),
        ("harmony", "<|channel|>commentary to=functions.get", True),
        ("harmony", "<|channel|>final", False),
    ],
)
def test_an_end_inside_a_call_without_a_name_is_noticed(name, output, inside):
    reader = parser(name)
    assert not reader.breaks_off
    deltas = [*reader.feed(output), *reader.finish()]
    assert reader.breaks_off is inside
    assert all(ended for *_, ended in items(deltas) if ended in (True, False))
    assert not any(isinstance(delta, TextDelta) for delta in deltas) or output == "Yes."


def test_text_that_might_have_become_a_bare_call_is_not_lost():
    assert parsed("llama-3", '{"name": "get_wea') == [("text", '{"name": "get_wea')]
    assert parsed("llama-4", " [get_wea") == [("text", " [get_wea")]


def test_a_missing_brace_at_the_end_is_no_loss():
    assert parsed("hermes", HERMES.replace("}}", "}")) == [OSLO]


# --- arguments in JSON ---


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city": "a</tool_call>\\"}{\\\\"}', '{"city": "a</tool_call>\\"}{\\\\"}'),
        ('{ "tags" : [ [ ] , { } ] }', '{ "tags" : [ [ ] , { } ] }'),
        ('"{\\"city\\": \\"\\u00d8 \\ud83c\\udf89\\"}"', '{"city": "Ø 🎉"}'),
        ('""', "{}"),
        ("null", "{}"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_arguments_are_passed_on_as_they_are(arguments, told):
    output = f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call>Done.'
    assert parsed("hermes", output) == [call("get_weather", told), ("text", "Done.")]


@pytest.mark.parametrize(
    "envelope",
    [
        '{"arguments": {"city": "Oslo"}, "name": "get_weather"}',
        '{"id": "x", "name": "get_weather", "extra": [{"}": 1}], "arguments": {"city": "Oslo"}}',
        '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}',
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
    ],
)
def test_the_envelope_may_be_in_any_order(envelope):
    assert parsed("hermes", f"<tool_call>{envelope}</tool_call>") == [OSLO]


def test_a_call_without_arguments_has_none():
    for output in ('<tool_call>{"name": "get_time"}</tool_call>', HERMES):
        found = parsed("hermes", output.replace('get_weather", "arguments": {"city": "Oslo"}',
                                                'get_time"'))  # fmt: skip
        assert found == [call("get_time", "{}")]


# --- arguments between marks ---


def one_value(value: str, key: str = "city", tool: Tool = WEATHER) -> object:
    output = (
        f"<tool_call>\n<function={tool.name}>\n<parameter={key}>\n{value}\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    ((_, _, arguments, ended),) = parsed("qwen3-coder", output, tools=[tool])
    assert ended
    return json.loads(arguments)[key]


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("city", "3", "3"),
        ("city", ' "x"\\n ', ' "x"\\n '),
        ("city", "\nx\n\n", "\nx\n\n"),
        ("city", "a </parameter> b\n</function> c", "a </parameter> b\n</function> c"),
        ("unit", "celsius", "celsius"),
        ("days", "3", 3),
        ("days", " 3 ", 3),
        ("days", "three", "three"),
        ("days", str(10**30), 10**30),
        ("share", "3", 3),
        ("share", "1e3", 1000.0),
        ("share", "NaN", "NaN"),
        ("exact", "True", True),
        ("exact", "false", False),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", "['a', \"b\", None]", ["a", "b", None]),
        ("tags", "[broken", "[broken"),
        ("place", '{"x": "</parameter>"}', {"x": "</parameter>"}),
        ("note", "3", 3),
        ("note", "null", None),
        ("note", "None", None),
        ("note", "true", "true"),
        ("note", '"3"', '"3"'),
        ("undeclared", "3", 3),
        ("undeclared", "x", "x"),
        ("undeclared", '{"a": 1}', {"a": 1}),
    ],
)
def test_values_without_quotes_are_what_the_schema_says(key, value, read):
    assert one_value(value, key) == read


def test_a_schema_that_contains_itself_says_what_it_can():
    node = {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/node"}]}
    tool = Tool("f", parameters={"$defs": {"node": node, "loop": {"$ref": "#/$defs/loop"}},
                                 "properties": {"a": {"$ref": "#/$defs/node"},
                                                "b": {"$ref": "#/$defs/loop"},
                                                "c": {"$ref": "#/nowhere/0"}}})  # fmt: skip
    assert [one_value("3", key, tool) for key in "abc"] == [3, 3, 3]


def test_marks_that_were_forgotten_end_a_value():
    output = (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>"
    )
    assert parsed("qwen3-coder", output) == [OSLO]
    assert parsed("qwen3-coder", output.replace("<tool_call>\n", "")) == [OSLO]


def test_an_argument_that_comes_twice_counts_once():
    one = "<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
    other = one.replace("Oslo", "Bergen")
    assert parsed("glm-4.7", f"<tool_call>get_weather{one}{other}</tool_call>") == [OSLO]


def test_all_arguments_in_one_are_taken_apart():
    output = (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="get_weather">'
        '<｜DSML｜parameter name="arguments" string="false">{"city": "Oslo"}</｜DSML｜parameter>'
        "</｜DSML｜invoke></｜DSML｜tool_calls>"
    )
    assert parsed("deepseek-v4", output) == [OSLO]
    json_inside = '<tool_call>\n<function=get_weather>\n{"city": "Oslo"}\n</function>\n</tool_call>'
    assert parsed("qwen3-coder", json_inside) == [OSLO]


@pytest.mark.parametrize(
    ("told", "value", "read"),
    [
        (' string="true"', "3", "3"),
        (' string="false"', "3", 3),
        ("", "3", 3),
        ("", "x", "x"),
    ],
)
def test_deepseek_says_what_is_a_string(told, value, read):
    output = (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        f'<｜DSML｜parameter name="note"{told}>{value}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>"
    )
    ((_, _, arguments, _),) = parsed("deepseek-v4", output)
    assert json.loads(arguments) == {"note": read}


# --- literals ---


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'a\'b\n\x41\u00e9\U0001F389\q'", "a'b\nAé🎉\\q"),
        (r'r"C:\new"', "C:\\new"),
        ('"""two\nlines "quoted" """', 'two\nlines "quoted" '),
        ("''", ""),
        ("(1, -2.5, 1_000, 0x1f, .5, 1e3)", [1, -2.5, 1000, 31, 0.5, 1000.0]),
        ("{'a': [True, False, None], 3: {}}", {"a": [True, False, None], "3": {}}),
        ("[]", []),
        ("true", True),
        ("north", "north"),
        ("'[get_time()]'", "[get_time()]"),
    ],
)
def test_python_literals_become_json(literal, value):
    ((_, _, arguments, ended),) = parsed("llama-4", f"[get_weather(city={literal})]")
    assert ended and json.loads(arguments) == {"city": value}


def test_arguments_without_names_are_those_of_the_function_in_order():
    found = parsed("llama-4", "[get_weather('Oslo', celsius, days=3)]")
    assert found == [call("get_weather", '{"city": "Oslo", "unit": "celsius", "days": 3}')]


def test_gemma_strings_hold_anything_but_their_mark():
    output = '<|tool_call>call:get_weather{city:<|"|>a"b\\{},<tool_call|>\n<|"|>,tags:[],'
    output += "place:{x y:-1e3,z:null,w:Oslo N}}<tool_call|>"
    ((_, _, arguments, ended),) = parsed("gemma-4", output)
    assert ended and json.loads(arguments) == {
        "city": 'a"b\\{},<tool_call|>\n',
        "tags": [],
        "place": {"x y": -1000.0, "z": None, "w": "Oslo N"},
    }


# --- custom tools ---

PATCH_TEXT = '*** Begin Patch\n+"a" \\ <b> 🎉\n*** End Patch'
ESCAPED = json.dumps(PATCH_TEXT)
RAW = f"<custom_tool_input>\n{PATCH_TEXT}\n</custom_tool_input>"


@pytest.mark.parametrize(
    ("name", "output"),
    [
        (
            "hermes",
            '<tool_call>{"name": "apply_patch", "arguments": '
            f'{{"input": {ESCAPED}}}}}</tool_call>',
        ),
        ("hermes", f'<tool_call>{{"name": "apply_patch", "arguments": {ESCAPED}}}</tool_call>'),
        ("hermes", f'<tool_call>{{"name": "apply_patch", "arguments": {RAW}}}</tool_call>'),
        ("mistral-v13", f'[TOOL_CALLS]apply_patch[ARGS]{{ "input" : {ESCAPED} }}'),
        ("mistral-v13", f"[TOOL_CALLS]apply_patch[ARGS]{RAW}"),
        ("kimi-k2", f"<|tool_call_begin|>functions.apply_patch:0<|tool_call_argument_begin|>{RAW}"),
        (
            "qwen3-coder",
            f"<tool_call>\n<function=apply_patch>\n<parameter=input>\n{PATCH_TEXT}\n</parameter>\n"
            "</function>\n</tool_call>",
        ),
        (
            "glm-4.7",
            "<tool_call>apply_patch<arg_key>patch</arg_key>"
            f"<arg_value>{PATCH_TEXT}</arg_value></tool_call>",
        ),
        ("llama-4", f"[apply_patch(input={PATCH_TEXT!r})]"),
        ("llama-4", f"[apply_patch({PATCH_TEXT!r})]"),
        ("llama-4", f"[apply_patch({RAW})]"),
        ("gemma-4", f'<|tool_call>call:apply_patch{{input:<|"|>{PATCH_TEXT}<|"|>}}<tool_call|>'),
        (
            "harmony",
            f"<|channel|>commentary to=functions.apply_patch<|message|>{{\"input\": {ESCAPED}}}",
        ),
        ("harmony", f"<|channel|>commentary to=functions.apply_patch<|message|>{RAW}<|call|>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("length", [10_000, 1])
def test_a_custom_tool_gets_its_text(name, output, length):
    pieces = [output[at : at + length] for at in range(0, len(output), length)]
    assert parsed(name, *pieces) == [("custom", "apply_patch", PATCH_TEXT, True)]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("{}", ""),
        ("{ }", ""),
        ('{"input": ""}', ""),
        ('{"text": "x"}', '{"text": "x"}'),
        ('{"input": 3}', '{"input": 3}'),
        ('{"input": "\\ud83c\\udf89 \\ud83c \\q"}', "🎉 � \\q"),
    ],
)
def test_a_custom_tool_gets_whatever_else_it_is_called_with(arguments, given):
    output = f'<tool_call>{{"name": "apply_patch", "arguments": {arguments}}}</tool_call>'
    assert parsed("hermes", output) == [("custom", "apply_patch", given, True)]
    assert parsed("hermes", *output) == [("custom", "apply_patch", given, True)]


# --- Harmony ---


def test_channels_are_reasoning_remarks_and_answers():
    output = (
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>"
        "Two.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|> commentary to=functions.get_time <|constrain|> json"
        "<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Noon. <|return|>"
    )
    assert parsed("harmony", output) == [
        ("reasoning", "One.\n\nTwo."),
        ("text", "Let me see."),
        call("get_time", "{}"),
        ("text", "Noon. "),
    ]


def test_harmony_without_headers_is_text():
    assert parsed("harmony", "Just text. <b>") == [("text", "Just text. <b>")]
    assert parsed("harmony", "assistants help") == [("text", "assistants help")]


def test_a_message_that_was_not_ended_ends_with_the_next():
    output = "Hm.<|channel|>final<|message|>Yes."
    assert parsed("harmony", output, starts_in_reasoning=True) == [
        ("reasoning", "Hm."),
        ("text", "Yes."),
    ]


# --- tokens ---

VOCABULARY = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "\n\n", "{"]


def test_the_marks_among_the_tokens_of_a_vocabulary():
    assert marker_tokens(DIALECTS["hermes"], VOCABULARY) == set(VOCABULARY[:4])
    assert marker_tokens(DIALECTS["gemma-4"], ['<|"|>', "<|channel>", "call"]) == {
        '<|"|>',
        "<|channel>",
    }


def with_tokens(name: str, output: str, tokens: list[str]) -> list:
    """An output of which the tokens come as such."""
    reader = parser(name, tokens=tokens)
    deltas = []
    while output:
        ends = [(output.find(token), token) for token in tokens if token in output]
        at, token = min(ends, default=(len(output), ""))
        deltas += reader.feed(output[:at]) if at else []
        deltas += reader.feed_token(token) if token else []
        output = output[at + len(token) :]
    return items([*deltas, *reader.finish()])


def test_marks_that_are_tokens_count_only_as_such():
    tokens = VOCABULARY[:4]
    output = f"<think>Hm.</think>See.{HERMES}"
    assert with_tokens("hermes", output, tokens) == [
        ("reasoning", "Hm."),
        ("text", "See."),
        OSLO,
    ]
    assert parsed("hermes", output, tokens=tokens) == [("text", output)]


def test_marks_made_of_a_token_and_text_are_known():
    output = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )
    dialect = DIALECTS["deepseek-v3"]
    tokens = sorted(
        marker_tokens(dialect, [part + "｜>" for part in output.split("｜>")[:-1] if part])
    )
    tokens += ["<｜tool▁sep｜>", "<｜tool▁call▁end｜>"]
    assert with_tokens("deepseek-v3", output, tokens) == [call("get_time", "{}")]


def test_a_token_inside_a_value_is_its_text():
    output = HERMES.replace("Oslo", "x</tool_call>y")
    assert with_tokens("hermes", output, VOCABULARY[:4]) == [
        call("get_weather", '{"city": "x</tool_call>y"}')
    ]
    reader = parser("gemma-4", tokens=['<|"|>', "<tool_call|>"])
    deltas = reader.feed("<|tool_call>call:get_weather{city:")
    deltas += reader.feed_token('<|"|>') + reader.feed("x") + reader.feed_token("<tool_call|>")
    deltas += reader.feed("y") + reader.feed_token('<|"|>') + reader.feed("}")
    assert items(deltas) == [call("get_weather", '{"city": "x<tool_call|>y"}')]


def test_a_token_that_is_no_mark_is_no_text():
    reader = parser("hermes", tokens=VOCABULARY[:4])
    deltas = reader.feed("a") + reader.feed_token("<|im_end|>") + reader.feed("b")
    assert items(deltas) == [("text", "ab")]


def test_characters_that_are_no_text_stand_for_no_mark():
    reader = parser("hermes", tokens=VOCABULARY[:4])
    deltas = reader.feed("a\udc00\udc01b") + reader.finish()
    assert items(deltas) == [("text", "a\ufffd\ufffdb")]


# --- log-probabilities ---


def logprob(text: str) -> TokenLogprob:
    return TokenLogprob(text, text.encode(), -0.5)


def test_text_is_told_with_its_tokens_and_they_are_told_once():
    reader = parser("hermes")
    words = ["<think>", "Hm", "</think>", "\n\n", "Let", " me", " ", "<", "b", ">", "\n", "<tool"]
    words += ["_call>", '{"name": "get_time"}', "</tool_call>", "\n", "Done", ".", "\n"]
    deltas = [d for word in words for d in reader.feed(word, (logprob(word),))]
    deltas += reader.finish()
    texts = [d for d in deltas if isinstance(d, TextDelta)]
    assert "".join(d.text for d in texts) == "Let me <b>Done.\n"
    told = [token.text for d in texts for token in d.logprobs]
    assert told == ["Let", " me", " ", "<", "b", ">", "Done", ".", "\n"]
    for delta in texts:
        assert "".join(token.text for token in delta.logprobs) == delta.text
    assert any(isinstance(d, ReasoningDelta) for d in deltas)


def test_tokens_of_no_text_yet_come_with_the_text_that_they_become():
    reader = parser("hermes")
    half = TokenLogprob("�", b"\xc3", -0.5)
    assert reader.feed("", (half,)) == []
    assert reader.feed("é", (logprob("x"),)) == [TextDelta("é", (half, logprob("x")))]


def test_a_token_that_is_partly_a_mark_comes_with_its_text():
    reader = parser("hermes")
    deltas = reader.feed("Hi.\n<tool", (logprob("Hi.\n<tool"),))
    deltas += reader.feed('_call>{"name": "get_time"}', (logprob("rest"),))
    assert deltas[0] == TextDelta("Hi.", (logprob("Hi.\n<tool"),))
    assert items(deltas) == [("text", "Hi."), call("get_time", "{}")]


def test_text_that_was_taken_for_a_call_keeps_its_tokens():
    reader = parser("llama-3")
    words = ['{"', "name", '":', ' "', "Ann", '",', ' "', "age", '":', " 3", "}"]
    deltas = [d for word in words for d in reader.feed(word, (logprob(word),))]
    deltas += reader.finish()
    assert items(deltas) == [("text", "".join(words))]
    assert [token.text for d in deltas for token in d.logprobs] == words
