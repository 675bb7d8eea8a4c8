"""Which dialect a template's is, and that what it renders is read back as what it was."""

import json
import re

import pytest
from parsed import TOOLS, WEATHER, items, parser

from antiphon.formats.calls import Said, named_ids
from antiphon.formats.dialects.choosing import Choice, UnknownDialect, choose_dialect
from antiphon.formats.dialects.dialect import Reasoning
from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.dialects.spelling import spelled
from antiphon.formats.dialects.telling import tool_json, tools_text
from antiphon.formats.parser import DialectParser
from antiphon.formats.template import PLAIN_TEMPLATE, ChatTemplate
from antiphon.turn import Call, Message, TextGrammar, Tool

QUESTION = Message("user", "Weather?")

# A template's frame; what is said with calls, and what of the tools is told, is each family's own.
FRAME = """\
{%- if tools %}<|im_start|>system
TOOLS<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>tool
{{ m.tool_call_id }} {{ m.content }}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{%- if m.role == 'assistant' and not m.tool_calls %}ANSWER{% else %}

{% endif %}{{ m.content }}
{%- if m.tool_calls %}CALLS{% endif %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif %}"""

TELLS_TOOLS = "{% for t in tools %}{{ t | tojson }}{% endfor %}"
THINKS = (
    "\n{% if m.reasoning_content %}OPEN{{ m.reasoning_content }}CLOSE{% endif %}"  # As most do.
)
EACH = "{% for c in m.tool_calls %}{% set f = c.function %}EACH{% endfor %}"
JSON = "{{ f.arguments | tojson }}"
PARAMS = "{% for k, v in f.arguments.items() %}EACH{% endfor %}"
VALUE = "{{ v if v is string else v | tojson }}"


def frame(calls: str, *, tools: str = TELLS_TOOLS, think: str = "", prompt: str = "") -> str:
    opens, _, closes = think.partition("…")
    answer = THINKS.replace("OPEN", opens).replace("CLOSE", closes) if think else "\n"
    source = FRAME.replace("CALLS", calls).replace("TOOLS", tools)
    return source.replace("ANSWER", answer).replace("PROMPT", prompt)


def each(call: str, params: str = "") -> str:
    return EACH.replace("EACH", call.replace("PARAMS", PARAMS.replace("EACH", params)))


ENVELOPE = '{"name": "{{ f.name }}", "arguments": ' + JSON + "}"
ARRAY = "[" + each(ENVELOPE + "{{ ', ' if not loop.last }}") + "]"
DSML = (
    '<｜DSML｜invoke name="{{ f.name }}">\nPARAMS</｜DSML｜invoke>\n',
    "<｜DSML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
    + VALUE
    + "</｜DSML｜parameter>\n",
)

