"""Walks through grammars: texts that are followed, and texts that are made up at random."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from tiny_models import byte_level_tokenizer
from tokenizers import AddedToken
from tokenizers import Tokenizer as HubTokenizer

from antiphon.engine.grammar.compiler import GrammarCompiler
from antiphon.engine.grammar.errors import GrammarFailed
from antiphon.engine.grammar.matcher import GrammarMatcher
from antiphon.engine.grammar.vocabulary import Vocabulary
from antiphon.engine.sequence import SampledToken
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.parser import marker_tokens
from antiphon.models.output import OutputReader
from antiphon.turn import CallArguments, CallEnd, CallStart, Delta, TextDelta, Tool

_MARK = re.compile(r'<[|｜][^<>]*?[|｜]>|\[/?[A-Z_]+\]|<\|"\|>|</?[a-z_:]+\|?>|<\|[a-z_]+>')
PADDING = 70


def marks_of(dialect: Dialect) -> frozenset[str]:
    """What of a dialect's markers a vocabulary may well have as tokens."""
    found = [mark for marker in dialect.markers for mark in _MARK.findall(marker)]
    return marker_tokens(dialect, found)


def marked_tokenizer(dialect: Dialect) -> HubTokenizer:
    """The byte-level tokenizer with a dialect's marks as control tokens."""
    hub = byte_level_tokenizer()
    hub.add_special_tokens([AddedToken(mark, special=True) for mark in sorted(marks_of(dialect))])
    return hub


class Speaker:
    """A tokenizer of a few hundred tokens, with a dialect's marks among them or as plain text."""

    def __init__(self, dialect: Dialect | None = None, *, marks: bool = True) -> None:
        hub = marked_tokenizer(dialect) if dialect and marks else byte_level_tokenizer()
        self.tokenizer = PromptTokenizer(hub)
        names = [*self.tokenizer.controls.values(), *self.tokenizer.added]
        self.marks = marker_tokens(dialect, names) if dialect else frozenset()
        stops = ("<|im_end|>", *(dialect.stops if dialect else ()))
        ends = {self.tokenizer.id_of(stop) for stop in stops} - {None}
        self.vocab_size = self.tokenizer.num_tokens + PADDING
        self.vocabulary = Vocabulary(self.tokenizer, self.vocab_size, ends, self.marks)
        self._dialect = dialect

    def compiler(self) -> GrammarCompiler:
        return GrammarCompiler(self.vocabulary)

    def tokens(self, text: str) -> list[int]:
        """The tokens of an output, up to where it ends the turn."""
        longest_first = sorted(self.marks, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        tokens, at = [], 0
        for mark in pattern.finditer(text):
            tokens += self.tokenizer.encode(["", text[at : mark.start()]])
            number = self.tokenizer.id_of(mark.group())
            assert number is not None
            if number in self.vocabulary.ends:
                return tokens
            tokens.append(number)
            at = mark.end()
        return tokens + self.tokenizer.encode(["", text[at:]])

    def follows(self, matcher: GrammarMatcher, text: str) -> bool:
        """Whether a text may be said so far, by each token's bit in the mask before it."""
        for token in self.tokens(text):
            if token not in self.allowed(matcher):
                return False
            matcher.accept(token)
        return True

    def allowed(self, matcher: GrammarMatcher) -> set[int]:
        mask = np.zeros(-(-self.vocab_size // 32), np.uint32)
        matcher.fill_mask(mask)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    def improvise(
        self, matcher: GrammarMatcher, rng: np.random.Generator, *, at_most: int = 4000
    ) -> list[int] | None:
        """Tokens drawn evenly from what is allowed, up to one that ends the turn, which is taken
        every other time that it may be. None if it comes to no end."""
        said: list[int] = []
        while len(said) < at_most:
            forced = matcher.forced_tokens()
            for token in forced:
                matcher.accept(token)
            said += forced
            if forced:
                continue
            allowed = self.allowed(matcher)
            ends = sorted(allowed & self.vocabulary.ends)
            if ends and (rng.random() < 0.5 or not allowed - set(ends)):
                return [*said, int(rng.choice(ends))]
            token = int(rng.choice(sorted(allowed - set(ends))))
            matcher.accept(token)
            said.append(token)
        return None

    def text(self, tokens: Iterable[int]) -> str:
        """What tokens say; marks stand for nothing."""
        return b"".join(map(self.tokenizer.bytes_of, tokens)).decode()

    def reader(self, tools: Sequence[Tool], *, in_reasoning: bool = False) -> OutputReader:
        """Reads what is said in the dialect."""
        assert self._dialect is not None
        return OutputReader(
            self._dialect,
            tools,
            self.tokenizer,
            self.tokenizer.ids_of(self.marks),
            self.vocabulary.ends,
            in_reasoning=in_reasoning,
        )

    def heard(
        self, tokens: Sequence[int], tools: Sequence[Tool], *, in_reasoning: bool = False
    ) -> list[Delta]:
        """What the dialect's parser makes of tokens, the last of which ends the turn."""
        reader = self.reader(tools, in_reasoning=in_reasoning)
        deltas = reader.feed([SampledToken(token) for token in tokens], logprobs=False)
        return deltas + reader.finish("stop")


@cache
def plain_speaker() -> Speaker:
    """A speaker of no dialect."""
    return Speaker()


def calls_of(deltas: Iterable[Delta]) -> list[tuple[str, str]]:
    """The names and arguments of the calls, all of them whole."""
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    ended = set()
    for delta in deltas:
        match delta:
            case CallStart():
                names[delta.call] = delta.name
            case CallArguments():
                texts[delta.call] = texts.get(delta.call, "") + delta.text
            case CallEnd():
                ended.add(delta.call)
    assert set(names) == ended
    return [(name, texts.get(call, "")) for call, name in names.items()]


def text_of(deltas: Iterable[Delta]) -> str:
    """The text that is no call."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def failed(matcher: GrammarMatcher, token: int) -> bool:
    """Whether a grammar refuses a token."""
    try:
        matcher.accept(token)
    except GrammarFailed:
        return True
    return False
