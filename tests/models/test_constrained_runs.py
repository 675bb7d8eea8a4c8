"""Turns that are held to a form, in an engine where something else happens to them."""

import asyncio
import weakref
from typing import Any

import pytest
from forced_calls import speaking
from serving import serve
from tiny_models import Said, answers, ask, hear, run

from antiphon.engine.grammar.errors import GrammarFailed
from antiphon.engine.grammar.matcher import GrammarMatcher
from antiphon.formats.dialects.families import DIALECTS
from antiphon.models.local import LocalModel
from antiphon.schemas import validate_answer
from antiphon.turn import AnswerFormat, TextDelta, Turn

ROW = DIALECTS["hermes"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 30, "maxLength": 40},
        "kind": {"enum": ["something long", "something else"]},
        "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 5, "maxItems": 9},
    },
    "required": ["name", "kind", "numbers"],
    "additionalProperties": False,
}


def held(text: str, seed: int = 1, **options: Any) -> Turn:
    turn = ask(text, temperature=1.0, seed=seed, max_output_tokens=400, **options)
    return Turn(
        turn.messages,
        sampling=turn.sampling,
        max_output_tokens=turn.max_output_tokens,
        top_logprobs=turn.top_logprobs,
        answer=AnswerFormat(SCHEMA, strict=True),
    )


def preemptions(model: LocalModel) -> int:
    return model.status()["engine"]["preemptions"]


def test_an_answer_that_is_set_back_goes_on_where_it_was():
    turns = {f"{number}": held("Say something. " * 3, seed=number) for number in range(6)}
    with speaking(ROW) as roomy:
        alone = {name: answers(roomy, {name: turn})[name] for name, turn in turns.items()}
        assert preemptions(roomy) == 0
    with speaking(ROW, num_blocks=24) as narrow:
        together = answers(narrow, turns)
        assert preemptions(narrow) > 0
    assert {name: one.text for name, one in together.items()} == {
        name: one.text for name, one in alone.items()
    }
    for one in together.values():
        assert validate_answer(one.text, SCHEMA) is None


def test_what_prompts_share_is_computed_once_whatever_their_answers_are_held_to():
    with speaking(ROW) as model:

        async def one_after_another() -> list[Said]:
            turns = [held("word " * 60, seed=1), held("word " * 60, seed=2)]
            return [await hear(await model.prepare(turn)) for turn in turns]

        first, second = run(one_after_another())
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens > 0.8 * second.usage.input_tokens
    assert first.text != second.text


def test_of_an_answer_that_is_left_nothing_stays():
    with speaking(ROW) as model:

        async def leave() -> weakref.ref[Any]:
            generation = await model.prepare(held("Say something."))
            deltas = generation.deltas()
            assert isinstance(await anext(deltas), TextDelta)
            await deltas.aclose()
            await generation.released()
            return weakref.ref(generation._request.grammar)

        async def left() -> bool:
            grammar = await leave()
            # The engine's own names for it go with its next step.
            await hear(await model.prepare(held("And this?")))
            return grammar() is None

        assert run(left())


def test_all_tokens_of_an_answer_are_reported_those_that_were_forced_as_certain():
    with speaking(ROW) as model:
        said = answers(model, {"": held("Say something.", top_logprobs=2)})[""]
    assert b"".join(one.data for one in said.logprobs).decode() == said.text
    assert len(said.logprobs) == said.usage.output_tokens - 1  # But for the one that ends it.
    forced = [one for one in said.logprobs if not one.top]
    assert forced and all(one.logprob == 0 for one in forced)
    assert all(len(one.top) == 2 and one.logprob < 0 for one in said.logprobs if one.top)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grammars that cannot go on after a few tokens."""
    fill_mask = GrammarMatcher.fill_mask
    filled = 0

    def fill(self: GrammarMatcher, mask: Any) -> None:
        nonlocal filled
        filled += 1
        if filled > 5:
            raise GrammarFailed("it is too much work")
        fill_mask(self, mask)

    monkeypatch.setattr(GrammarMatcher, "fill_mask", fill)


def test_an_answer_whose_form_cannot_be_followed_fails_with_its_usage(failing: None):
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}
    body = {"input": "Say something.", "temperature": 1, "text": {"format": form}}
    with speaking(ROW) as model, serve(_Kept(model)) as served:
        stream = served.stream(body)
        assert stream.types[-1] == "response.failed"
        error = stream.response["error"]
        assert "too much work" in error["message"] and error["code"] != "server_error"
        assert stream.response["usage"]["output_tokens"] >= 5
        whole = served.create(body)
        assert (whole["status"], whole["error"]["code"]) == ("failed", error["code"])
        # And the engine goes on.
        plain = served.create({"input": "Hi", "max_output_tokens": 16})
        assert plain["status"] in ("completed", "incomplete")


class _Kept:
    """A model that is closed by others than its server."""

    def __init__(self, model: LocalModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def close(self) -> None:
        await asyncio.sleep(0)