#: Minimal templates that write calls as the families' own do.
TEMPLATES = {
    "hermes": frame(
        each(f"\n<tool_call>\n{ENVELOPE}\n</tool_call>"), think="<think>\n…\n</think>\n"
    ),
    "qwen3-coder": frame(
        each(
            "\n<tool_call>\n<function={{ f.name }}>\nPARAMS</function>\n</tool_call>",
            "<parameter={{ k }}>\n" + VALUE + "\n</parameter>\n",
        ),
        prompt="<think>\n",
    ),
    "glm-4.5": frame(
        each(
            "\n<tool_call>{{ f.name }}\nPARAMS</tool_call>",
            "<arg_key>{{ k }}</arg_key>\n<arg_value>" + VALUE + "</arg_value>\n",
        )
    ),
    "glm-4.7": frame(
        each(
            "<tool_call>{{ f.name }}PARAMS</tool_call>",
            "<arg_key>{{ k }}</arg_key><arg_value>" + VALUE + "</arg_value>",
        )
    ),
    "deepseek-v3": frame(
        "<｜tool▁calls▁begin｜>"
        + each(
            "<｜tool▁call▁begin｜>{{ c.type }}<｜tool▁sep｜>{{ f.name }}\n"
            "{{ '```json\n' + f.arguments + '\n```' }}<｜tool▁call▁end｜>"
            "{{ '\n' if not loop.last }}"
        )
        + "<｜tool▁calls▁end｜>"
    ),
    "deepseek-v3.1": frame(
        "<｜tool▁calls▁begin｜>"
        + each("<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>" + JSON + "<｜tool▁call▁end｜>")
        + "<｜tool▁calls▁end｜>",
        prompt="</think>",
    ),
    "deepseek-v3.2": frame(
        "\n\n<｜DSML｜function_calls>\n" + each(*DSML) + "</｜DSML｜function_calls>"
    ),
    "deepseek-v4": frame("\n\n<｜DSML｜tool_calls>\n" + each(*DSML) + "</｜DSML｜tool_calls>"),
    "kimi-k2": frame(
        "<|tool_calls_section_begin|>"
        + each(
            "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" + JSON + "<|tool_call_end|>"
        )
        + "<|tool_calls_section_end|>"
    ),
    "kimi-k3": frame(
        "<|open|>tools<|sep|>"
        + each(
            '<|open|>call tool="{{ f.name }}" index="{{ loop.index }}"<|sep|>PARAMS'
            "<|close|>call<|sep|>",
            "<|open|>argument key=\"{{ k }}\" type=\"{{ 'string' if v is string else 'number' }}\""
            "<|sep|>" + VALUE + "<|close|>argument<|sep|>",
        )
        + "<|close|>tools<|sep|>",
        think="<|open|>think<|sep|>…<|close|>think<|sep|>",
    ),
    "mistral-v3": frame("[TOOL_CALLS] " + ARRAY),
    "mistral-v11": frame(each("[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]" + JSON)),
    "mistral-v13": frame(each("[TOOL_CALLS]{{ f.name }}[ARGS]" + JSON)),
    "llama-3": frame(
        "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{% set f = m.tool_calls[0].function %}"
        '{"name": "{{ f.name }}", "parameters": ' + JSON + "}"
    ),
    "llama-4": frame(
        "[{% for c in m.tool_calls %}{{ c.function.name }}("
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}"
        "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]"
    ),
    "phi-4-mini": frame("<|tool_call|>" + ARRAY + "<|/tool_call|>"),
    "phi-4-mini-functools": frame("functools" + ARRAY),
    "gemma-4": frame(
        each(
            "<|tool_call>call:{{ f.name }}{{ '{' }}PARAMS{{ '}' }}<tool_call|>",
            "{{ k }}:{{ '<|\"|>' + v + '<|\"|>' if v is string else v | tojson }}"
            "{{ ',' if not loop.last }}",
        ),
        think="<|channel>thought\n…\n<channel|>",
    ),
    "minimax-m2": frame(
        "\n<minimax:tool_call>\n"
        + each(
            '<invoke name="{{ f.name }}">\nPARAMS</invoke>\n',
            '<parameter name="{{ k }}">' + VALUE + "</parameter>\n",
        )
        + "</minimax:tool_call>"
    ),
    "minimax-m1": frame("\n<tool_calls>\n" + each(ENVELOPE + "\n") + "</tool_calls>"),
    "seed-oss": frame(
        each(
            "\n<seed:tool_call>\n<function={{ f.name }}>\nPARAMS</function>\n</seed:tool_call>",
            "<parameter={{ k }}>" + VALUE + "</parameter>\n",
        ),
        think="<seed:think>…</seed:think>",
    ),
    "apertus": frame(
        "<|tools_prefix|>["
        + each('{"{{ f.name }}": ' + JSON + "}{{ ', ' if not loop.last }}")
        + "]<|tools_suffix|>"
    ),
    "smollm-2": frame("<tool_call>" + ARRAY + "</tool_call>"),
}

