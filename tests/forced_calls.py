"""Calls that models of random weights are forced to make, of tools made at random."""

import copy
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from grammar_walks import calls_of, marked_tokenizer, text_of
from tiny_families import PAGED, tiny_module
from tiny_models import hear, local_model

from antiphon.engine.runners.paged import PagedRunner
from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.dialects.families import DIALECTS
from antiphon.models.local import LocalModel
from antiphon.schemas import validate_answer
from antiphon.turn import Finish, Message, Sampling, TextGrammar, Tool, ToolChoice, Turn

_VOCAB_SIZE = 512
_MOST_TOKENS = 1500
_WORDS = ("Oslo", "a b", "O'Brien", 'say "hi"', "日本", "😀", "{x}", "</a>", "back\\slash")
_NAMES = ("city", "days", "größe", "unit_2", "имя", "tags")

_SUM = TextGrammar("lark", 'start: N (("+" | "-") N)*\nN: /[0-9]{1,3}/')
_LIST = TextGrammar("lark", 'start: "[" WORD ("," WORD){0,3} "]"\nWORD: /[a-zé]{1,5}/')
_CODE = TextGrammar("regex", r"[A-Z]{2,4}/[0-9]{1,5}( ok)?")
#: What the input of each custom tool is.
_INPUTS: Mapping[TextGrammar, str] = {
    _SUM: r"[0-9]{1,3}([+-][0-9]{1,3})*",
    _LIST: r"\[[a-zé]{1,5}(,[a-zé]{1,5}){0,3}\]",
    _CODE: r"[A-Z]{2,4}/[0-9]{1,5}( ok)?",
}


@dataclass(frozen=True)
class Forced:
    """What came of a turn in which a call had to be made: how it ended, and what is wrong."""

    finish: str
    calls: list[tuple[str, str]]
    wrong: str | None


@contextmanager
def speaking(row: Dialect, num_blocks: int = 2048) -> Iterator[LocalModel]:
    """A model of random weights that speaks a dialect. Its marks are tokens."""
    family = PAGED[sorted(DIALECTS).index(row.name) % len(PAGED)]
    module = copy.deepcopy(tiny_module(family, _VOCAB_SIZE))
    runner = PagedRunner(module, num_blocks=num_blocks)
    tokenizer = marked_tokenizer(row)
    with local_model(
        runner, tokenizer=tokenizer, dialect=row.name, context_window=16_384, max_chunk=512
    ) as model:
        yield model


def forced_turn(row: Dialect, number: int) -> Turn:
    """A turn in which a call has to be made; always the same for the same number."""
    rng = random.Random(f"{row.name} {number}")
    tools = [_function(rng, place) for place in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        tools.append(Tool("custom", "", custom=True, grammar=rng.choice(list(_INPUTS))))
    allowed = frozenset({rng.choice(tools).name}) if rng.random() < 0.5 else None
    return Turn(
        (Message("user", "Go on."),),
        sampling=Sampling(temperature=1.0, seed=number),
        max_output_tokens=_MOST_TOKENS,
        tools=tuple(tools),
        tool_choice=ToolChoice("required", allowed),
        parallel_calls=rng.random() < 0.5,
    )


async def force(model: LocalModel, turn: Turn) -> Forced:
    """Have a model make its calls, and look whether they are what they have to be."""
    said = await hear(await model.prepare(turn))
    finish = said[-1]
    assert isinstance(finish, Finish)
    if finish.reason != "stop":
        return Forced(finish.reason, [], None)
    calls = calls_of(said)
    # In channels, remarks may be made before a call.
    text = "" if model._family.dialect.channels else text_of(said)
    return Forced("stop", calls, _wrong(turn, calls, text))


def _wrong(turn: Turn, calls: list[tuple[str, str]], text: str) -> str | None:
    if text or not calls:
        return f"there is text: {text!r}" if text else "there is no call"
    if len(calls) > 1 and not turn.parallel_calls:
        return "there are several calls"
    tools = {tool.name: tool for tool in turn.tools}
    allowed = turn.tool_choice.allowed or tools.keys()
    for name, arguments in calls:
        if name not in allowed:
            return f"{name} is called"
        tool = tools[name]
        if tool.grammar is not None:
            wrong = not re.fullmatch(_INPUTS[tool.grammar], arguments)
            if wrong:
                return f"{arguments!r} is no input"
        elif tool.parameters is not None:
            told = validate_answer(arguments, tool.parameters)
            if told is not None:
                return f"{arguments!r}: {told}"
    return None


# --- tools ---


def _function(rng: random.Random, place: int) -> Tool:
    name = rng.choice(("get", "get_weather", "naïve-tool", "查找", "a.b"))
    parameters = _object(rng, depth=0)
    tool = Tool(f"{name}_{place}", "", parameters, strict=True)
    return replace(tool, parameters=None) if rng.random() < 0.1 else tool


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randint(0 if depth else 1, 3))
    return {
        "type": "object",
        "properties": {name: _value(rng, depth + 1) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    simple: list[dict[str, Any]] = [
        {"type": "string", "maxLength": rng.randint(0, 12)},
        {"type": "string", "minLength": 2, "maxLength": 6, "description": "Short."},
        {"type": "string", "pattern": "^[a-c]{1,3}( x)?$"},
        {"type": "string", "format": rng.choice(("date", "time", "uuid", "ipv4", "email"))},
        {"enum": rng.sample(_WORDS, 3)},
        {"type": "string", "const": rng.choice(_WORDS)},
        {"enum": ["a", 1, None, True]},
        {"type": "integer", "minimum": -5, "maximum": rng.randint(0, 5000)},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5},
        {"type": ["boolean", "null"]},
    ]
    if depth > 2 or rng.random() < 0.6:
        return rng.choice(simple)
    most = rng.randint(0, 3)
    return rng.choice(
        [
            _object(rng, depth),
            {"type": "array", "items": _value(rng, depth + 1), "maxItems": most},
            {"type": "array", "items": _value(rng, depth + 1), "minItems": 1, "maxItems": most + 1},
            {"anyOf": [_value(rng, depth + 1), _value(rng, depth + 1)]},
        ]
    )
