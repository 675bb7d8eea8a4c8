"""What comes of an output: deltas, joined where they belong together."""

from collections import deque
from collections.abc import Mapping, Sequence

from antiphon.formats.parsing.json_text import InputText
from antiphon.formats.parsing.source import Source, Tokens
from antiphon.turn import (
    CallArguments,
    CallEnd,
    CallStart,
    Delta,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    Tool,
)

_BLANK_LINE = "\n\n"
_PREFIX = "functions."  # Many models put it before names that have none.


class UndeclaredCall(Exception):
    """The model called what it may not call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class OpenCall:
    """A call that is being read; everything of its arguments is written to it as JSON text."""

    def __init__(self, output: "Output", number: int, tool: Tool) -> None:
        self.tool = tool
        self._output = output
        self._number = number
        self._input = InputText() if tool.custom else None

    def write(self, text: str) -> None:
        """More of the arguments."""
        if self._input:
            self.write_raw(self._input.feed(text))
        else:
            self._write(self._output.plain(text, in_json=True))

    def write_raw(self, text: str) -> None:
        """More of a custom tool's input as it is, or of arguments that stood in a string."""
        self._write(self._output.plain(text))

    def end(self) -> None:
        """The arguments are whole."""
        if self._input:
            self.write_raw(self._input.finish())
        self._output.add(CallEnd(self._number))

    def _write(self, text: str) -> None:
        if text:
            self._output.add(CallArguments(self._number, text))


class Output:
    """Collects deltas. Texts and reasoning that follow one another without anything between them,
    but are apart in the output, are parted by a blank line."""

    def __init__(self, source: Source, tokens: Tokens, tools: Sequence[Tool]) -> None:
        self._source = source
        self._tokens = tokens
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._deltas: list[Delta] = []
        self._logprobs: deque[tuple[int, int, tuple[TokenLogprob, ...]]] = deque()
        self.num_calls = 0
        self._last: type[Delta] | None = None

    def plain(self, text: str, *, in_json: bool = False) -> str:
        """The text with tokens as they are written, in JSON as they stand in a string of it."""
        return self._tokens.plain(text, in_json=in_json)

    def note(self, begin: int, end: int, logprobs: tuple[TokenLogprob, ...]) -> None:
        """The tokens that the output from `begin` to `end` came from."""
        self._logprobs.append((begin, end, logprobs))

    def take(self) -> list[Delta]:
        """The deltas since the last time."""
        while self._logprobs and self._logprobs[0][1] <= self._source.settled:
            self._logprobs.popleft()
        deltas, self._deltas = self._deltas, []
        return deltas

    def text(self, text: str, *, begins: bool, reasoning: bool) -> None:
        """Text that is read now, or reasoning. `begins` if there was none where it stands."""
        kind = ReasoningDelta if reasoning else TextDelta
        plain = self.plain(text)
        if begins and self._last is kind:
            plain = _BLANK_LINE + plain
        if reasoning:
            self.add(ReasoningDelta(plain))
        else:
            self.add(TextDelta(plain, self._tokens_of(len(text))))

    def declared(self, name: str) -> str | None:
        """The tool that a name in a call means, if there is one."""
        if name in self.tools:
            return name
        short = name.removeprefix(_PREFIX)
        return short if short in self.tools else None

    def call(self, name: str) -> OpenCall:
        """A call begins. Raises `UndeclaredCall` if there is no such tool."""
        known = self.declared(self.plain(name))
        if known is None:
            raise UndeclaredCall(self.plain(name).removeprefix(_PREFIX))
        number, self.num_calls = self.num_calls, self.num_calls + 1
        tool = self.tools[known]
        self.add(CallStart(number, tool.name, tool.custom))
        return OpenCall(self, number, tool)

    def add(self, delta: Delta) -> None:
        """One more, joined with the last if it goes on with the same."""
        self._last = type(delta)
        last = self._deltas[-1] if self._deltas else None
        match last, delta:
            case TextDelta(), TextDelta():
                joined: Delta = TextDelta(last.text + delta.text, last.logprobs + delta.logprobs)
            case ReasoningDelta(), ReasoningDelta():
                joined = ReasoningDelta(last.text + delta.text)
            case CallArguments(), CallArguments() if last.call == delta.call:
                joined = CallArguments(last.call, last.text + delta.text)
            case _:
                self._deltas.append(delta)
                return
        self._deltas[-1] = joined

    def _tokens_of(self, length: int) -> tuple[TokenLogprob, ...]:
        """The tokens of the next so many characters, each given once."""
        begin = self._source.offset
        found: tuple[TokenLogprob, ...] = ()
        while self._logprobs and self._logprobs[0][0] < begin + length:
            _, end, logprobs = self._logprobs.popleft()
            if end > begin:
                found += logprobs
        return found
