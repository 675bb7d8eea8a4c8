"""The table of dialects.

Each row is as the family's own chat template or encoder writes calls. The first that reads what a
template writes is taken, so of two rows that read the same, the more usual one comes first.
"""

from collections.abc import Mapping
from dataclasses import replace

from antiphon.formats.dialects.dialect import Dialect, Params, Reasoning

_HERMES = Dialect(
    "hermes",
    "envelope",
    call_open="<tool_call>\n",
    call_close="\n</tool_call>",
    separator="\n",
)

_QWEN_CODER = Dialect(
    "qwen3-coder",
    "params",
    call_open="<tool_call>\n<function=",
    name_end=">\n",
    params=Params("<parameter=", ">\n", "\n</parameter>\n"),
    call_close="</function>\n</tool_call>",
    separator="\n",
    also_open=("<function=",),  # Without the line before it, every now and then.
)

_GLM_45 = Dialect(
    "glm-4.5",
    "params",
    call_open="<tool_call>",
    name_end="\n",
    params=Params("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    call_close="</tool_call>",
    separator="\n",
    dropped=("<|begin_of_box|>", "<|end_of_box|>"),  # The V models' answers.
    stops=("<|endoftext|>", "<|user|>", "<|observation|>"),
)

_DEEPSEEK_V3 = Dialect(
    "deepseek-v3",
    "json",
    section_open="<｜tool▁calls▁begin｜>",
    call_open="<｜tool▁call▁begin｜>",
    name_open="function<｜tool▁sep｜>",
    name_end="\n```json\n",
    call_close="\n```<｜tool▁call▁end｜>",
    separator="\n",
    section_close="<｜tool▁calls▁end｜>",
)

_DSML = Dialect(
    "deepseek-v4",
    "params",
    section_open="<｜DSML｜tool_calls>\n",
    call_open='<｜DSML｜invoke name="',
    name_end='">\n',
    params=Params('<｜DSML｜parameter name="', '" string="{string}">', "</｜DSML｜parameter>\n"),
    call_close="</｜DSML｜invoke>\n",
    section_close="</｜DSML｜tool_calls>",
    also_open=("<｜DSML｜toolcalls>", "<｜DSML｜tool>", "<｜DSML｜function_calls>"),
)

_MISTRAL_V13 = Dialect(
    "mistral-v13",
    "json",
    call_open="[TOOL_CALLS]",
    name_end="[ARGS]",
    reasoning=Reasoning("[THINK]", "[/THINK]"),
)

_PHI_4 = Dialect(
    "phi-4-mini",
    "envelope",
    section_open="<|tool_call|>",
    separator=", ",
    section_close="<|/tool_call|>",
    array=True,
)

_ROWS = (
    _HERMES,
    _QWEN_CODER,
    _GLM_45,
    replace(
        _GLM_45,
        name="glm-4.7",
        name_end="",
        params=Params("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
        separator="",
    ),
    _DEEPSEEK_V3,
    replace(
        _DEEPSEEK_V3,
        name="deepseek-v3.1",
        name_open="",
        name_end="<｜tool▁sep｜>",
        call_close="<｜tool▁call▁end｜>",
        separator="",
    ),
    replace(
        _DSML,
        name="deepseek-v3.2",
        section_open="<｜DSML｜function_calls>\n",
        section_close="</｜DSML｜function_calls>",
        also_open=("<｜DSML｜toolcalls>", "<｜DSML｜tool>", "<｜DSML｜tool_calls>"),
    ),
    _DSML,
    Dialect(
        "kimi-k2",
        "json",
        section_open="<|tool_calls_section_begin|>",
        call_open="<|tool_call_begin|>",
        name_open="functions.",
        id_open=":",
        id_pattern="[0-9]+",
        name_end="<|tool_call_argument_begin|>",
        call_close="<|tool_call_end|>",
        section_close="<|tool_calls_section_end|>",
    ),
    Dialect(
        "kimi-k3",
        "params",
        section_open="<|open|>tools<|sep|>",
        call_open='<|open|>call tool="',
        id_open='" index="',
        id_pattern="[0-9]+",
        name_end='"<|sep|>',
        params=Params(
            '<|open|>argument key="', '" type="{type}"<|sep|>', "<|close|>argument<|sep|>"
        ),
        call_close="<|close|>call<|sep|>",
        section_close="<|close|>tools<|sep|>",
        reasoning=Reasoning("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        dropped=(
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            "<|close|>message<|sep|>",
        ),
    ),
    Dialect(
        "mistral-v3",
        "envelope",
        section_open="[TOOL_CALLS]",
        separator=", ",
        array=True,
    ),
    replace(
        _MISTRAL_V13,
        name="mistral-v11",
        id_open="[CALL_ID]",
        id_pattern="[a-zA-Z0-9]{9}",
        reasoning=Reasoning("<think>", "</think>"),  # Magistral of mid-2025, in plain text.
    ),
    _MISTRAL_V13,
    Dialect(
        "llama-3",
        "envelope",
        section_open="<|python_tag|>",
        separator="; ",
        arguments_key="parameters",
        bare=True,
        parallel=False,
        stops=("<|eom_id|>",),
    ),
    Dialect(
        "llama-4",
        "pythonic",
        section_open="<|python_start|>",
        section_close="<|python_end|>",
        separator=", ",
        array=True,
        bare=True,
        stops=("<|eom|>",),
    ),
    Dialect(
        "harmony",
        "json",
        call_open="<|channel|>commentary to=",
        name_open="functions.",
        name_end=" <|constrain|>json<|message|>",
        call_close="<|call|>",
        parallel=False,
        channels=True,
        reasoning=Reasoning("<|channel|>analysis<|message|>", "<|end|>"),
        stops=("<|call|>", "<|return|>"),
    ),
    _PHI_4,
    replace(_PHI_4, name="phi-4-mini-functools", section_open="functools", section_close=""),
    Dialect(
        "gemma-4",
        "gemma",
        call_open="<|tool_call>",
        name_open="call:",
        call_close="<tool_call|>",
        reasoning=Reasoning("<|channel>thought\n", "<channel|>"),
        stops=("<|tool_response>",),
    ),
    Dialect(
        "minimax-m2",
        "params",
        section_open="<minimax:tool_call>\n",
        call_open='<invoke name="',
        name_end='">\n',
        params=Params('<parameter name="', '">', "</parameter>\n"),
        call_close="</invoke>\n",
        section_close="</minimax:tool_call>",
    ),
    Dialect(
        "minimax-m1",
        "envelope",
        section_open="<tool_calls>\n",
        separator="\n",
        section_close="\n</tool_calls>",
    ),
    replace(
        _QWEN_CODER,
        name="seed-oss",
        call_open="<seed:tool_call>\n<function=",
        params=Params("<parameter=", ">", "</parameter>\n"),
        call_close="</function>\n</seed:tool_call>",
        reasoning=Reasoning("<seed:think>", "</seed:think>"),
    ),
    Dialect(
        "apertus",
        "json",
        section_open="<|tools_prefix|>[",
        call_open='{"',
        name_end='": ',
        call_close="}",
        separator=", ",
        section_close="]<|tools_suffix|>",
        reasoning=Reasoning("<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    Dialect(
        "smollm-2",
        "envelope",
        section_open="<tool_call>",
        separator=", ",
        section_close="</tool_call>",
        array=True,
    ),
    # For templates that know no tools; told of by `telling`.
    replace(_HERMES, name="generic"),
)

#: Every dialect by its name.
DIALECTS: Mapping[str, Dialect] = {row.name: row for row in _ROWS}