# As gpt-oss: the first call alone is shown.
TEMPLATES["harmony"] = """\
{%- if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|start|>functions.x to=assistant<|message|>{{ m.content }}<|end|>
{%- elif m.role != 'assistant' %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>
{%- else %}
{%- if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>
{%- endif %}
{%- if m.tool_calls %}{% set f = m.tool_calls[0].function %}
{%- if m.content %}<|start|>assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>
{%- endif %}<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>
{{- f.arguments | tojson }}<|call|>
{%- else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""


def template(source: str) -> ChatTemplate:
    return ChatTemplate(
        source, variables={}, controls=["<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>"]
    )


def chosen(source: str, name: str | None = None) -> Choice:
    return choose_dialect(template(source), name)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_dialect_is_found_by_rendering_calls(name):
    choice = chosen(TEMPLATES[name])
    assert (choice.dialect.name, choice.shows_tools) == (name, True)


def test_every_dialect_but_the_one_for_templates_without_tools_is_found():
    assert set(TEMPLATES) == set(DIALECTS) - {"generic"}


def said(chat_template: ChatTemplate, calls: tuple[Call, ...]) -> str:
    """What the assistant says where it makes calls, by the template's rendering."""
    named = named_ids([Said("", "", calls)]) if chat_template.traits.named_ids else None
    rendered = chat_template.probe([QUESTION, *(named or [Said("", "", calls)])])
    assert rendered is not None
    _, _, rest = rendered.partition("Weather?")
    if rest.startswith("<|end|><|start|>assistant"):
        return rest.removeprefix("<|end|><|start|>assistant")
    opening = "<|im_end|>\n<|im_start|>assistant\n"
    assert rest.startswith(opening) and rest.endswith("<|im_end|>\n")
    return rest.removeprefix(opening).removesuffix("<|im_end|>\n")


ARGUMENTS = [
    {"city": 'Os"lo\n\\ </x> 🎉', "days": 3, "exact": True},
    {"city": "", "tags": ["a", "b{"]},
    {"city": "}"},
    {},
]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=map(str, range(len(ARGUMENTS))))
def test_calls_that_a_template_renders_are_read_back(name, arguments):
    if name == "llama-4":  # Its minimal template writes JSON's words, which are names in Python.
        arguments = {key: value for key, value in arguments.items() if key != "exact"}
    chat_template = template(TEMPLATES[name])
    calls = (Call("call00001", "get_weather", json.dumps(arguments)),)
    if chat_template.traits.parallel_calls:
        calls += (Call("call00002", "get_time", "{}"),)
    reader = DialectParser(chosen(TEMPLATES[name]).dialect, TOOLS)
    found = items([*reader.feed(said(chat_template, calls)), *reader.finish()])
    read = [(kind, name, json.loads(text), ended) for kind, name, text, ended in found]
    assert read == [("call", one.name, json.loads(one.arguments), True) for one in calls]


@pytest.mark.parametrize("name", TEMPLATES)
def test_our_own_spelling_is_the_template_s(name):
    chat_template = template(TEMPLATES[name])
    calls = (Call("call00001", "get_weather", '{"city": "Oslo", "days": 3}'),)
    if chat_template.traits.parallel_calls:
        calls += (Call("call00002", "get_time", "{}"),)

    def bare(text: str) -> str:
        # Blanks differ among the templates of a family, and so do numbers that only count.
        text = text.replace(
            "to=functions.get_weather<|channel|>commentary json",
            "<|channel|>commentary to=functions.get_weather <|constrain|>json",
        )
        return re.sub('index="."', "", "".join(text.split()))

    ours = spelled(DIALECTS[name], calls).replace("'Oslo'", '"Oslo"')
    assert bare(ours) == bare(said(chat_template, calls))


# --- templates that do not show calls, or not in a way that is known ---

CHATML = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOLD = CHATML.replace("{% for", "{% if tools %}MARKS {{ tools | tojson }}{% endif %}{% for", 1)


@pytest.mark.parametrize("source", [CHATML, PLAIN_TEMPLATE, FRAME.replace("CALLS", "!!")])
def test_a_template_that_knows_no_tools_gets_the_generic_dialect(source):
    choice = chosen(source.replace("ANSWER", "\n").replace("PROMPT", "").replace("TOOLS", ""))
    assert (choice.dialect.name, choice.shows_tools) == ("generic", False)


