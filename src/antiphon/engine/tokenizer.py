"""Text to tokens, prompts to tokens, and tokens back to text.

Wraps a `tokenizers.Tokenizer`.
"""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer as HubTokenizer

#: Characters that byte-level vocabularies write bytes as (GPT-2's `bytes_to_unicode`).
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTE_OF_CHAR = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + number): byte
    for number, byte in enumerate(b for b in range(256) if b not in set(_PRINTABLE))
}
_SPACE = "▁"  # How SentencePiece vocabularies write a space.


class PromptTokenizer:
    """`controls` are the tokens that steer the model; they are never part of any text."""

    def __init__(self, tokenizer: HubTokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._controls = {n: token.content for n, token in added.items() if token.special}
        self._added = [token.content for token in added.values() if not token.special]
        state = json.loads(tokenizer.to_str())
        self._bytes = _TokenBytes(tokenizer, state, added)
        self.num_tokens = tokenizer.get_vocab_size()

    @property
    def controls(self) -> dict[int, str]:
        """Control tokens by id."""
        return self._controls

    @property
    def added(self) -> list[str]:
        """Other tokens that were added to the vocabulary and are never split."""
        return self._added

    @property
    def strips_first_space(self) -> bool:
        """Whether a text's first space stands for nothing, as in SentencePiece vocabularies."""
        return self._bytes.sentencepiece

    def id_of(self, token: str) -> int | None:
        """The id of a token by its exact content."""
        number: int | None = self._tokenizer.token_to_id(token)
        return number

    def ids_of(self, tokens: Iterable[str]) -> dict[int, str]:
        """Those tokens that there are, by their ids."""
        found = ((self.id_of(token), token) for token in tokens)
        return {number: token for number, token in found if number is not None}

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for in a text; nothing for a control token."""
        return b"" if token in self._controls else self._bytes.of(token)

    def fewest_tokens(self, num_bytes: int) -> int:
        """No text of so many bytes has fewer tokens. 0 where nothing is known."""
        return -(-num_bytes // self._bytes.longest) if self._bytes.longest else 0

    def encode(self, pieces: Iterable[str]) -> list[int]:
        """Tokens of a prompt, piece by piece. No token reaches from one piece into the next.

        Slow for long texts, and lets other threads run meanwhile.
        """
        tokens: list[int] = []
        for number, text in enumerate(pieces):
            tokens += self._encode_later(text) if number else _encode(self._tokenizer, text)
        return tokens

    def _encode_later(self, text: str) -> list[int]:
        # Some vocabularies put a space before the first word. After a line break they do not.
        line_break = _encode(self._tokenizer, "\n")
        tokens = _encode(self._tokenizer, f"\n{text}")
        if tokens[: len(line_break)] == line_break:
            return tokens[len(line_break) :]
        return _encode(self._tokenizer, text)


def _encode(tokenizer: HubTokenizer, text: str) -> list[int]:
    # As a batch of one: `encode` keeps the interpreter's lock all the while, a second for 1 MB.
    tokens: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return tokens


class _TokenBytes:
    """The bytes of each token, worked out when first asked for.

    `longest` is how many the longest has, None where a token may stand for a text of any length.
    """

    def __init__(self, tokenizer: HubTokenizer, state: dict[str, Any], added: dict[int, Any]):
        kinds = _kinds(state.get("decoder"))
        self._tokenizer = tokenizer
        self._added: dict[int, str] = {number: token.content for number, token in added.items()}
        self._byte_level = "ByteLevel" in kinds
        self.sentencepiece = not self._byte_level and bool({"ByteFallback", "Metaspace"} & kinds)
        self._known: dict[int, bytes] = {}
        length = len if self._byte_level else _utf8_length
        # What a normalizer takes out, an added token strips or a vocabulary does not know is lost.
        lossless = (
            tokenizer.normalizer is None
            and (self._byte_level or "ByteFallback" in kinds)
            and not any(token.lstrip or token.rstrip for token in added.values())
        )
        self.longest = (
            max([*map(length, tokenizer.get_vocab()), *map(_utf8_length, self._added.values())])
            if lossless
            else None
        )

    def of(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._work_out(token)
        return known

    def _work_out(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            return b""  # Padding of the model's vocabulary.
        if self._byte_level and all(char in _BYTE_OF_CHAR for char in text):
            return bytes(_BYTE_OF_CHAR[char] for char in text)
        if self._byte_level:
            return text.encode()  # A word that was put into the vocabulary as it is.
        if self.sentencepiece:
            if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
                return bytes([int(text[3:5], 16)])
            return text.replace(_SPACE, " ").encode()
        decoded: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return decoded.encode()


def _utf8_length(token: str) -> int:
    return len(token.encode())


def _kinds(decoder: Any) -> set[str]:
    """The kinds of a decoder and of those it is made of."""
    if not decoder:
        return set()
    return {decoder["type"]}.union(*(_kinds(part) for part in decoder.get("decoders", ())))
