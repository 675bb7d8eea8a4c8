"""What a chat format does, and the prompt it makes."""

from dataclasses import dataclass
from typing import Protocol

from antiphon.turn import Turn


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a prompt.

    In a `literal` piece nothing is a control token, whatever it looks like: it is text that
    somebody wrote into a message.
    """

    text: str
    literal: bool = False


Prompt = tuple[Piece, ...]


class ChatFormat(Protocol):
    """Renders turns as a model wants them."""

    @property
    def turn_end(self) -> str | None:
        """The control token that ends an assistant's turn, if there is one."""
        ...

    def render(self, turn: Turn) -> Prompt:
        """The prompt of a turn, up to where the model goes on.

        Raises `InvalidPrompt` if the model cannot be shown this conversation.
        """
        ...
