"""Finds out what a chat template allows, by rendering made-up conversations with it.

Templates differ in ways that nothing announces: some have no system role, some want roles to
alternate, some drop calls or want their arguments in another form. Each trait is what a few
renderings showed.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from antiphon.formats.calls import Result, Said, Shown, named_ids
from antiphon.formats.folding import Traits
from antiphon.turn import Call, Message, Role

#: Renders messages as traits say; None if the template refuses them.
Render = Callable[[Sequence[Shown], Traits], str | None]

_ARGUMENTS: tuple[Literal["object", "json"], ...] = ("object", "json")
_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


def shows(render: Render, messages: Sequence[Shown], traits: Traits) -> bool:
    """Whether every text is rendered once and in order; names in calls may be repeated."""
    rendered = render(messages, traits)
    if rendered is None:
        return False
    end = -1
    for texts, names in _texts(messages, traits):
        places = [_places(rendered, text) for text in texts]
        places += [_places(rendered, name)[:1] for name in names]
        if any(len(found) != 1 or found[0] < end for found in places):
            return False
        end = max(found[0] for found in places)
    return True


def shows_roles(render: Render, *roles: Role) -> bool:
    """Whether a conversation of texts by these roles is rendered whole."""
    return shows(render, _messages(*roles), Traits())


def find_traits(render: Render) -> Traits:
    """The traits of a template that shows a user message."""
    system = shows_roles(render, "system", "user")
    traits = Traits(
        system=system,
        # Also between two users, as some count only users and assistants when they alternate.
        later_system=system
        and shows_roles(render, "system", "user", "system", "user", "assistant", "system", "user"),
        repeats=shows_roles(render, "user", "user", "assistant", "assistant", "user"),
        assistant_first=shows_roles(render, "assistant", "user"),
        system_always=not system or shows_roles(render, "system", "user", "assistant"),
    )
    return _with_reasoning(render, _with_calls(render, traits))


def _with_calls(render: Render, traits: Traits) -> Traits:
    found = next((t for t in _call_traits(traits) if _shows_a_call(render, t)), None)
    if found is None:
        return traits
    found = replace(found, parallel_calls=_shows_both(render, found, _called(2)))
    if not found.parallel_calls and not _shows_both(render, found, _called(1), _called(1, 2)):
        return traits
    if not _shows_both(render, found, _called(1, text="probewith")):
        apart = _shows_both(render, found, [Message("assistant", "probewith")], _called(1))
        found = replace(found, spoken_calls="apart" if apart else "never")
    return found


def _call_traits(traits: Traits) -> Iterator[Traits]:
    for named in (False, True):
        for form in _ARGUMENTS:
            yield replace(traits, calls=form, named_ids=named)


def _shows_a_call(render: Render, traits: Traits) -> bool:
    """Whether a call is shown with and without a result, and as what it is."""
    call, result = _called(1)
    open_call = [Message("user", "probequestion"), call]
    rendered = render(_as_wanted(open_call, traits), traits)
    if rendered is None or not shows(render, _as_wanted(open_call, traits), traits):
        return False
    # Nobody means arguments as Python prints them, or an id in the call that its result has not.
    if "'probekey1'" in rendered or ("probename1:0" in rendered) != traits.named_ids:
        return False
    return _shows_both(render, traits, [call, result])


def _with_reasoning(render: Render, traits: Traits) -> Traits:
    """A template shows reasoning or not, as it likes: often only behind the last question."""
    question = Message("user", "probequestion")
    answers: list[list[Shown]] = [[Said("probeanswer", "probereason")]]
    if traits.calls:
        answers.append([*_as_wanted(_called(1, reasoning="probereason"), traits)])
    for name in _REASONING_NAMES:
        found = replace(traits, reasoning=name)
        if any(shows(render, [question, *answer], found) for answer in answers):
            return found
    return traits


def _shows_both(render: Render, traits: Traits, *rounds: Sequence[Shown]) -> bool:
    """Whether rounds of calls are shown at the end of a conversation and further back."""
    asked = [Message("user", "probequestion"), *(m for messages in rounds for m in messages)]
    if traits.system and traits.system_always:
        asked.insert(0, Message("system", "proberules"))
    messages = _as_wanted(asked, traits)
    later = [Message("assistant", "probeanswer"), Message("user", "probethanks")]
    return shows(render, messages, traits) and shows(render, [*messages, *later], traits)


def _as_wanted(messages: Sequence[Shown], traits: Traits) -> Sequence[Shown]:
    return named_ids(messages) if traits.named_ids else messages


def _called(count: int, first: int = 1, *, text: str = "", reasoning: str = "") -> list[Shown]:
    """Calls made at once, and their results."""
    numbers = range(first, first + count)
    calls = tuple(
        Call(
            f"call{number:05}",
            f"probename{number}",
            json.dumps({f"probekey{number}": f"probevalue{number}"}),
        )
        for number in numbers
    )
    return [
        Said(text, reasoning, calls),
        *(Result(f"call{n:05}", f"probename{n}", f"proberesult{n}") for n in numbers),
    ]


def _texts(messages: Sequence[Shown], traits: Traits) -> Iterator[tuple[list[str], list[str]]]:
    """The texts in their order, with the names that come beside them and may come again."""
    for message in messages:
        if isinstance(message, Said):
            if message.reasoning and traits.reasoning:
                yield [message.reasoning], []
            if message.text:
                yield [message.text], []
            for call in message.calls:
                key, value = next(iter(json.loads(call.arguments).items()))
                yield [value], [key, call.name]
        else:
            yield [message.text], []


def _places(rendered: str, text: str) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(text), rendered)]


def _messages(*roles: Role) -> list[Message]:
    return [Message(role, f"probe{number}text") for number, role in enumerate(roles)]
