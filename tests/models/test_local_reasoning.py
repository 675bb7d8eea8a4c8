"""Models in this process that reason, over a real socket."""

from collections.abc import Callable
from typing import Any

import pytest
from serving import Served
from tiny_models import ScriptedRunner, byte_level_tokenizer, byte_tokens, local_model

from antiphon.engine.tokenizer import PromptTokenizer

TOKENIZER = PromptTokenizer(byte_level_tokenizer())
END = TOKENIZER.id_of("<|im_end|>")
#: Begins every answer inside its reasoning, and shows what was reasoned before.
THINKS = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}\
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
PLAIN = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
#: With a level of its own.
LEVELS = "{{ 'Think hard. ' if reasoning_effort == 'high' else '' }}" + THINKS


def says(*texts: str) -> ScriptedRunner:
    """Says one text after another, each as the answer to a request."""
    return ScriptedRunner(*([*byte_tokens(TOKENIZER, text.encode()), END] for text in texts))


def shown(runner: ScriptedRunner) -> str:
    """The last prompt."""
    return b"".join(TOKENIZER.bytes_of(token) for token in runner.prompts[-1]).decode()


def test_rsn_01_what_the_prompt_began_as_reasoning_is_reasoning(server: Callable[..., Served]):
    with local_model(says("plan it</think>Answer"), template=THINKS) as model:
        served = server(model)
        body = {"input": "2+2?", "reasoning": {"effort": "medium"}}
        stream = served.stream(body)
        thought, message = stream.response["output"]
        assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "plan it")
        assert (message["type"], message["content"][0]["text"]) == ("message", "Answer")
        said = [e.data["delta"] for e in stream.events if e.name.endswith(".delta")]
        assert not any("think" in delta for delta in said)
        assert "".join(said) == "plan itAnswer"
        usage = stream.response["usage"]
        # The mark that ends it counts as well.
        num_reasoned = len(byte_tokens(TOKENIZER, b"plan it</think>"))
        assert usage["output_tokens_details"]["reasoning_tokens"] == num_reasoned
        folded = served.create(body)
        assert [item["content"] for item in folded["output"]] == [
            item["content"] for item in stream.response["output"]
        ]
        assert folded["usage"]["output_tokens"] == usage["output_tokens"]


def test_rsn_01_reasoning_that_is_never_closed_is_all_there_is(server: Callable[..., Served]):
    with local_model(says("plan it"), template=THINKS) as model:
        (thought,) = server(model).create({"input": "2+2?"})["output"]
    assert (thought["type"], thought["content"][0]["text"]) == ("reasoning", "plan it")


def test_rsn_04_sealed_reasoning_is_in_the_next_prompt(server: Callable[..., Served]):
    runner = says("secret plan</think>Hello", "hm</think>Again")
    with local_model(runner, template=THINKS) as model:
        served = server(model, hide_reasoning=True)
        body: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
        user = {"role": "user", "content": "Hi"}
        output = served.create({**body, "input": [user]})["output"]
        assert "secret" not in str(output)
        for item in output:
            del item["id"]
        served.create({**body, "input": [user, *output, user]})
    assert "<think>secret plan</think>Hello" in shown(runner)


@pytest.mark.parametrize(
    ("asked", "effective"), [("high", "high"), ("max", "high"), ("low", "medium"), (None, None)]
)
def test_an_effort_is_told_as_the_template_s_own(
    server: Callable[..., Served], asked: str | None, effective: str | None
):
    runner = says("hm</think>ok")
    with local_model(runner, template=LEVELS) as model:
        response = server(model).create({"input": "Hi", "reasoning": {"effort": asked}})
    assert response["reasoning"]["effort"] == effective
    assert shown(runner).startswith("Think hard.") is (effective == "high")


def test_a_model_that_does_not_reason_has_no_effort(server: Callable[..., Served]):
    with local_model(says("ok"), template=PLAIN) as model:
        answer = server(model).post({"input": "Hi", "reasoning": {"effort": "high"}})
        assert answer.headers["antiphon-dropped"] == "reasoning.effort"
        assert answer.json()["reasoning"]["effort"] is None
        silent = server(model, strict=True).post({"input": "Hi", "reasoning": {"effort": "none"}})
        assert silent.status_code == 200
