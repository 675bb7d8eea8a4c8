"""A chat template for each dialect: as short as one can be that writes it."""

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
