"""What a chat format does, and the prompt it makes."""

from typing import Protocol

from antiphon.turn import Turn

#: A prompt in pieces that are tokenised one by one. Every control token in a piece is the
#: template's own; one that somebody wrote into a message is parted by the end of a piece.
Prompt = tuple[str, ...]


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
