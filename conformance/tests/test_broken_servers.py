"""Twenty broken builds of antiphon's scripted server: each is caught by the rule that names it."""

import pytest
from broken_server import broken
from invalid import at, ended, twice, without

from responses_conformance.cases import load
from responses_conformance.config import Config
from responses_conformance.results import Verdict
from responses_conformance.runner import run

pytestmark = pytest.mark.antiphon

#: Streams of text, of calls and of reasoning.
CASES = ("STR-01", "STR-03", "RSN-01")
TEXT, CALL = "response.output_text", "response.function_call_arguments"


def renumbered(events):
    """The events with numbers without a gap, as a server that lost one would number them."""
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def lost(kind, number=0):
    """A build that forgets an event wherever it would send one."""

    def fault(events):
        kinds = [event["type"] for event in events]
        return renumbered(without(events, kind, number)) if kind in kinds else events

    return fault


def where(kind, change):
    """A build that has something wrong in all events of one type."""
    return lambda events: [
        {**event, **change(event)} if event["type"] == kind else event for event in events
    ]


def doubled(kind):
    """A build that sends an event twice."""

    def fault(events):
        kinds = [event["type"] for event in events]
        return renumbered(twice(events, kind)) if kind in kinds else events

    return fault


def terminal(change):
    """A build whose terminal response is wrong."""
    return lambda events: ended(events, change)


def item(**fields):
    """What changes of the item that an event carries."""
    return lambda event: {"item": {**event["item"], **fields}}


def gap(events):
    """A build that numbers events before it filters them."""
    return [
        {**event, "sequence_number": event["sequence_number"] + (place > 3)}
        for place, event in enumerate(events)
    ]


def stuck_index(events):
    """A build that fixes the index at 0."""
    return [{**event, "output_index": 0} if "output_index" in event else event for event in events]


def swapped(events):
    """A build that announces a part after its first text."""
    place = at(events, "response.content_part.added") if _has_part(events) else None
    if place is None:
        return events
    turned = [*events]
    turned[place], turned[place + 1] = turned[place + 1], turned[place]
    return renumbered(turned)


def _has_part(events):
    return any(event["type"] == "response.content_part.added" for event in events)


def late_text(events):
    """A build that flushes its buffer after it closed the item."""
    if not _has_part(events):
        return events
    again = events[at(events, f"{TEXT}.delta")] if _says(events) else None
    return renumbered([*events[:-1], again, events[-1]]) if again else events


def _says(events):
    return any(event["type"] == f"{TEXT}.delta" for event in events)


FAULTS = {
    "created is left out": (lost("response.created"), "LIFE-1"),
    "the terminal event is left out": (lost("response.completed"), "LIFE-3"),
    "the terminal event is sent twice": (doubled("response.completed"), "LIFE-4"),
    "the response's id changes": (terminal(lambda told: {**told, "id": "resp_x"}), "LIFE-6"),
    "the response stays in progress": (
        terminal(lambda told: {**told, "status": "in_progress"}),
        "LIFE-7",
    ),
    "numbers have a gap": (gap, "SEQ-3"),
    "numbers are left out": (
        lambda events: [{k: v for k, v in e.items() if k != "sequence_number"} for e in events],
        "SEQ-1",
    ),
    "items are not announced": (lost("response.output_item.added"), "ITEM-1"),
    "every item is at 0": (stuck_index, "ITEM-3"),
    "ids of deltas are others": (where(f"{TEXT}.delta", lambda e: {"item_id": "x"}), "ITEM-4"),
    "the id changes at the end": (where("response.output_item.done", item(id="x_1")), "ITEM-5"),
    "an item is not closed": (lost("response.output_item.done"), "ITEM-7"),
    "text comes after the end": (late_text, "ITEM-9"),
    "calls are announced with arguments": (
        where(
            "response.output_item.added",
            lambda e: (
                {"item": {**e["item"], "arguments": "{}"}}
                if e["item"]["type"] == "function_call"
                else {}
            ),
        ),
        "ITEM-11",
    ),
    "a part is announced late": (swapped, "PART-1"),
    "a delta is lost": (lost(f"{TEXT}.delta"), "TEXT-1"),
    "the text's done is lost": (lost(f"{TEXT}.done"), "TEXT-5"),
    "a piece of arguments is lost": (lost(f"{CALL}.delta"), "ARGS-1"),
    "the arguments' done is lost": (lost(f"{CALL}.done"), "ARGS-4"),
    "output is in another order": (
        terminal(lambda told: {**told, "output": told["output"][::-1]}),
        "FOLD-1",
    ),
    "output is empty": (terminal(lambda told: {**told, "output": []}), "FOLD-1"),
    "the total is the output": (
        terminal(lambda told: {**told, "usage": {**told["usage"], "total_tokens": 0}}),
        "TOKENS-1",
    ),
    "messages have no role": (
        where(
            "response.output_item.added",
            lambda e: {"item": {k: v for k, v in e["item"].items() if k != "role"}},
        ),
        "SHAPE-1",
    ),
    "an event of its own": (
        lambda events: renumbered(
            [*events[:2], {"type": "antiphon.progress", "sequence_number": 0}, *events[2:]]
        ),
        "LIFE-13",
    ),
    "the text of a part is another": (
        where("response.content_part.done", lambda e: {"part": {**e["part"], "text": "x"}}),
        "TEXT-3",
    ),
}


def judged(config, url):
    """The rules that a run breaks."""
    cases = [case for case in load() if case.id in CASES]
    assert len(cases) == len(CASES)
    config = Config(
        base_url=url, api_key=config.api_key, model=config.model, model_follows_script=True
    )
    report = run(config, cases)
    assert Verdict.ERROR not in {result.verdict for result in report.cases}
    return {outcome.rule.id for outcome in report.rules if outcome.verdict is Verdict.FAIL}


def test_the_sound_build_breaks_nothing(antiphon):
    with broken(antiphon.base_url, lambda events: events) as url:
        assert judged(antiphon, url) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_build_is_caught_by_its_rule(antiphon, name):
    fault, rule = FAULTS[name]
    with broken(antiphon.base_url, fault) as url:
        assert rule in judged(antiphon, url)
