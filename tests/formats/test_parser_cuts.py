"""However an output is cut, it comes to the same; and what was told stays so as more comes."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import pytest
from grammar_walks import marks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parsed import NOW, TOOLS, WEATHER, Item, items, parser

from antiphon.formats.dialects.dialect import GEMMA_QUOTE, HARMONY_MARKS, Dialect
from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.dialects.spelling import spelled
from antiphon.turn import Call, Delta, Tool

every_dialect = pytest.mark.parametrize("name", DIALECTS)

#: What is likely to be taken for something else.
NASTY = [
    *('"', '\\"', "\\", "'", "'''", "{", "}", "[", "]", ")", "\n", "\n\n", " ", ",", ":", "`"),
    *("<", "</", ">", "<|", "|>", "｜", "</tool_call>", "</think>", "</function>", "```"),
    *(
        "é",
        "🎉",
        "語",
        "\u2028",
        "\\u00e9",
        "\\ud83d",
        "null",
        "True",
        "0x1f",
        "a",
        "b c",
        "=",
        ";",
    ),
]
texts = st.lists(st.sampled_from(NASTY), max_size=8).map("".join)


def run(
    name: str,
    pieces: Sequence[str],
    tools: Sequence[Tool] = TOOLS,
    *,
    marked: bool = False,
    **options: object,
) -> tuple[list[Item], str | None, bool]:
    """What comes of an output in pieces, and how it ends. If `marked`, marks are tokens, which are
    never cut."""
    marks = marks_of(DIALECTS[name]) if marked else frozenset()
    reader = parser(name, tools, tokens=marks, **options)
    deltas: list[Delta] = []
    for piece, is_mark in _with_marks(pieces, marks):
        deltas += (reader.feed_token if is_mark else reader.feed)(piece)
    deltas += reader.finish()
    return items(deltas), reader.undeclared, reader.breaks_off


def _with_marks(pieces: Sequence[str], marks: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The pieces, with each mark by itself."""
    if not marks:
        yield from ((piece, False) for piece in pieces)
        return
    output, at = "".join(pieces), 0
    ends = list(accumulate(map(len, pieces)))
    longest_first = sorted(marks, key=len, reverse=True)
    found = re.compile("|".join(map(re.escape, longest_first)))
    for mark in [*found.finditer(output), None]:
        begin = len(output) if mark is None else mark.start()
        inner = [end for end in ends if at < end < begin]
        yield from ((output[a:b], False) for a, b in pairwise([at, *inner, begin]))
        if mark is not None:
            yield mark.group(), True
            at = mark.end()


