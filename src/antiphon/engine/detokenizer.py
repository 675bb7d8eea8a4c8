"""Tokens back to text, as they come, in whole characters."""

import codecs

from antiphon.engine.tokenizer import PromptTokenizer


class Detokenizer:
    """The text of one answer.

    A token may end inside a character; its bytes wait for the rest. Bytes that are no text become
    U+FFFD, as in Python's `bytes.decode(errors="replace")`.
    """

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer.strips_first_space

    def feed(self, token: int) -> str:
        """The characters that are whole with this token; often one word, sometimes nothing."""
        data = self._tokenizer.bytes_of(token)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left: U+FFFD if the answer ended inside a character."""
        return self._decoder.decode(b"", final=True)
