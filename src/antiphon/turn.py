"""What a model is asked (`Turn`) and what it says (`Delta`).

Both are plain values: a turn knows nothing of HTTP or of where its history came from, and a delta
knows nothing of Responses events. Deltas are tuples, as one is made for every token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation. `system` stands for developer messages as well.

    `commentary` is a remark of the assistant's, before it calls, and no answer.
    """

    role: Role
    text: str
    commentary: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought before it spoke or called."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool that the model made.

    `arguments` is a JSON text, maybe a broken or an empty one; for a `custom` tool any text.
    """

    call_id: str
    name: str
    arguments: str
    custom: bool = False

    @property
    def text(self) -> str:
        """The call as one text."""
        return f"{self.name} {self.arguments}".rstrip()


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool gave back to the call of the same `call_id`."""

    call_id: str
    output: str

    @property
    def text(self) -> str:
        """The result as one text."""
        return self.output


#: One step of a conversation. Each has a `text`.
Entry = Message | Reasoning | Call | CallResult


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """What a text must obey: a grammar of `syntax`, as llguidance's Lark or as Rust's regex."""

    syntax: Literal["lark", "regex"]
    definition: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call.

    A function takes JSON arguments that fit `parameters`, a JSON Schema of an object; None for a
    function without arguments. They are held to it if it is `strict`. A `custom` tool takes free
    text, which obeys `grammar` if there is one. One that `searches` finds further tools, and its
    arguments are a JSON object in any case. `name` is what the model calls it by, unique. `place`
    is where the request declares it, for messages about it.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False
    custom: bool = False
    grammar: TextGrammar | None = None
    place: str = field(default="", compare=False)
    searches: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called. `auto`: the model decides, `none`: not at all, `required`: at least
    one call and no answer. Only those in `allowed` may be called, None for all.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    allowed: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The form of the answer: any JSON object, or JSON that fits `schema`. The text is held to it
    token by token; a `schema` that cannot be enforced whole is refused if `strict`, else enforced
    as far as possible."""

    schema: Mapping[str, Any] | None = None
    strict: bool = False


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn from the model's scores.

    `temperature` 0..2, 0 taking the likeliest; `top_p` 0..1; the penalties -2..2, counted over the
    tokens made so far; `seed` any 64-bit integer. `top_k` leaves the likeliest that many tokens, 0
    all of them; `min_p` 0..1 leaves those of at least that share of the likeliest one's
    probability. `bias` is what is added to the scores of tokens.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A request made complete: everything that decides what the model says.

    `messages` is the conversation, oldest first. `instructions` belong to this turn alone; they
    come before every message. `max_output_tokens` is the caller's limit, None for none but the
    context. `top_logprobs` is how many likeliest tokens to report at each place, None for no
    log-probabilities at all.

    `tenant` is who asks: it separates what may be shared, such as cached prefixes, and gets its
    share of a busy engine. A higher `priority` goes first. `cache_key` marks prefixes that will be
    used again; an idle prefix stays for `keep_seconds`, None for as long as the model's settings
    say. `private` keeps everything of it out of what outlives the process.

    `tools` may be called as `tool_choice` says, one at most unless `parallel_calls`, and
    `max_calls` at most, None for any number. `answer` is the form of the answer, None for any text.
    `effort` is how much to reason, None for the model's own way.
    """

    messages: tuple[Entry, ...]
    instructions: str | None = None
    sampling: Sampling = Sampling()
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    tenant: str = ""
    priority: int = 0
    cache_key: str = ""
    keep_seconds: float | None = None
    private: bool = True
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_calls: bool = True
    max_calls: int | None = None
    answer: AnswerFormat | None = None
    effort: Effort | None = None


class TokenLogprob(NamedTuple):
    """A token's text, exact bytes and natural log-probability, with the likeliest ones beside it.

    `text` reads bytes that are no whole character as U+FFFD.
    """

    text: str
    data: bytes
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


class TextDelta(NamedTuple):
    """More of the answer: whole characters, with the tokens they came from if asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ReasoningDelta(NamedTuple):
    """More of the reasoning."""

    text: str


class CallStart(NamedTuple):
    """A call begins. `call` tells calls of one turn apart; several may be open at once. What a
    `custom` tool is called with is free text."""

    call: int
    name: str
    custom: bool = False


class CallArguments(NamedTuple):
    """More of an open call's arguments, which together are one JSON text; or free text."""

    call: int
    text: str


class CallEnd(NamedTuple):
    """An open call is whole."""

    call: int


FinishReason = Literal["stop", "length", "content_filter"]


class Finish(NamedTuple):
    """The model is done. The last delta; a stream of deltas without it has failed."""

    reason: FinishReason


Delta = TextDelta | ReasoningDelta | CallStart | CallArguments | CallEnd | Finish


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the whole prompt, of these the ones not computed again, tokens made (the one that
    ended the turn included), and of these the ones that were reasoning."""

    input_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
