"""A model that says what a script tells it to. For tests of clients and of this server.

Deterministic: a word of the prompt counts as one input token, a piece said as one output token.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence

from antiphon import ids
from antiphon.errors import ContextLengthExceeded, TooManyRequests
from antiphon.models.base import ModelDefaults
from antiphon.settings import SceneSettings, StepSettings
from antiphon.spec.types import ModelStatus
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    Effort,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    Turn,
)

_STEP = 16  # Pieces said before the event loop is let go.


class ScriptedFailure(Exception):
    """What a script's `fail` step raises."""


class ScriptedModel:
    """Plays the first of `scenes` whose pattern is found in the turn's last message, which may be
    what a tool gave back. With the effort `none` it leaves out what a scene reasons."""

    family = "scripted"

    def __init__(
        self,
        name: str,
        scenes: Sequence[SceneSettings],
        *,
        context_window: int | None = None,
        defaults: ModelDefaults | None = None,
    ) -> None:
        self.name = name
        self.created = ids.now()
        self.context_window = context_window
        self.defaults = defaults or ModelDefaults()
        self._scenes = [_Scene(scene) for scene in scenes]

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "loaded", "engine": None}

    def effort(self, asked: Effort | None) -> Effort | None:
        return asked

    async def prepare(self, turn: Turn) -> "ScriptedGeneration":
        texts = [turn.instructions or "", *(message.text for message in turn.messages)]
        input_tokens = sum(len(text.split()) for text in texts)
        limit = turn.max_output_tokens
        if self.context_window is not None:
            room = self.context_window - input_tokens
            if room < 1:
                raise ContextLengthExceeded.by(self.context_window, f"{input_tokens} tokens")
            limit = room if limit is None else min(limit, room)
        last = turn.messages[-1].text if turn.messages else ""
        scene = next((scene for scene in self._scenes if scene.suits(last, texts[:-1])), _NOTHING)
        reasons = turn.effort != "none"
        steps = [step for step in scene.steps if reasons or step.reasoning is None]
        custom = {tool.name for tool in turn.tools if tool.custom}
        actions = [
            action
            for number, step in enumerate(steps)
            for action in _actions(number, step, last, custom=step.call in custom)
        ]
        return ScriptedGeneration(actions, input_tokens, limit, scene)

    async def close(self) -> None:
        pass


class _Scene:
    """When something is said, and how often there is no room for it before."""

    def __init__(self, settings: SceneSettings) -> None:
        self.steps = settings.steps
        self._match = re.compile(settings.match)
        self._earlier = re.compile(settings.earlier)
        self._busy = settings.busy

    def suits(self, last: str, earlier: Sequence[str]) -> bool:
        if not self._match.search(last):
            return False
        return not self._earlier.pattern or any(map(self._earlier.search, earlier))

    def enter(self) -> None:
        """Begin to play it. Raises `TooManyRequests` as often as it is to be busy."""
        if self._busy:
            self._busy -= 1
            raise TooManyRequests(
                "The script has no room for this now. Try again in 1 second.",
                headers={"retry-after": "1"},
            )


_NOTHING = _Scene(SceneSettings())


class ScriptedGeneration:
    """One playing of a scene, cut after `limit` pieces."""

    def __init__(
        self,
        actions: Sequence["_Action"],
        input_tokens: int,
        limit: int | None,
        scene: _Scene = _NOTHING,
    ) -> None:
        self._scene = scene
        self._actions = actions
        self._input_tokens = input_tokens
        self._limit = limit
        self._output_tokens = 0
        self._reasoning_tokens = 0

    @property
    def usage(self) -> TokenUsage:
        return TokenUsage(
            self._input_tokens,
            output_tokens=self._output_tokens,
            reasoning_tokens=self._reasoning_tokens,
        )

    def start(self) -> None:
        self._scene.enter()

    def cancel(self) -> None:
        pass

    async def released(self) -> None:
        pass

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        for number, action in enumerate(self._actions):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            if isinstance(action, ScriptedFailure):
                raise action
            if isinstance(action, float):
                await asyncio.sleep(action)
                continue
            if isinstance(action, (TextDelta, ReasoningDelta, CallArguments)):
                if self._output_tokens == self._limit:
                    yield Finish("length")
                    return
                self._output_tokens += 1
                self._reasoning_tokens += isinstance(action, ReasoningDelta)
            yield action
            if isinstance(action, Finish):
                return
        yield Finish("stop")


#: Something to say, a failure, or seconds to wait.
_Action = Delta | ScriptedFailure | float


def _actions(number: int, step: StepSettings, last: str, *, custom: bool) -> Iterator[_Action]:
    """What a step comes to; `number` tells its call apart, which may be of a `custom` tool, `last`
    is the message it may echo."""
    if step.text is not None or step.echo:
        text = last if step.text is None else step.text
        yield from map(TextDelta, _pieces(text, step.pieces))
    elif step.reasoning is not None:
        yield from map(ReasoningDelta, _pieces(step.reasoning, step.pieces))
    elif step.call is not None:
        yield CallStart(number, step.call, custom)
        yield from (CallArguments(number, p) for p in _pieces(step.arguments, step.pieces))
        if not step.open:
            yield CallEnd(number)
    elif step.delay is not None:
        yield float(step.delay)
    elif step.fail is not None:
        yield ScriptedFailure(step.fail)
    elif step.finish is not None:
        yield Finish(step.finish)


def _pieces(text: str, size: int) -> list[str]:
    size = size or len(text) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]
