"""Puts requests to models."""

from collections.abc import Sequence
from dataclasses import replace

from antiphon.errors import ContextLengthExceeded
from antiphon.models.base import Generation, Model
from antiphon.principal import Principal
from antiphon.responses.held import HeldGeneration
from antiphon.responses.request import EffectiveRequest
from antiphon.store.records import ItemBody
from antiphon.turn import Message, Turn


async def prepared(
    request: EffectiveRequest, principal: Principal, items: Sequence[ItemBody]
) -> Generation:
    """A request, `items` being all that its model is to be shown, ready to be answered, and held to
    what it asks for.

    Raises `ContextLengthExceeded` or `InvalidPrompt`.
    """
    family = request.model.family
    turn = request.turn(principal, await request.reasoning.readable(principal, family, items))
    try:
        generation = await request.model.prepare(turn)
    except ContextLengthExceeded:
        if not request.truncates:
            raise
        generation = await _prepared_truncated(request.model, turn)
    return HeldGeneration(generation, turn, request.comparing)


async def _prepared_truncated(model: Model, turn: Turn) -> Generation:
    """Leave out as little of the oldest as makes the turn fit.

    Leading system messages stay, whatever their length, and so does what begins with the last
    message. What is left begins with a message, as the rest of a turn means nothing without it.
    """
    entries = turn.messages
    system = next(
        (i for i, e in enumerate(entries) if not (isinstance(e, Message) and e.role == "system")),
        len(entries),
    )
    starts = [i for i in range(system + 1, len(entries)) if isinstance(entries[i], Message)]
    fitting: Generation | None = None
    first, last = 0, len(starts) - 1
    while first <= last:
        middle = (first + last) // 2
        shorter = replace(turn, messages=entries[:system] + entries[starts[middle] :])
        try:
            fitting = await model.prepare(shorter)
            last = middle - 1
        except ContextLengthExceeded:
            first = middle + 1
    return fitting or await model.prepare(turn)
