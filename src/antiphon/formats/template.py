"""A chat template, as models bring it along: rendered in a sandbox, and probed for what it allows.

It is probed when it is loaded, and what came out decides how conversations are folded. Where it
refuses a conversation all the same, that is shown without reasoning, then with calls as texts.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from antiphon.errors import InvalidPrompt, StartError
from antiphon.formats.arguments import call_json, written
from antiphon.formats.base import Prompt
from antiphon.formats.calls import Result, Said, Shown, called
from antiphon.formats.folding import Traits, fold
from antiphon.formats.guard import Guard, control_pattern
from antiphon.formats.probing import find_traits, shows_roles
from antiphon.turn import Call, Message, Turn

#: For models that bring no template.
PLAIN_TEMPLATE = """\
{% for message in messages %}{{ message['role'].capitalize() }}: {{ message['content'] }}

{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""

# What a template raises on what it does not like: its own complaint, or Python's.
_RENDER_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class TemplateLoadError(StartError):
    """A template cannot be compiled, or cannot show even one user message."""


class ChatTemplate:
    """A Jinja chat template in the dialect of transformers.

    `variables` are names it may use, such as `bos_token`. `controls` are the control tokens of the
    model, which only the template itself may write, and so are those of `added`, its vocabulary's
    other added tokens, that stand in the template.
    """

    def __init__(
        self,
        source: str,
        *,
        variables: Mapping[str, str],
        controls: Iterable[str],
        added: Iterable[str] = (),
    ) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateLoadError(f"the chat template cannot be read: {error}") from error
        self.source = source
        self._variables = dict(variables)
        marks = (token for token in added if token in source and not token.isspace())
        self._controls = control_pattern({*controls, *marks})
        self._content: Callable[[str], Any] = str
        if not shows_roles(self._probed, "user"):
            self._content = _as_parts
            if not shows_roles(self._probed, "user"):
                raise TemplateLoadError("the chat template shows no user message")
        self.traits = find_traits(self._probed)
        self.turn_end = self._find_turn_end()

    def render(
        self,
        turn: Turn,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        told: Callable[[Call], str] = called,
    ) -> Prompt:
        """The prompt of a turn, up to where the model goes on.

        `tools` and `variables` are what the template is told besides; `told` writes calls that it
        cannot show. Raises `InvalidPrompt` if the model cannot be shown this conversation.
        """
        reason = ""
        for traits in self._attempts(turn):
            messages = fold(turn, traits, told)
            texts: list[str] = []
            self._as_json(messages, traits, _noting(texts))
            written(tools, _noting(texts))
            guard = Guard(self._controls, texts)
            try:
                rendered = self._rendered(
                    self._as_json(messages, traits, guard.mark),
                    tools=written(tools, guard.mark),
                    variables=variables,
                )
                return guard.cut(rendered)
            except _RENDER_ERRORS as error:
                reason = "".join(guard.cut(str(error)))
        raise InvalidPrompt(
            f"The model's chat template refuses this conversation: {reason}", param="input"
        )

    def probe(
        self,
        messages: Sequence[Shown],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        generate: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Messages rendered by the template's traits, None if it refuses them."""
        try:
            shown = self._as_json(messages, self.traits, str)
            return self._rendered(shown, generate=generate, tools=tools, variables=variables)
        except _RENDER_ERRORS:
            return None

    def _attempts(self, turn: Turn) -> Iterator[Traits]:
        yield self.traits
        if not all(isinstance(entry, Message) for entry in turn.messages):
            if self.traits.reasoning is not None:
                yield replace(self.traits, reasoning=None)
            if self.traits.calls is not None:
                yield replace(self.traits, reasoning=None, calls=None)

    def _as_json(
        self, messages: Sequence[Shown], traits: Traits, write: Callable[[str], str]
    ) -> list[dict[str, Any]]:
        """Messages as templates get them; `write` is applied to all that people or tools wrote."""
        shown = []
        for message in messages:
            fields = {"role": message.role, "content": self._content(write(message.text))}
            if isinstance(message, Result):
                fields["tool_call_id"] = write(message.call_id)
                fields["name"] = write(message.name)
            elif isinstance(message, Said):
                if message.reasoning and traits.reasoning is not None:
                    fields[traits.reasoning] = write(message.reasoning)
                if message.calls:
                    fields["tool_calls"] = [
                        call_json(c, traits.calls, write) for c in message.calls
                    ]
            shown.append(fields)
        return shown

    def _rendered(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        generate: bool = True,
        tools: Sequence[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        return self._template.render(
            messages=messages,
            add_generation_prompt=generate,
            # Many templates ask whether these are none, which an undefined name is not.
            tools=tools,
            documents=None,
            **self._variables,
            **(variables or {}),
        )

    def _probed(self, messages: Sequence[Shown], traits: Traits) -> str | None:
        try:
            return self._rendered(self._as_json(messages, traits, str))
        except _RENDER_ERRORS:
            return None

    def _find_turn_end(self) -> str | None:
        """The first control token after an assistant's text."""
        messages = [Message("user", "question"), Message("assistant", "probetext")]
        try:
            rendered = self._rendered(self._as_json(messages, self.traits, str), generate=False)
        except _RENDER_ERRORS:
            return None
        found = self._controls.search(rendered.rpartition("probetext")[2])
        return found.group() if found else None


def _noting(texts: list[str]) -> Callable[[str], str]:
    def write(text: str) -> str:
        texts.append(text)
        return text

    return write


def _as_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _Generation],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant says, for training. Here it is only read over."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's way to say it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes for HTML, which templates do not mean. `ensure_ascii` is not heeded: it
    # would escape the guard's markers.
    return json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