def test_calls_that_nothing_reads_are_asked_for_in_the_generic_dialect():
    # As MiniMax M3, which puts each argument into a tag of its name.
    source = frame(
        each("\n]<]x[>[<tool_call>{{ f.name }}PARAMS", "<{{ k }}>" + VALUE + "</{{ k }}>")
    )
    choice = chosen(source)
    assert (choice.dialect.name, choice.shows_tools) == ("generic", False)


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        ("functools[{...}]", "phi-4-mini-functools"),  # Phi-4-mini, as OpenVINO renders it.
        ("<|tool_call|> and a list", "phi-4-mini"),  # Granite 3.3.
        ("<tool_call>\n<function=x>", "qwen3-coder"),
        ("<tool_call>", "hermes"),
    ],
)
def test_what_a_template_says_of_tools_tells_the_dialect_where_it_shows_no_calls(marks, name):
    choice = chosen(TOLD.replace("MARKS", marks))
    assert (choice.dialect.name, choice.shows_tools) == (name, True)


def test_marks_that_a_template_has_for_some_cases_tell_the_dialect():
    # As the distilled DeepSeek R1 models, which drop calls next to a text, and tell of no tools.
    source = CHATML.replace(
        "{{ m.content }}",
        "{% if m.content == 'never' %}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ '' }}"
        "<｜tool▁sep｜>```json{% endif %}{{ m.content }}",
    )
    choice = chosen(source)
    assert (choice.dialect.name, choice.shows_tools) == ("deepseek-v3", False)


def test_a_dialect_may_be_named():
    assert chosen(CHATML, "kimi-k2").dialect.name == "kimi-k2"
    assert chosen(TEMPLATES["hermes"], "generic") == Choice(DIALECTS["generic"], False)
    with pytest.raises(UnknownDialect, match="no dialect 'kimi'; it is one of hermes, "):
        chosen(CHATML, "kimi")


@pytest.mark.parametrize(
    ("source", "marks"),
    [
        (TEMPLATES["hermes"], Reasoning("<think>", "</think>")),
        (TEMPLATES["qwen3-coder"], Reasoning("<think>", "</think>")),
        (TEMPLATES["seed-oss"], Reasoning("<seed:think>", "</seed:think>")),
        (TEMPLATES["gemma-4"], Reasoning("<|channel>thought\n", "<channel|>")),
        (TEMPLATES["mistral-v13"], Reasoning("[THINK]", "[/THINK]")),
        # A model that reasons in another family's way.
        (TEMPLATES["mistral-v13"] + "<think>\n", Reasoning("<think>", "</think>")),
        (frame("!!", think="[THINK]…[/THINK]"), Reasoning("[THINK]", "[/THINK]")),
        (frame("!!", think="<mm:think>…</mm:think>"), Reasoning("<mm:think>", "</mm:think>")),
    ],
)  # fmt: skip
def test_the_marks_of_reasoning_are_the_template_s(source, marks):
    assert chosen(source).dialect.reasoning == marks


# --- what a model is told ---


def test_a_tool_is_told_as_templates_know_them():
    assert tool_json(WEATHER)["function"]["parameters"] == WEATHER.parameters
    assert tool_json(Tool("f", "Does it.")) == {
        "type": "function",
        "function": {
            "name": "f",
            "description": "Does it.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    custom = Tool("c", custom=True, grammar=TextGrammar("regex", "[0-9]+"))
    parameters = tool_json(custom)["function"]["parameters"]
    assert parameters["required"] == ["input"]
    assert "regex" in parameters["properties"]["input"]["description"]
    assert "[0-9]+" in parameters["properties"]["input"]["description"]


@pytest.mark.parametrize("name", DIALECTS)
def test_the_example_that_a_model_is_shown_is_a_call(name):
    dialect = DIALECTS[name]
    text = tools_text(dialect, TOOLS)
    assert all(json.dumps(tool_json(tool)) in text for tool in TOOLS)
    example = text.partition("arguments like this, and nothing after it:\n")[2]
    reader = DialectParser(dialect, [Tool("FUNCTION")])
    found = items([*reader.feed(example.partition("\nWhat the")[0]), *reader.finish()])
    assert found[0] == ("call", "FUNCTION", '{"ARGUMENT": "VALUE"}', True)


def test_a_custom_tool_is_spelled_as_a_function_of_its_input():
    call = Call("abcdefghi", "apply_patch", 'a "b"\n', custom=True)
    for name, dialect in DIALECTS.items():
        reader = parser(name)
        found = items([*reader.feed(spelled(dialect, [call])), *reader.finish()])
        assert found == [("custom", "apply_patch", 'a "b"\n', True)], name
