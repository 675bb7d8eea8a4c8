"""Which dialect a template's is, and that what it renders is read back as what it was."""

import json
import re

import pytest
from dialect_templates import FRAME, TEMPLATES, VALUE, each, frame
from parsed import TOOLS, WEATHER, items, parser

from antiphon.formats.calls import Said, named_ids
from antiphon.formats.dialects.choosing import Choice, UnknownDialect, choose_dialect
from antiphon.formats.dialects.dialect import Reasoning
from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.dialects.spelling import spelled
from antiphon.formats.dialects.telling import example, tool_json, tools_text
from antiphon.formats.parser import DialectParser
from antiphon.formats.template import PLAIN_TEMPLATE, ChatTemplate
from antiphon.turn import Call, Message, TextGrammar, Tool

QUESTION = Message("user", "Weather?")


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
    text = tools_text(dialect, TOOLS, example(dialect))
    assert all(json.dumps(tool_json(tool)) in text for tool in TOOLS)
    shown = text.partition("arguments like this, and nothing after it:\n")[2]
    reader = DialectParser(dialect, [Tool("FUNCTION")])
    found = items([*reader.feed(shown.partition("\nWhat the")[0]), *reader.finish()])
    assert found[0] == ("call", "FUNCTION", '{"ARGUMENT": "VALUE"}', True)


def test_a_custom_tool_is_spelled_as_a_function_of_its_input():
    call = Call("abcdefghi", "apply_patch", 'a "b"\n', custom=True)
    for name, dialect in DIALECTS.items():
        reader = parser(name)
        found = items([*reader.feed(spelled(dialect, [call])), *reader.finish()])
        assert found == [("custom", "apply_patch", 'a "b"\n', True)], name
