"""Folding events back into the response."""

import copy
import json
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turns
from writing import RESPONSE, response_of, without_ids, written

from antiphon.responses.fold import FoldError, fold
from antiphon.spec import packaged_contract
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    ReasoningDelta,
    TextDelta,
)


def in_pieces(deltas: list[Delta], random: Random) -> list[Delta]:
    """The same said in other pieces. A token's log-probabilities come with any of its pieces."""
    pieces: list[Delta] = []
    for delta in deltas:
        if not isinstance(delta, (TextDelta, ReasoningDelta, CallArguments)):
            pieces.append(delta)
            continue
        cuts = sorted(random.randint(0, len(delta.text)) for _ in range(random.randint(0, 3)))
        bounds = [0, *cuts, len(delta.text)]
        texts = [delta.text[start:end] for start, end in pairwise(bounds)]
        if isinstance(delta, TextDelta):
            carrier = random.randrange(len(texts))
            pieces += [
                TextDelta(text, delta.logprobs if number == carrier else ())
                for number, text in enumerate(texts)
            ]
        else:
            pieces += [cast(Delta, delta._replace(text=text)) for text in texts]
    return pieces


@settings(max_examples=300, deadline=None)
@given(turn=turns(), seed=st.integers(0, 2**32 - 1))
def test_tool_02_in_whatever_pieces_it_is_said_the_response_is_the_same(turn: Any, seed: int):
    deltas, end = turn
    whole = written(*deltas, end=end)
    again = written(*in_pieces(deltas, Random(seed)), end=end)
    assert without_ids(response_of(again)) == without_ids(response_of(whole))


@settings(max_examples=200, deadline=None)
@given(turn=turns())
def test_the_fold_of_a_whole_stream_is_the_response_of_its_last_event(turn: Any):
    deltas, end = turn
    events: Any = written(*deltas, end=end)
    before = copy.deepcopy(events)
    assert fold(events) == response_of(events)
    assert events == before


@settings(max_examples=100, deadline=None)
@given(turn=turns())
def test_every_beginning_of_a_stream_folds_to_a_response_as_far_as_it_is_made(turn: Any):
    deltas, end = turn
    events: Any = written(*deltas, end=end, keep_alive=True)
    contract = packaged_contract()
    for count in range(1, len(events) + 1):
        response = fold(events[:count])
        assert contract.accepts(RESPONSE, response)
        assert response["id"] == events[0]["response"]["id"]
        if "response" in events[count - 1]:
            assert response == events[count - 1]["response"]


@settings(max_examples=100, deadline=None)
@given(turn=turns())
def test_what_is_folded_only_grows(turn: Any):
    deltas, end = turn
    events: Any = written(*deltas, end=end)
    said: list[str] = []
    for count in range(1, len(events) + 1):
        longer = [spoken(item) for item in fold(events[:count])["output"]]
        assert len(longer) >= len(said)
        assert all(now.startswith(then) for then, now in zip(said, longer, strict=False))
        said = longer


def spoken(item: Any) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(part["text"] for part in item["content"])


def test_a_stream_that_broke_off_folds_to_what_was_said_until_then():
    events: Any = written(ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo"))
    broken = [e for e in events if e["type"] not in ("response.output_text.done",)][:-3]
    response = fold(broken)
    assert response["status"] == "in_progress"
    assert [spoken(item) for item in response["output"]] == ["hm", "Hello"]
    assert [item["status"] for item in response["output"]] == ["completed", "in_progress"]


def test_there_is_no_response_before_it_is_created():
    with pytest.raises(FoldError, match="no response among the events"):
        fold([])


def spoilt(index: int, **changes: Any) -> Any:
    """The events of a text and a call, one of them changed."""
    deltas = (TextDelta("hi"), CallStart(0, "f"), CallArguments(0, "{}"), CallEnd(0))
    events = written(*deltas)
    events[index] = {**events[index], **changes}
    return events


@pytest.mark.parametrize(
    "events",
    [
        spoilt(2, output_index=1),
        spoilt(3, output_index=7),
        spoilt(4, output_index=7),
        spoilt(4, content_index=1),
        spoilt(6, content_index=1),
        spoilt(9, output_index=7),
    ],
    ids=["item ahead", "part", "delta", "delta's part", "part's end", "arguments"],
)
def test_what_was_not_announced_cannot_be_folded(events: Any):
    with pytest.raises(FoldError):
        fold(events)


def test_events_that_have_been_through_json_fold_alike():
    events: Any = written(TextDelta("hi"), CallStart(0, "f"), CallEnd(0))
    assert fold(json.loads(json.dumps(events))) == fold(events)
