"""What chat formats make."""

#: A prompt in pieces that are tokenised one by one. Every control token in a piece is the
#: template's own; one that somebody wrote into a message is parted by the end of a piece.
Prompt = tuple[str, ...]
