"""What comes of an effort, by what a chat template does with it."""

import pytest

from antiphon.formats.efforts import EFFORTS
from antiphon.formats.family import Family
from antiphon.formats.template import ChatTemplate
from antiphon.turn import Message, Turn

TURNS = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif %}"""
SWITCH = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
ALWAYS = "<think>\n"


def family(prompt: str, before: str = "") -> Family:
    source = before + TURNS.replace("PROMPT", prompt)
    return Family(ChatTemplate(source, variables={}, controls=["<|im_start|>", "<|im_end|>"]))


def effective(found: Family) -> dict[str, str]:
    return {asked: reasons.effort for asked, reasons in found.efforts.items()}


def limits(found: Family) -> list[int | None]:
    return [found.efforts[effort].max_tokens for effort in EFFORTS]


def ask(effort: str | None) -> Turn:
    return Turn((Message("user", "Hi"),), effort=effort)


def test_a_template_without_reasoning_knows_no_efforts():
    found = family("")
    assert found.efforts == {}
    assert found.max_reasoning(ask("high")) is None
    assert found.reasoning(found.render(ask("high")), ask("high")) == "closed"


@pytest.mark.parametrize("prompt", [SWITCH, ALWAYS])
def test_without_levels_reasoning_is_cut_at_a_number_of_tokens(prompt):
    found = family(prompt)
    assert effective(found) == {effort: effort for effort in EFFORTS}
    assert limits(found) == [0, 256, 1024, 4096, 16384, None, None]


@pytest.mark.parametrize(
    ("switch", "on", "off"),
    [
        ("enable_thinking", "true", "false"),
        ("thinking", "true", "false"),
        ("thinking_mode", "'enabled'", "'disabled'"),
    ],
)
def test_no_effort_turns_a_template_s_switch(switch, on, off):
    prompt = f"{{% if {switch} is defined and {switch} == {off} %}}</think>{{% endif %}}"
    found = family(prompt)
    turn = ask("none")
    rendered = found.render(turn)
    assert "".join(rendered).endswith("</think>")
    assert found.reasoning(rendered, turn) == "closed"
    assert not "".join(found.render(ask("low"))).endswith("</think>")


def test_where_it_always_reasons_no_effort_leaves_it_no_tokens():
    found = family(ALWAYS)
    turn = ask("none")
    assert found.reasoning(found.render(turn), turn) == "inside"
    assert found.max_reasoning(turn) == 0
    assert found.max_reasoning(ask(None)) is None


def test_a_template_that_writes_the_level_down_gets_one_that_its_family_knows():
    found = family(ALWAYS, "Reasoning: {{ reasoning_effort | default('medium') }}\n")
    assert effective(found) == {
        "none": "none",
        "minimal": "low",
        "low": "low",
        "medium": "medium",
        "high": "high",
        "xhigh": "high",
        "max": "high",
    }
    assert "Reasoning: high\n" in "".join(found.render(ask("max")))
    assert "Reasoning: medium\n" in "".join(found.render(ask(None)))
    assert found.max_reasoning(ask("low")) is None


def test_only_levels_that_make_a_difference_to_a_template_are_its_own():
    found = family(ALWAYS, "{% if reasoning_effort == 'max' %}Think it all through.{% endif %}\n")
    assert effective(found) == {
        "none": "none",
        "minimal": "medium",
        "low": "medium",
        "medium": "medium",
        "high": "medium",
        "xhigh": "max",
        "max": "max",
    }


def test_levels_that_a_template_refuses_are_none_of_its_own():
    refuses = (
        "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'high') %}"
        "{{ raise_exception('no such level') }}{% endif %}"
        "{% if reasoning_effort == 'low' %}Briefly.{% endif %}"
    )
    found = family(ALWAYS, refuses)
    assert set(effective(found).values()) == {"none", "low", "high"}
    assert effective(found)["max"] == "high"
    assert effective(found)["minimal"] == "low"


def test_a_level_that_turns_reasoning_off_is_taken_before_a_limit():
    levels = (
        "{% if reasoning_effort == 'none' %}off{% else %}{{ reasoning_effort == 'low' }}{% endif %}"
    )
    found = family(ALWAYS, levels)
    assert found.efforts["none"].variables == {"reasoning_effort": "none"}
    assert found.max_reasoning(ask("none")) is None
