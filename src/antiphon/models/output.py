"""The tokens of an answer, made into deltas."""

from collections.abc import Mapping, Sequence

from antiphon.engine.detokenizer import Detokenizer
from antiphon.engine.sequence import FinishReason, SampledToken
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.errors import InvalidToolCall
from antiphon.formats.dialects.dialect import Dialect
from antiphon.formats.grammars.calls import input_close
from antiphon.formats.parser import DialectParser
from antiphon.turn import CallEnd, CallStart, Delta, TokenLogprob, Tool


class OutputReader:
    """Reads one answer in a dialect.

    `tools` are those that may be called. `marks` are the tokens that are marks of the dialect, by
    their ids; `stop_tokens` end the answer. Raises `InvalidToolCall` for a call of another tool,
    and for an answer that ends inside of a call's beginning.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Sequence[Tool],
        tokenizer: PromptTokenizer,
        marks: Mapping[int, str],
        stop_tokens: frozenset[int],
        *,
        in_reasoning: bool,
    ) -> None:
        self._dialect = dialect
        self._tokenizer = tokenizer
        self._marks = marks
        self._stop_tokens = stop_tokens
        self._parser = DialectParser(
            dialect, tools, tokens=marks.values(), starts_in_reasoning=in_reasoning
        )
        self._with_grammar = {tool.name for tool in tools if tool.grammar is not None}
        self._open_inputs: set[int] = set()
        self._detokenizer = Detokenizer(tokenizer)
        # Tokens whose text is not whole yet; they are reported with the text that they end up in.
        self._pending: list[SampledToken] = []
        self._last_mark: str | None = None
        #: Tokens of the answer so far, and of these the ones of reasoning.
        self.num_tokens = 0
        self.num_reasoning = 0

    def feed(self, tokens: Sequence[SampledToken], *, logprobs: bool) -> list[Delta]:
        """More of the answer."""
        deltas: list[Delta] = []
        for sampled in tokens:
            reasoned = self._parser.in_reasoning
            deltas += self._feed(sampled, logprobs)
            self.num_tokens += 1
            self.num_reasoning += reasoned or self._parser.in_reasoning
        return self._checked(deltas)

    def finish(self, reason: FinishReason) -> list[Delta]:
        """What is left when the answer has ended."""
        deltas = self._parser.feed(self._detokenizer.finish(), self._taken())
        if reason == "stop" and self._open_inputs:
            # The grammar of a custom tool may end a turn without what closes the call.
            deltas += self._parser.feed_marker(input_close(self._dialect))
        if self._last_mark:
            deltas += self._parser.feed_token(self._last_mark)
        deltas = self._checked([*deltas, *self._parser.finish()])
        if reason == "stop" and self._parser.breaks_off:
            raise InvalidToolCall("The model ended its turn inside of a call.")
        return deltas

    def _feed(self, sampled: SampledToken, logprobs: bool) -> list[Delta]:
        mark = self._marks.get(sampled.token)
        if sampled.token in self._stop_tokens:
            # Last of all, when the end is known.
            self._last_mark = mark
            return []
        if mark is not None:
            deltas = self._parser.feed(self._detokenizer.finish(), self._taken())
            return deltas + self._parser.feed_token(mark)
        if logprobs:
            self._pending.append(sampled)
        text = self._detokenizer.feed(sampled.token)
        return self._parser.feed(text, self._taken()) if text else []

    def _taken(self) -> tuple[TokenLogprob, ...]:
        """The tokens that wait to be reported."""
        taken, self._pending = self._pending, []
        return tuple(
            self._logprob(
                token.token,
                token.logprob,
                tuple(self._logprob(number, logprob) for number, logprob in token.top),
            )
            for token in taken
        )

    def _logprob(
        self, token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()
    ) -> TokenLogprob:
        data = self._tokenizer.bytes_of(token)
        return TokenLogprob(data.decode("utf-8", "replace"), data, logprob, top)

    def _checked(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            if isinstance(delta, CallStart) and delta.name in self._with_grammar:
                self._open_inputs.add(delta.call)
            elif isinstance(delta, CallEnd):
                self._open_inputs.discard(delta.call)
        if self._parser.undeclared is not None:
            raise InvalidToolCall(
                f"The model called '{self._parser.undeclared[:64]}', which it may not call."
            )
        return deltas
