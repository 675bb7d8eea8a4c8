"""The seam between responses and whatever generates.

A model is used in two steps, so that everything that can be wrong with a request is known before
the first event: `prepare` renders and counts the prompt and raises an `APIError` if the turn cannot
be answered; the `Generation` it returns then runs, once.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from antiphon.spec.types import ModelStatus
from antiphon.turn import Delta, Effort, TokenUsage, Turn


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """The sampling a model was made for, where a request does not say."""

    temperature: float = 1.0
    top_p: float = 1.0


class Generation(Protocol):
    """One turn, ready to be answered once."""

    @property
    def usage(self) -> TokenUsage:
        """The tokens so far. `input_tokens` is known from the start."""
        ...

    def start(self) -> None:
        """Queue it for the engine. Raises `TooManyRequests` if there is no room."""
        ...

    def cancel(self) -> None:
        """Stop the model within one of its steps. Nothing happens if it has ended."""
        ...

    async def released(self) -> None:
        """Wait until the model has let go of it, once it was cancelled or has ended."""
        ...

    def deltas(self) -> AsyncGenerator[Delta, None]:
        """Say the answer, ending with `Finish`. Once; it starts if it was not started.

        Closing the generator, or cancelling the task that reads it, stops the model within one of
        its steps. Raises whatever went wrong; what was said until then stands.
        """
        ...


class Model(Protocol):
    """Something that answers turns."""

    @property
    def name(self) -> str:
        """What requests call it."""
        ...

    @property
    def created(self) -> int:
        """When it was loaded, in seconds since 1970 (UTC)."""
        ...

    @property
    def context_window(self) -> int | None:
        """Tokens of prompt and answer together; None where only the engine behind knows."""
        ...

    @property
    def defaults(self) -> ModelDefaults:
        """The sampling it was made for."""
        ...

    @property
    def family(self) -> str:
        """Whose reasoning it can go on from: that of every model of the same family."""
        ...

    def effort(self, asked: Effort | None) -> Effort | None:
        """What the effort that a request asks for, None for none, amounts to with it; None where it
        reasons in its own way, or not at all. Of its own results it changes none."""
        ...

    def status(self) -> ModelStatus:
        """Whether and how it runs, for `GET /v1/status`."""
        ...

    async def prepare(self, turn: Turn) -> Generation:
        """Render and count a turn, away from the event loop.

        Raises `ContextLengthExceeded` or `InvalidPrompt`.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. No generation is running any more."""
        ...
