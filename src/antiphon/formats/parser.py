"""What a model says, told apart: text, reasoning, and calls of tools."""

from collections.abc import Iterable, Sequence

from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.parsing.channels import ChannelReader
from antiphon.formats.parsing.output import Output, UndeclaredCall
from antiphon.formats.parsing.reading import Reading
from antiphon.formats.parsing.source import Ended, Source, Tokens
from antiphon.formats.parsing.turn_reader import TurnReader
from antiphon.turn import Delta, TokenLogprob, Tool


class DialectParser:
    """Reads one output in a dialect, in pieces of any size.

    `tools` are those that may be called; without any, calls are text. `tokens` are the marks of the
    dialect that are tokens of the model's vocabulary (`marker_tokens`): they come by `feed_token`,
    and the same characters in a text are text. `starts_in_reasoning` is the state that the prompt
    leaves.

    Whatever the pieces, the deltas are the same once those that go on with one another are joined.
    Nothing is an error: calls that do not begin like one are text, and calls that break off stay
    open. But nothing is read behind a call of a tool that is not among `tools`.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Sequence[Tool] = (),
        *,
        tokens: Iterable[str] = (),
        starts_in_reasoning: bool = False,
    ) -> None:
        self._tokens = Tokens(tokens)
        self._source = Source()
        self._output = Output(self._source, self._tokens, tools)
        reading = Reading(
            self._source, self._output, dialect.spelled(self._tokens.coded), self._tokens
        )
        kind = ChannelReader if dialect.channels else TurnReader
        self._reader = kind(reading, calls=bool(tools), starts_in_reasoning=starts_in_reasoning)
        self._steps = self._reader.read()
        self._done = False
        self._logprobs: tuple[TokenLogprob, ...] = ()
        self._undeclared: str | None = None

    @property
    def undeclared(self) -> str | None:
        """The name that the model called though it is none of the tools, if it did."""
        return self._undeclared

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as can be told yet."""
        return not self._done and self._reader.in_reasoning

    @property
    def breaks_off(self) -> bool:
        """Whether the output ended inside of a call that has no `CallStart` yet."""
        return self._done and self._undeclared is None and self._reader.in_call

    def feed(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[Delta]:
        """More of the output, with the tokens it came from if they are to be told.

        The tokens come with the first of the text that any of them has a part in; what they are
        part of has to be given at once.
        """
        begin = self._source.length
        self._source.add(text)
        self._logprobs += logprobs
        if text and self._logprobs:
            self._output.note(begin, self._source.length, self._logprobs)
            self._logprobs = ()
        return self._go_on()

    def feed_token(self, token: str) -> list[Delta]:
        """A token of the vocabulary that is a mark, or one that stands for no text."""
        self._source.add_token(self._tokens.char(token))
        return self._go_on()

    def feed_marker(self, marker: str) -> list[Delta]:
        """A marker of the dialect, in the tokens that it has."""
        self._source.add_token(self._tokens.coded(marker))
        return self._go_on()

    def finish(self) -> list[Delta]:
        """The output has ended; what was held back."""
        self._source.ended = True
        return self._go_on()

    def _go_on(self) -> list[Delta]:
        if not self._done:
            try:
                next(self._steps)
            except Ended:
                self._done = True
            except UndeclaredCall as error:
                self._undeclared = error.name
                self._done = True
        return self._output.take()


def marker_tokens(dialect: Dialect, vocabulary: Iterable[str]) -> frozenset[str]:
    """Those tokens of a vocabulary, of the control and added ones, that are marks of a dialect."""
    markers = dialect.markers
    return frozenset(
        token
        for token in vocabulary
        if len(token) >= _SHORTEST_TOKEN
        and not token.isalnum()
        and any(token in marker for marker in markers)
    )


def starts_in_reasoning(dialect: Dialect, prompt: str) -> bool:
    """Whether a prompt leaves the model inside of reasoning."""
    return dialect.reasoning is not None and prompt.rstrip().endswith(
        dialect.reasoning.open.rstrip()
    )


_SHORTEST_TOKEN = 3  # No punctuation that happens to be a token.
