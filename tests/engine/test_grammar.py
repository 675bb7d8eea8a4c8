import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from grammar_walks import PADDING, Speaker, failed, plain_speaker
from tiny_models import run

from antiphon.engine.grammar.compiler import GrammarCompiler, GrammarLimits
from antiphon.engine.grammar.errors import GrammarFailed, GrammarRefused
from antiphon.engine.grammar.matcher import GrammarMatcher
from antiphon.engine.grammar.vocabulary import Vocabulary
from antiphon.engine.sequence import SequenceRequest
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.formats.grammars.held import held
from antiphon.formats.grammars.lark import Lark
from antiphon.schemas import validate_answer
from antiphon.turn import Sampling

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def of_schema(schema: dict[str, Any]) -> str:
    lark = Lark({}, ())
    return lark.text(lark.json(held(schema, strict=True)))


def matcher(grammar: str, speaker: Speaker | None = None) -> GrammarMatcher:
    compiler = (speaker or plain_speaker()).compiler()
    try:
        return run(compiler.compile(grammar))
    finally:
        compiler.close()


def refusal(grammar: str, limits: GrammarLimits | None = None) -> str:
    compiler = GrammarCompiler(plain_speaker().vocabulary, limits)
    with pytest.raises(GrammarRefused) as caught:
        run(compiler.compile(grammar))
    compiler.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"name": "Ada", "age": 36, "tags": []}', True),
        ('{"name":"é😀\\n\\u00e9","age":0,"tags":["a","b"]}', True),
        ('{\n  "name": "",\n  "age": 150,\n  "tags": ["a"]\n}', True),
        ('{"name": "Ada", "age": 151', False),
        ('{"name": "Ada", "age": "36"', False),
        ('{"age": 36', False),
        ('{"name": "Ada", "age": 36, "tags": ["c"', False),
        ('{"name": "a name that is far too long to be one"', False),
        ('{"name": "Ada", "age": 36, "tags": [], "more"', False),
        ("Sure! ", False),
        ("{" + " " * 40 + '"name"', False),
    ],
)
def test_a_text_is_followed_as_far_as_it_fits(text: str, whole: bool):
    found = matcher(of_schema(PERSON))
    assert plain_speaker().follows(found, text) == whole
    assert found.is_complete == whole


def test_a_turn_may_end_only_behind_a_whole_text():
    speaker = plain_speaker()
    ends = speaker.vocabulary.ends
    found = matcher('start: "a" "b"?')
    assert not speaker.allowed(found) & ends
    assert speaker.follows(found, "a")
    assert speaker.allowed(found) == ends | set(speaker.tokens("b"))
    assert speaker.follows(found, "b")
    assert speaker.allowed(found) == ends


