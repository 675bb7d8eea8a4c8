"""A chat template, as models bring it along: rendered in a sandbox, and probed for what it allows.

Templates differ in ways that nothing announces: some have no system role, some want roles to
alternate, some want content as a list, some drop what they do not know. So each is rendered a few
times with made-up texts when it is loaded, and what came out decides how conversations are folded.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from antiphon.errors import InvalidPrompt, StartError
from antiphon.formats.base import Prompt
from antiphon.formats.folding import Traits, fold
from antiphon.formats.guard import Guard, control_pattern
from antiphon.turn import Message, Role, Turn

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
        self._variables = dict(variables)
        marks = (token for token in added if token in source and not token.isspace())
        self._controls = control_pattern({*controls, *marks})
        self._content: Callable[[str], Any] = str
        self.traits = self._probe()
        self.turn_end = self._find_turn_end()

    def render(self, turn: Turn) -> Prompt:
        """See `ChatFormat.render`."""
        messages = fold(turn, self.traits)
        guard = Guard(self._controls, (message.text for message in messages))
        marked = [Message(message.role, guard.mark(message.text)) for message in messages]
        try:
            return guard.cut(self._rendered(marked))
        except _RENDER_ERRORS as error:
            reason = "".join(guard.cut(str(error)))
            raise InvalidPrompt(
                f"The model's chat template refuses this conversation: {reason}", param="input"
            ) from error

    def _rendered(self, messages: Sequence[Message], *, generate: bool = True) -> str:
        return self._template.render(
            messages=[{"role": m.role, "content": self._content(m.text)} for m in messages],
            add_generation_prompt=generate,
            # Many templates ask whether these are none, which an undefined name is not.
            tools=None,
            documents=None,
            **self._variables,
        )

    def _probe(self) -> Traits:
        if not self._shows("user"):
            self._content = _as_parts
            if not self._shows("user"):
                raise TemplateLoadError("the chat template shows no user message")
        system = self._shows("system", "user")
        return Traits(
            system=system,
            # Also between two users, as some count only users and assistants when they alternate.
            later_system=system
            and self._shows("system", "user", "system", "user", "assistant", "system", "user"),
            repeats=self._shows("user", "user", "assistant", "assistant", "user"),
            assistant_first=self._shows("assistant", "user"),
        )

    def _shows(self, *roles: Role) -> bool:
        """Whether a conversation of these roles is rendered with each text once and in order."""
        messages = [Message(role, f"probe{number}text") for number, role in enumerate(roles)]
        try:
            rendered = self._rendered(messages)
        except _RENDER_ERRORS:
            return False
        return re.findall(r"probe\d+text", rendered) == [message.text for message in messages]

    def _find_turn_end(self) -> str | None:
        """The first control token after an assistant's text."""
        messages = [Message("user", "question"), Message("assistant", "probetext")]
        try:
            rendered = self._rendered(messages, generate=False)
        except _RENDER_ERRORS:
            return None
        found = self._controls.search(rendered.rpartition("probetext")[2])
        return found.group() if found else None


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
