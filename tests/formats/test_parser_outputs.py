"""Outputs as models write them, each from the place that is named beside it.

The sources are repositories of serving engines, whose tests have recorded or documented outputs,
and the documentation of the formats. Names and values are theirs.
"""

import json
from dataclasses import dataclass

import pytest
from parsed import call, parsed

from antiphon.formats.dialects.families import DIALECTS
from antiphon.turn import Tool

# vllm-project/vllm: tests/tool_use/<family>_tool_parser.py at the commits of late 2025, and
# tests/entrypoints/openai/tool_parsers/<family>_tool_parser.py.
VLLM = "vllm tests/tool_use/test_"
VLLM_OPENAI = "vllm tests/entrypoints/openai/tool_parsers/test_"


@dataclass(frozen=True)
class Recorded:
    dialect: str
    source: str
    output: str
    #: Names with arguments, in order.
    calls: tuple[tuple[str, dict], ...]
    text: str = ""
    reasoning: str = ""


DALLAS = {"city": "Dallas", "state": "TX", "unit": "fahrenheit"}
ORLANDO = {"city": "Orlando", "state": "FL", "unit": "fahrenheit"}
SAN_FRANCISCO = {"city": "San Francisco", "state": "CA", "unit": "celsius"}

RECORDED = [
    Recorded(
        "hermes",
        VLLM_OPENAI + "hermes_tool_parser.py, of QwQ-32B; the reasoning is cut",
        '<think>\n调用互联网搜索。\n</think>\n\n<tool_call>\n{"name": "internet_search", '
        '"arguments": {"question": "5MW燃气轮机设计参数 空气流量"}}\n</tool_call>\n\n ',
        (("internet_search", {"question": "5MW燃气轮机设计参数 空气流量"}),),
        reasoning="调用互联网搜索。",
    ),
    Recorded(
        "qwen3-coder",
        VLLM + "qwen3coder_tool_parser.py: parallel_tools",
        "<tool_call>\n<function=get_current_weather>\n<parameter=city>\nDallas\n</parameter>\n"
        "<parameter=state>\nTX\n</parameter>\n<parameter=unit>\nfahrenheit\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=get_current_weather>\n"
        "<parameter=city>\nOrlando\n</parameter>\n<parameter=state>\nFL\n</parameter>\n"
        "<parameter=unit>\nfahrenheit\n</parameter>\n</function>\n</tool_call>",
        (("get_current_weather", DALLAS), ("get_current_weather", ORLANDO)),
    ),
    Recorded(
        "qwen3-coder",
        VLLM + "qwen3coder_tool_parser.py: single_tool_multiline_param",
        "<tool_call>\n<function=calculate_area>\n<parameter=shape>\nrectangle\n</parameter>\n"
        '<parameter=dimensions>\n{"width": 10, \n "height": 20}\n</parameter>\n'
        "<parameter=precision>\n2\n</parameter>\n</function>\n</tool_call>",
        (
            (
                "calculate_area",
                {"shape": "rectangle", "dimensions": {"width": 10, "height": 20}, "precision": 2},
            ),
        ),
    ),
    Recorded(
        "qwen3-coder",
        VLLM + "qwen3coder_tool_parser.py: fallback_no_tags",
        "<function=get_current_weather>\n<parameter=city>\nDallas\n</parameter>\n"
        "<parameter=state>\nTX\n</parameter>\n</function>",
        (("get_current_weather", {"city": "Dallas", "state": "TX"}),),
    ),
    Recorded(
        "glm-4.5",
        VLLM + "glm4_moe_tool_parser.py: multiple_tool_calls, blanks included",
        "<tool_call>get_current_weather\n    <arg_key>city</arg_key>\n    "
        "<arg_value>Dallas</arg_value>\n    <arg_key>state</arg_key>\n    "
        "<arg_value>TX</arg_value>\n    <arg_key>unit</arg_key>\n    "
        "<arg_value>fahrenheit</arg_value>\n    </tool_call>\n    "
        "<tool_call>get_current_weather\n    <arg_key>city</arg_key>\n    "
        "<arg_value>Orlando</arg_value>\n    <arg_key>state</arg_key>\n    "
        "<arg_value>FL</arg_value>\n    <arg_key>unit</arg_key>\n    "
        "<arg_value>fahrenheit</arg_value>\n    </tool_call>",
        (("get_current_weather", DALLAS), ("get_current_weather", ORLANDO)),
    ),
    Recorded(
        "glm-4.5",
        VLLM + "glm4_moe_tool_parser.py: with_thinking_tags",
        "<think>I want to get the weather.</think>\n\nI will help you get the weather.\n"
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Beijing</arg_value>\n"
        "<arg_key>date</arg_key>\n<arg_value>2025-08-01</arg_value>\n</tool_call>",
        (("get_weather", {"city": "Beijing", "date": "2025-08-01"}),),
        text="I will help you get the weather.",
        reasoning="I want to get the weather.",
    ),
    Recorded(
        "glm-4.5",
        VLLM + "glm4_moe_tool_parser.py: empty_arguments",
        "<tool_call>get_current_time\n</tool_call>",
        (("get_current_time", {}),),
    ),
    Recorded(
        "deepseek-v3",
        VLLM_OPENAI + "deepseekv3_tool_parser.py: parallel_tool_calls_output",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Tokyo", "unit": "celsius"}\n```<｜tool▁call▁end｜><｜tool▁call▁begin｜>function'
        '<｜tool▁sep｜>search_hotels\n```json\n{"location": "Tokyo", "check_in": "2025-01-15"}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        (
            ("get_weather", {"city": "Tokyo", "unit": "celsius"}),
            ("search_hotels", {"location": "Tokyo", "check_in": "2025-01-15"}),
        ),
    ),
    Recorded(
        "deepseek-v3",
        VLLM_OPENAI + "deepseekv3_tool_parser.py: escaped_strings_output",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>send_message\n```json\n"
        '{"text": "He said \\"hello\\"", "path": "C:\\\\Users\\\\file", '
        '"newline": "line1\\nline2"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        (
            (
                "send_message",
                {
                    "text": 'He said "hello"',
                    "path": "C:\\Users\\file",
                    "newline": "line1\nline2",
                },
            ),
        ),
    ),
    Recorded(
        "deepseek-v3.1",
        VLLM + "deepseekv31_tool_parser.py: with_multiple_tools",
        "some prefix text<｜tool▁calls▁begin｜>"
        '<｜tool▁call▁begin｜>foo<｜tool▁sep｜>{"x":1}<｜tool▁call▁end｜>'
        '<｜tool▁call▁begin｜>bar<｜tool▁sep｜>{"y":2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        (("foo", {"x": 1}), ("bar", {"y": 2})),
        text="some prefix text",
    ),
    Recorded(
        "deepseek-v3.2",
        VLLM + "deepseek_v32_tool_parser.py: incomplete_chunk_function2, without line breaks",
        '<｜DSML｜function_calls><｜DSML｜invoke name="get_current_weather">'
        '<｜DSML｜parameter name="location" string="true">北京</｜DSML｜parameter>'
        '<｜DSML｜parameter name="time" string="true">2025-03-21</｜DSML｜parameter>'
        '</｜DSML｜invoke><｜DSML｜invoke name="get_current_weather">'
        '<｜DSML｜parameter name="location" string="true">北京</｜DSML｜parameter>'
        "</｜DSML｜invoke> </｜DSML｜function_calls>",
        (
            ("get_current_weather", {"location": "北京", "time": "2025-03-21"}),
            ("get_current_weather", {"location": "北京"}),
        ),
    ),
    Recorded(
        "deepseek-v3.2",
        VLLM + "deepseek_v32_tool_parser.py: single_function",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="location" string="true">Hangzhou</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="date" string="true">2024-01-16</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        (("get_weather", {"location": "Hangzhou", "date": "2024-01-16"}),),
    ),
    Recorded(
        "deepseek-v4",
        "the same as the encoder of DeepSeek V4 writes it, which renames the section alone",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="location" string="true">Hangzhou</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        (("get_weather", {"location": "Hangzhou", "days": 3}),),
    ),
    Recorded(
        "kimi-k2",
        VLLM + "kimi_k2_tool_parser.py: multi_tool_call_with_content_before, blanks included",
        "I'll help you check the weather. <|tool_calls_section_begin|> <|tool_call_begin|>\n"
        'functions.get_weather:0 <|tool_call_argument_begin|> {"city": "Beijing"} '
        "<|tool_call_end|> <|tool_call_begin|>\nfunctions.get_weather:1 "
        '<|tool_call_argument_begin|> {"city": "Shanghai"} <|tool_call_end|> '
        "<|tool_calls_section_end|>",
        (("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})),
        text="I'll help you check the weather.",
    ),
    Recorded(
        "kimi-k2",
        VLLM + "kimi_k2_tool_parser.py: angle_brackets_in_json",
        "I need to process HTML content. <|tool_calls_section_begin|><|tool_call_begin|>"
        'functions.process_html:0<|tool_call_argument_begin|>{"html": "<div>content</div>", '
        '"text": "normal text"}<|tool_call_end|><|tool_calls_section_end|>',
        (("process_html", {"html": "<div>content</div>", "text": "normal text"}),),
        text="I need to process HTML content.",
    ),
    Recorded(
        "kimi-k3",
        VLLM + "kimi_k3_tool_parser.py: preserves_tool_calls_after_reasoning",
        "<|open|>think<|sep|>step<|close|>think<|sep|><|open|>response<|sep|>answer"
        '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="calc" index="1"<|sep|>'
        '<|open|>argument key="x" type="number"<|sep|>1<|close|>argument<|sep|>'
        '<|open|>argument key="flag" type="boolean"<|sep|>true<|close|>argument<|sep|>'
        '<|open|>argument key="text" type="string"<|sep|>raw<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
        (("calc", {"x": 1, "flag": True, "text": "raw"}),),
        text="answer",
        reasoning="step",
    ),
    Recorded(
        "mistral-v3",
        VLLM + "mistral_tool_parser.py: argument_before_name_and_name_in_argument",
        '[TOOL_CALLS] [{"arguments":{"name": "John Doe"}, "name": "get_age"}]',
        (("get_age", {"name": "John Doe"}),),
    ),
    Recorded(
        "mistral-v3",
        VLLM + "mistral_tool_parser.py: single_tool_add and multiple_tools",
        '[TOOL_CALLS]  [ {"name":"add" , "arguments" : {"a": 3.5, "b": 4} } , '
        '{"name": "get_current_weather", "arguments":{"city": "San Francisco", "state": "CA", '
        '"unit": "celsius"}}]',
        (("add", {"a": 3.5, "b": 4}), ("get_current_weather", SAN_FRANCISCO)),
    ),
    Recorded(
        "mistral-v11",
        VLLM + "mistral_tool_parser.py: v11_tokenizer, with no mark between name and arguments",
        '[TOOL_CALLS]get_current_weather{"city": "San Francisco", "state": "CA", '
        '"unit": "celsius"}',
        (("get_current_weather", SAN_FRANCISCO),),
    ),
    Recorded(
        "mistral-v11",
        "mistral-common, instruct tokenizer v11",
        '[TOOL_CALLS]get_weather[CALL_ID]aB3dE6gH9[ARGS]{"city": "Oslo"}',
        (("get_weather", {"city": "Oslo"}),),
    ),
    Recorded(
        "mistral-v13",
        "mistral-common, instruct tokenizer v13; Magistral's model card for the reasoning",
        '[THINK]Two calls.[/THINK][TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}'
        '[TOOL_CALLS]add[ARGS]{"a": 3, "b": 4}',
        (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})),
        reasoning="Two calls.",
    ),
    Recorded(
        "llama-3",
        VLLM_OPENAI + "llama3_json_tool_parser.py: multiple_json_with_whitespace",
        '{"name": "searchTool", "parameters": {"query": "test1"}} ; '
        '{"name": "getOpenIncidentsTool", "parameters": {}} ; '
        '{"name": "searchTool", "parameters": {"query": "test2"}}',
        (
            ("searchTool", {"query": "test1"}),
            ("getOpenIncidentsTool", {}),
            ("searchTool", {"query": "test2"}),
        ),
    ),
    Recorded(
        "llama-3",
        VLLM_OPENAI + "llama3_json_tool_parser.py: with_arguments_key",
        '{"name": "searchTool", "arguments": {"query": "test {value} [complex]"}}',
        (("searchTool", {"query": "test {value} [complex]"}),),
    ),
    Recorded(
        "llama-4",
        VLLM_OPENAI + "llama4_pythonic_tool_parser.py: MORE_TYPES_FUNCTION_OUTPUT",
        "[register_user(name='Doe', age=9, address={'city': 'LA', 'state': 'CA'}, role=None, "
        "passed_test=True, aliases=['John', 'Johnny'])]",
        (
            (
                "register_user",
                {
                    "name": "Doe",
                    "age": 9,
                    "address": {"city": "LA", "state": "CA"},
                    "role": None,
                    "passed_test": True,
                    "aliases": ["John", "Johnny"],
                },
            ),
        ),
    ),
    Recorded(
        "llama-4",
        VLLM_OPENAI + "llama4_pythonic_tool_parser.py: parallel and escaped calls",
        "<|python_start|>[get_weather(city='Martha\\'s Vineyard', metric='\\\"cool units\\\"'),"
        "register_user(name='Doe',age=9), get_weather()]<|python_end|>",
        (
            ("get_weather", {"city": "Martha's Vineyard", "metric": '"cool units"'}),
            ("register_user", {"name": "Doe", "age": 9}),
            ("get_weather", {}),
        ),
    ),
    Recorded(
        "harmony",
        "OpenAI's description of the Harmony format, Function calling",
        "<|channel|>analysis<|message|>Need to use function get_current_weather.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_current_weather "
        '<|constrain|>json<|message|>{"location":"San Francisco"}<|call|>',
        (("get_current_weather", {"location": "San Francisco"}),),
        reasoning="Need to use function get_current_weather.",
    ),
    Recorded(
        "harmony",
        "the chat template of gpt-oss, which puts the recipient behind the role",
        ' to=functions.get_current_weather<|channel|>commentary json<|message|>{"location": '
        '"Tokyo"}<|call|>',
        (("get_current_weather", {"location": "Tokyo"}),),
    ),
    Recorded(
        "phi-4-mini-functools",
        VLLM_OPENAI + "phi4mini_tool_parser.py: surrounding_text_output and parallel calls",
        "Let me check the weather for you.\nfunctools[\n"
        '  {"name": "get_weather", "arguments": {"city": "Tokyo"}},\n'
        '  {"name": "get_time", "arguments": {"timezone": "Asia/Tokyo"}}\n]',
        (("get_weather", {"city": "Tokyo"}), ("get_time", {"timezone": "Asia/Tokyo"})),
        text="Let me check the weather for you.",
    ),
    Recorded(
        "phi-4-mini",
        "IBM Granite 3.3's template asks for the same mark, with no closing one",
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Tokyo"}}]',
        (("get_weather", {"city": "Tokyo"}),),
    ),
    Recorded(
        "gemma-4",
        "vllm tests/tool_parsers/test_gemma4_tool_parser.py: nested_arguments and others",
        "Let me check.<|tool_call>call:complex_function{"
        'nested:{inner:<|"|>value<|"|>},list:[<|"|>a<|"|>,<|"|>b<|"|>]}<tool_call|>'
        "<|tool_call>call:set_status{is_active:true,count:42,score:3.14}<tool_call|>"
        "<|tool_call>call:get_status{}<tool_call|>",
        (
            ("complex_function", {"nested": {"inner": "value"}, "list": ["a", "b"]}),
            ("set_status", {"is_active": True, "count": 42, "score": 3.14}),
            ("get_status", {}),
        ),
        text="Let me check.",
    ),
    Recorded(
        "minimax-m2",
        VLLM + "minimax_m2_tool_parser.py: extra_attributes",
        '<minimax:tool_call><invoke name="test_func" extra="ignored">'
        '<parameter name="arg1" type="string">value1</parameter>'
        '<parameter name="arg2" description="(e.g. example)">value2</parameter>'
        "</invoke></minimax:tool_call>",
        (("test_func", {"arg1": "value1", "arg2": "value2"}),),
    ),
    Recorded(
        "minimax-m1",
        VLLM + "minimax_tool_parser.py: multiple_tool_calls",
        '<tool_calls>\n{"name": "get_current_weather", "arguments": {"city": "Dallas", '
        '"state": "TX", "unit": "fahrenheit"}}\n{"name": "get_current_weather", "arguments": '
        '{"city": "Orlando", "state": "FL", "unit": "fahrenheit"}}\n</tool_calls>',
        (("get_current_weather", DALLAS), ("get_current_weather", ORLANDO)),
    ),
    Recorded(
        "seed-oss",
        VLLM + "seed_oss_tool_parser.py: tool_call_0_thinking_budget",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=location>Barcelona, Spain"
        "</parameter>\n</function>\n</seed:tool_call>",
        (("get_weather", {"location": "Barcelona, Spain"}),),
    ),
    Recorded(
        "apertus",
        "llama.cpp tests/test-chat.cpp: Apertus-8B-Instruct",
        '<|tools_prefix|>[{"special_function": {"arg1": 1}}]<|tools_suffix|>',
        (("special_function", {"arg1": 1}),),
    ),
    Recorded(
        "smollm-2",
        "the model card of SmolLM2-1.7B-Instruct, Function calling",
        '<tool_call>[{"name": "get_current_time", "arguments": {}}]</tool_call>',
        (("get_current_time", {}),),
    ),
]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda r: f"{r.dialect}: {r.source}")
@pytest.mark.parametrize("length", [10_000, 7, 1])
def test_an_output_of_its_models_is_read(recorded: Recorded, length: int):
    tools = [Tool(name) for name in dict(recorded.calls)]
    output = recorded.output
    pieces = [output[at : at + length] for at in range(0, len(output), length)]
    found = parsed(recorded.dialect, *pieces, tools=tools)
    assert [text for kind, text, *_ in found if kind == "reasoning"] == (
        [recorded.reasoning] if recorded.reasoning else []
    )
    assert [text for kind, text, *_ in found if kind == "text"] == (
        [recorded.text] if recorded.text else []
    )
    calls = [item for item in found if item[0] == "call"]
    assert all(ended for *_, ended in calls)
    assert [(name, json.loads(text)) for _, name, text, _ in calls] == list(recorded.calls)


def test_there_is_an_output_for_every_dialect_that_is_not_like_another():
    # GLM 4.7 differs from 4.5 in line breaks alone, and `generic` is `hermes`.
    assert set(DIALECTS) - {r.dialect for r in RECORDED} == {"glm-4.7", "generic"}


def test_an_output_of_glm_4_7_is_read():
    # The chat template of GLM-4.7, which has no line breaks.
    output = (
        "Sure.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
        "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call><tool_call>get_time</tool_call>"
    )
    assert parsed("glm-4.7", output) == [
        ("text", "Sure."),
        call("get_weather", '{"city": "Oslo", "days": 3}'),
        call("get_time", "{}"),
    ]