def cut(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


places = st.lists(st.integers(0, 10_000), max_size=30)


# --- outputs as a model would write them ---


def arguments_of(dialect: Dialect) -> st.SearchStrategy[dict[str, object]]:
    """Arguments of any kind, of which the strings can be written in the dialect at all."""
    strings = texts
    if dialect.codec == "params":
        assert dialect.params is not None
        close = dialect.params.close.strip()
        strings = texts.filter(lambda text: close not in text and dialect.call_close not in text)
    elif dialect.codec == "gemma":
        strings = texts.filter(lambda text: GEMMA_QUOTE[0] not in text)
    return st.fixed_dictionaries(
        {},
        optional={
            "city": strings,
            "days": st.integers(-(10**20), 10**20),
            "share": st.floats(allow_nan=False, allow_infinity=False),
            "exact": st.booleans(),
            "tags": st.lists(strings, max_size=3),
            "place": st.dictionaries(st.sampled_from(["x", "y z"]), st.integers(0, 9), max_size=2),
        },
    )


def plain(text: str) -> str:
    """A text that no dialect has a mark in, and that begins and ends with a word."""
    return f"So {text.translate(dict.fromkeys(map(ord, '<>[]|{}｜'))).replace('`', '')} so"


@st.composite
def turns(draw: st.DrawFn, dialect: Dialect) -> tuple[str, list[Item]]:
    """An output with everything in its order, and what is in it."""
    output, expected = "", []
    reasoning = dialect.reasoning
    if reasoning and draw(st.booleans()):
        thought = plain(draw(texts))
        output = f"{reasoning.open}{thought}{reasoning.close}"
        expected.append(("reasoning", thought))
    spoken = plain(draw(texts)) if not dialect.bare and draw(st.booleans()) else ""
    calls = [
        Call(f"abcdefgh{number}", name, json.dumps(draw(arguments_of(dialect))))
        if name == WEATHER.name
        else Call(f"abcdefgh{number}", name, "{}")
        for number, name in enumerate(
            draw(st.lists(st.sampled_from([WEATHER.name, NOW.name]), min_size=1, max_size=3))
        )
    ]
    if dialect.channels:
        start, channel, _, message, end, *_ = HARMONY_MARKS
        output += f"{start}assistant" if output else ""
        if spoken:
            output += f"{channel}commentary{message}{spoken}{end}{start}assistant"
        output += f"{start}assistant".join(spelled(dialect, [one]) for one in calls)
    else:
        output += spoken + spelled(dialect, calls)
    if spoken:
        expected.append(("text", spoken))
    expected += [(one.name, json.loads(one.arguments)) for one in calls]
    return output, expected


def check_turns(name: str, examples: int) -> int:
    """Cut turns in a dialect at random, with its marks as text or as tokens; how many there were.

    What is read is what was written, and the same for any pieces.
    """
    dialect, checked = DIALECTS[name], 0

    @settings(max_examples=examples, deadline=None, database=None)
    @given(turns(dialect), places, st.booleans())
    def check(turn: tuple[str, list[Item]], where: list[int], marked: bool) -> None:
        nonlocal checked
        output, expected = turn
        found, undeclared, breaks_off = run(name, cut(output, where), marked=marked)
        assert (undeclared, breaks_off) == (None, False)
        told = [
            (item[1], json.loads(item[2])) if item[0] == "call" and item[3] else item
            for item in found
        ]
        assert told == expected
        assert run(name, list(output), marked=marked) == (found, None, False)
        assert run(name, [output], marked=marked) == (found, None, False)
        checked += 1

    check()
    return checked


@every_dialect
def test_what_is_spelled_is_read_back_however_it_is_cut(name: str):
    assert check_turns(name, 40)


@every_dialect
def test_what_is_left_of_a_mark_behind_a_call_is_no_text(name: str):
    calls = [Call(f"abcdefgh{n}", WEATHER.name, f'{{"days": {n}}}') for n in (1, 2)]
    output = spelled(DIALECTS[name], calls)
    for length in range(len(output)):
        found, _, _ = run(name, [output[:length]])
        kinds = [item[0] for item in found]
        assert "call" not in kinds or set(kinds) == {"call"}, output[:length]


# --- outputs that are no such thing ---


def scraps(dialect: Dialect) -> list[str]:
    """Pieces of everything that means something in a dialect."""
    found = [*dialect.markers, *(part for mark in dialect.markers for part in mark.split())]
    found += [mark[: len(mark) // 2] for mark in dialect.markers]
    found += [dialect.before_name, dialect.after_name, dialect.after_arguments, dialect.separator]
    found += ['{"name": "', "get_weather", "get_time", "apply_patch", "nobody", '", "arguments": ']
    found += ["{}", '{"city": "Os', "lo\\", '"', '"}', "city", "=", ":", "(", ")", "to=", "input"]
    found += [
        "<custom_tool_input>",
        "</custom_tool_input>",
        "\\n",
        "\\u12",
        "3",
        "'",
        "[",
        "]",
        ",",
    ]
    return [scrap for scrap in dict.fromkeys(found) if scrap] + [" ", "\n", "Hm.", "{", "}", ";"]


def check_scraps(name: str, examples: int) -> int:
    """Cut texts of what means something in a dialect, in no order; how many there were."""
    checked = 0

    @settings(max_examples=examples, deadline=None, database=None)
    @given(
        st.lists(st.sampled_from(scraps(DIALECTS[name])), max_size=25).map("".join),
        places,
        st.booleans(),
        st.booleans(),
        st.sampled_from([TOOLS, (WEATHER,), ()]),
    )
    def check(
        output: str, where: list[int], marked: bool, thinking: bool, tools: Sequence[Tool]
    ) -> None:
        nonlocal checked
        options = {"marked": marked, "starts_in_reasoning": thinking}
        whole = run(name, [output], tools, **options)
        assert run(name, cut(output, where), tools, **options) == whole
        assert run(name, list(output), tools, **options) == whole
        checked += 1

    check()
    return checked


@every_dialect
def test_scraps_in_any_order_come_to_the_same_however_they_are_cut(name: str):
    assert check_scraps(name, 80)


@every_dialect
def test_what_was_told_stays_wherever_the_output_ends(name: str):
    @settings(max_examples=6, deadline=None)
    @given(turns(DIALECTS[name]))
    def check(turn: tuple[str, list[Item]]) -> None:
        output, _ = turn
        whole, *_ = run(name, [output])
        reader = parser(name)
        told: list[Delta] = []
        for end, char in enumerate(output):
            told += reader.feed(char)
            so_far = items(told)
            assert all(map(goes_on, so_far, whole)) and len(so_far) <= len(whole)
            ended, undeclared, _ = run(name, [output[: end + 1]])
            assert undeclared is None
            assert all(map(goes_on, so_far, ended)) and len(so_far) <= len(ended)
            # A call that is cut is open, and none is made up.
            calls = [item for item in ended if item[0] == "call"]
            assert all(map(goes_on, calls, [item for item in whole if item[0] == "call"]))

    check()


def goes_on(part: Item, whole: Item) -> bool:
    """Whether an item may become another one as more comes."""
    if part[0] == "call":
        same_call = part[:2] == whole[:2] and whole[2].startswith(part[2])
        return same_call and (not part[3] or part == whole)
    return part[0] == whole[0] and whole[1].startswith(part[1])
