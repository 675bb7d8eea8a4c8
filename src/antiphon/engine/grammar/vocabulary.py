"""A model's tokens, as grammars know them."""

import re
from collections.abc import Iterable, Mapping

from llguidance import LLTokenizer, TokenizerWrapper

from antiphon.engine.tokenizer import PromptTokenizer


class Vocabulary:
    """The tokens that a grammar may allow: `vocab_size` of them, as many as the model scores.

    `marks` are those that are no text, by what they look like: control tokens, and of the added
    tokens those that are given. No text that a grammar allows is ever spelled with one of them; a
    grammar names them by their ids. After a whole text, a token of `ends` is allowed. Making one
    takes 0.3 s for 50,000 tokens.
    """

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        vocab_size: int,
        ends: Iterable[int],
        marks: Iterable[str] = (),
    ) -> None:
        known = min(vocab_size, tokenizer.num_tokens)
        found = {text: number for number, text in tokenizer.controls.items()}
        for text in marks:
            number = tokenizer.id_of(text)
            if number is not None:
                found[text] = number
        self.marks: Mapping[str, int] = {text: n for text, n in found.items() if n < known}
        self.ends = frozenset(ends)
        wrapper = _Wrapper(tokenizer, self.marks, vocab_size, sorted(self.ends))
        self.tokenizer = LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=wrapper.ends)


class _Wrapper(TokenizerWrapper):
    """A tokenizer as llguidance takes one: by the bytes of its tokens, and a call to tokenize."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self, tokenizer: PromptTokenizer, marks: Mapping[str, int], vocab_size: int, ends: list[int]
    ) -> None:
        names = {number: text for text, number in marks.items()}
        known = min(vocab_size, tokenizer.num_tokens)
        # What no token can end must have one all the same.
        self.ends = ends or [next(iter(names), 0)]
        self.eos_token_id = self.ends[0]
        tokens = [
            names[number].encode() if number in names else tokenizer.bytes_of(number)
            for number in range(known)
        ]
        padding = range(known, vocab_size)
        self.tokens = tokens + [f"<padding {number}>".encode() for number in padding]
        self.special_token_ids = [*names, *padding]
        self._tokenizer = tokenizer
        longest_first = sorted(marks, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        # A mark that is written out is text: it is cut behind its first character.
        pieces, begin = [""], 0
        for mark in self._marks.finditer(text):
            pieces.append(text[begin : mark.start() + 1])
            begin = mark.start() + 1
        return self._tokenizer.encode([*pieces, text[begin:]])