def test_every_token_that_ends_a_turn_may_end_it():
    tokenizer = plain_speaker().tokenizer
    ends = {tokenizer.id_of("<|im_end|>"), tokenizer.id_of("<|endoftext|>")} - {None}
    compiler = GrammarCompiler(Vocabulary(tokenizer, tokenizer.num_tokens, ends))
    found = run(compiler.compile('start: "a"?'))
    compiler.close()
    mask = np.zeros(-(-tokenizer.num_tokens // 32), np.uint32)
    found.fill_mask(mask)
    assert all(mask[end // 32] >> (end % 32) & 1 for end in ends)


def test_neither_control_tokens_nor_padding_are_text():
    speaker = plain_speaker()
    allowed = speaker.allowed(matcher("start: /(?s:.*)/"))
    controls = set(speaker.tokenizer.controls) - speaker.vocabulary.ends
    padding = set(range(speaker.vocab_size - PADDING, speaker.vocab_size))
    assert controls and not allowed & (controls | padding)
    assert set(speaker.tokens("hello world é")) <= allowed


def test_a_scored_vocabulary_may_be_smaller_than_the_tokenizer():
    tokenizer = plain_speaker().tokenizer
    compiler = GrammarCompiler(Vocabulary(tokenizer, 256, []))
    found = run(compiler.compile("start: /[a-z]+/"))
    compiler.close()
    mask = np.zeros(8, np.uint32)
    found.fill_mask(mask)
    assert mask.any()


@pytest.mark.parametrize(
    "text", ['{"city": "hello world"}', "a <|im_end|> b", "<|im_start|><|im_start|>", "日本 é😀"]
)
@pytest.mark.parametrize(
    "hub", [tiny.byte_level_tokenizer, tiny.sentencepiece_tokenizer], ids=["bytes", "pieces"]
)
def test_what_must_come_is_forced_as_the_tokenizer_spells_it(hub: Callable[[], Any], text: str):
    tokenizer = PromptTokenizer(hub())
    end = tokenizer.num_tokens - 1
    compiler = GrammarCompiler(Vocabulary(tokenizer, tokenizer.num_tokens, [end]))
    found = run(compiler.compile(f"start: {json.dumps(text, ensure_ascii=False)}"))
    compiler.close()
    forced = []
    while more := found.forced_tokens():
        for token in more:
            found.accept(token)
        forced += more
    assert b"".join(map(tokenizer.bytes_of, forced)).decode() == text
    assert not set(forced) & set(tokenizer.controls)
    if "<|" not in text:
        assert forced == tokenizer.encode(["", text])
    assert found.is_complete


def test_nothing_is_forced_where_there_is_a_choice():
    speaker = plain_speaker()
    found = matcher('start: "hello " ("world" | "there")')
    assert speaker.text(found.forced_tokens()).startswith("hell")
    assert speaker.follows(found, "hello ")
    assert found.forced_tokens() == []


SCHEMAS: list[dict[str, Any]] = [
    PERSON,
    {"type": "object"},
    {
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
        "required": ["below"],
        "additionalProperties": False,
    },
    *(
        {"type": "array", "items": {"type": "string", "format": name}, "minItems": 2, "maxItems": 2}
        for name in (
            *("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6"),
            *("uuid", "uri"),
        )
    ),
    {"type": "string", "pattern": "b+$", "minLength": 3, "maxLength": 6},
    {"type": "string", "pattern": r"^\d{2}-\w{1,3}$"},
    {"type": "number", "minimum": -2, "maximum": 7, "multipleOf": 0.5},
    {"anyOf": [{"type": "null"}, {"const": {"a": [1, True]}}, {"type": "boolean"}]},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_whatever_is_drawn_fits_the_schema(schema: dict[str, Any]):
    speaker = plain_speaker()
    compiler = speaker.compiler()
    rng = np.random.default_rng(5)
    done = 0
    for _ in range(20):
        found = run(compiler.compile(of_schema(schema)))
        said = speaker.improvise(found, rng, at_most=3000)
        if said is not None:
            done += 1
            text = speaker.text(said)
            assert validate_answer(text, schema) is None, text
    compiler.close()
    assert done


def test_copies_of_a_compiled_grammar_know_nothing_of_one_another():
    speaker = plain_speaker()
    compiler = speaker.compiler()

    async def several() -> list[GrammarMatcher]:
        return await asyncio.gather(*(compiler.compile('start: "ab" | "cd"') for _ in range(3)))

    one, two, three = run(several())
    compiler.close()
    assert speaker.follows(one, "ab") and one.is_complete
    assert speaker.follows(two, "cd") and two.is_complete
    assert failed(three, speaker.tokens("x")[0])
    assert not failed(run(speaker.compiler().compile('start: "ab" | "cd"')), speaker.tokens("a")[0])


def test_a_grammar_that_failed_stays_so():
    speaker = plain_speaker()
    found = matcher('start: "ab"')
    with pytest.raises(GrammarFailed):
        found.accept(speaker.tokens("b")[0])
    for act in (lambda: found.accept(speaker.tokens("a")[0]), found.forced_tokens):
        with pytest.raises(GrammarFailed):
            act()
    with pytest.raises(GrammarFailed):
        speaker.allowed(found)


def test_a_text_is_one_of_a_grammar_or_not():
    compiler = plain_speaker().compiler()
    for text, good in (("1+2", True), ("1+", False), ("x", False), ("", False)):
        grammar = 'start: N ("+" N)*\nN: /[0-9]+/'
        assert run(compiler.accepts(grammar, text)) == good, text
    compiler.close()


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        ("start: foo", 'line 1, column 8: unknown name: "foo"'),
        ('start: a\na: "x" b', "line 2, column"),
        ("start: /(?=a)b/", "look-around"),
        ("start: A\nA: B\nB: A", "circular"),
        ("start: a\na: a", "NoExtension"),
        ('start: "', "line 1"),
        (of_schema({"not": {}}), 'Unimplemented keys: ["not"]'),
        (
            'start: %json {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},'
            ' "b": {"$ref": "#/$defs/a"}}}',
            "NoExtension",
        ),
    ],
)
def test_what_is_wrong_with_a_grammar_is_told_in_a_line(grammar: str, told: str):
    message = refusal(grammar)
    assert told in message
    assert "\n" not in message and len(message) <= 300


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        one = {"type": "object", "properties": {"a": schema}}
        schema = {"anyOf": [one, {"type": "object", "properties": {"b": schema}}]}
    return schema


def chain(length: int, *, name: str) -> str:
    """Rules, or terminals, each of which leads to the next."""
    rules = "\n".join(f'{name}{n}: {name}{n + 1} "b"' for n in range(length))
    return f'start: {name}0\n{rules}\n{name}{length}: "a"'


def references(length: int, *, inside: bool) -> str:
    """Definitions each of which leads to the next, of the same value or of one inside of it."""
    defs: dict[str, Any] = {f"d{length}": {"type": "string"}}
    for n in range(length):
        to = {"$ref": f"#/$defs/d{n + 1}"}
        defs[f"d{n}"] = {"type": "object", "properties": {"x": to}} if inside else to
    return f"start: %json {json.dumps({'$ref': '#/$defs/d0', '$defs': defs})}"


#: What a client may send that is meant to do harm.
HOSTILE = {
    "parentheses": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "regex parentheses": "start: /" + "(" * 5000 + "a" + ")" * 5000 + "/",
    "rules": chain(4000, name="r"),
    "terminals": chain(4000, name="T"),
    "references": references(20_000, inside=False),
    "objects": references(5000, inside=True),
    "doubling": f"start: %json {json.dumps(nested(12))}",
    "repetitions": 'start: a{1000}\na: b{1000}\nb: c{1000}\nc: "x"{1000}',
    "regex repetitions": "start: /((a{1000}){1000}){1000}/",
    "negations": "start: A\nA: /(a|b)*a(a|b){20}/ & /(a|b)*b(a|b){21}/ & ~/(a|b)*a(a|b){19}/",
    "ambiguous": 'start: s\ns: s s | s s s | "a" | ',
    "empty": 'start: a*\na: (b*)*\nb: "x"*',
    "parameters": 'start: r::0\nr::_: "a" r::incr([0:32])',
    "long string": 'start: %json {"type": "string", "minLength": 1000000000}',
    "patterns": 'start: %json {"type": "string", "pattern": "^(([a-z]{1,64} ){0,512}){0,50}$"}',
}

_WALK = """
import asyncio
import numpy as np
from grammar_walks import plain_speaker
from test_grammar import HOSTILE
from antiphon.engine.grammar.errors import GrammarFailed, GrammarRefused

async def walk(name):
    speaker = plain_speaker()
    compiler = speaker.compiler()
    try:
        matcher = await compiler.compile(HOSTILE[name])
        speaker.improvise(matcher, np.random.default_rng(1), at_most=100)
    except (GrammarFailed, GrammarRefused):
        pass
    await compiler.compile('start: "honest"')
    compiler.close()
    print(name, flush=True)

for name in HOSTILE:
    asyncio.run(walk(name))
"""


def test_hostile_grammars_harm_nobody(pytestconfig: pytest.Config):
    # In a process of its own, as what is to be feared is that it dies.
    paths = [str(pytestconfig.rootpath / path) for path in ("src", "tests", "tests/engine")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{_WALK}"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.splitlines() == list(HOSTILE), done.stderr
    assert done.returncode == 0, done.stderr


def test_the_event_loop_goes_on_while_a_grammar_is_compiled():
    compiler = plain_speaker().compiler()

    async def compile_while_ticking() -> int:
        ticks = 0
        compiling = asyncio.ensure_future(compiler.compile(references(5000, inside=True)))
        while not compiling.done():
            await asyncio.sleep(0)
            ticks += 1
        await compiling
        return ticks

    assert run(compile_while_ticking()) > 100
    compiler.close()


def test_what_takes_too_long_is_refused_and_others_are_not():
    words = " | ".join(f'"w{number}"' for number in range(20_000))
    limits = GrammarLimits(seconds=0.05)
    compiler = GrammarCompiler(plain_speaker().vocabulary, limits)

    async def several() -> None:
        slow = [asyncio.ensure_future(compiler.compile(f'start: {words} | "{n}"')) for n in "xy"]
        for one in slow:
            with pytest.raises(GrammarRefused, match=r"more than 0\.05 s"):
                await one
        # It waits for its turn, which is no fault of its own.
        await compiler.compile('start: "honest"')

    run(several())
    assert "more than" in refusal('start: "' + "a" * 200 + '"', GrammarLimits(num_bytes=100))
    compiler.close()


def test_compiling_leaves_no_threads_behind():
    before = set(threading.enumerate())
    compiler = plain_speaker().compiler()
    run(compiler.compile('start: "a"'))
    compiler.close()
    assert set(threading.enumerate()) <= before


# --- in the engine ---


def said_by_engine(grammar: str | None, *, seed: int, **options: Any) -> list[int]:
    """What the tiny Llama says under a grammar."""
    speaker = Speaker()
    vocabulary = Vocabulary(
        speaker.tokenizer, speaker.tokenizer.num_tokens, speaker.vocabulary.ends
    )
    compiler = GrammarCompiler(vocabulary)

    async def ask() -> list[int]:
        with tiny.engine(**options) as engine:
            request = SequenceRequest(
                tokens=speaker.tokenizer.encode(["user\n"]),
                sampling=Sampling(seed=seed),
                stop_tokens=vocabulary.ends,
                max_tokens=400,
                grammar=None if grammar is None else await compiler.compile(grammar),
            )
            return [one.token async for out in engine.submit(request) for one in out.tokens]

    said = run(ask())
    compiler.close()
    return said


def test_a_model_of_random_weights_says_what_fits():
    speaker = plain_speaker()
    whole = 0
    for seed in range(3):
        said = said_by_engine(of_schema(PERSON), seed=seed)
        if said[-1] in speaker.vocabulary.ends:
            whole += 1
            assert validate_answer(speaker.text(said), PERSON) is None
    assert whole


def test_guesses_change_nothing_of_what_is_said_under_a_grammar():
    grammar = 'start: ("hello world " /[a-z]{1,3}/ " "){3,9}'
    for seed in range(3):
        assert said_by_engine(grammar, seed=seed, speculate=True) == said_by_engine(
            grammar, seed=seed, speculate=False
        )
