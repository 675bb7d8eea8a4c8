"""The row type of the table of dialects.

A dialect is how a family of models spells calls and reasoning. A row is data: the parser reads by
it, grammars are built from it, and `spelling` writes by it. A turn with calls reads

    section_open CALL separator CALL ... section_close

and a call, spelled by its codec,

    envelope   call_open {"name": "NAME", "arguments": ARGUMENTS} call_close
    json       call_open name_open NAME [id_open ID] name_end ARGUMENTS call_close
    params     call_open name_open NAME [id_open ID] name_end PARAM PARAM ... call_close
    pythonic   call_open NAME(KEY=LITERAL, KEY=LITERAL) call_close
    gemma      call_open name_open NAME{KEY:LITERAL,KEY:LITERAL} call_close

with ARGUMENTS a JSON object. Markers are as the family's template writes them, blanks and line
breaks included; those are nowhere insisted on when a model's output is read, nor are `id_open` and
what is in it. Where `array` is set, the calls are elements of one JSON array, whose brackets are
not part of the markers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Codec = Literal["envelope", "json", "params", "pythonic", "gemma"]

#: What a custom tool is called with may stand as it is between these two, in the place of the JSON
#: of its arguments: where a grammar of its own has to hold, which cannot be followed into a JSON
#: string. Else it is `{"input": TEXT}` like a function's arguments.
RAW_INPUT_OPEN = "<custom_tool_input>\n"
RAW_INPUT_CLOSE = "\n</custom_tool_input>"

#: The one argument of a custom tool.
INPUT_KEY = "input"


@dataclass(frozen=True, slots=True)
class Params:
    """Arguments one by one: `open` KEY `key_end` VALUE `close`.

    A string is written as it is, anything else as JSON. In `key_end`, `{string}` stands for `true`
    before a string and `false` before JSON, and `{type}` for the name of the JSON type.
    """

    open: str
    key_end: str
    close: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What reasoning stands between."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """A row; see the module for what its markers are.

    `bare` calls have no marker that a text could not begin with as well, so only a turn that begins
    with one is read as calls; `section_open` may then be missing. `parallel` is whether a turn may
    have several calls. `channels` is whether the whole turn is in Harmony's messages.
    `also_open` are other ways in which models open a section or a call, and `dropped` are marks in
    an answer that are no part of it. `stops` are control tokens that end a turn besides the one
    that the template ends it with.
    """

    name: str
    codec: Codec
    section_open: str = ""
    section_close: str = ""
    call_open: str = ""
    name_open: str = ""
    id_open: str = ""
    id_pattern: str = ""
    name_end: str = ""
    call_close: str = ""
    separator: str = ""
    arguments_key: str = "arguments"
    array: bool = False
    bare: bool = False
    parallel: bool = True
    channels: bool = False
    params: Params | None = None
    reasoning: Reasoning | None = Reasoning("<think>", "</think>")
    also_open: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()

    @property
    def before_name(self) -> str:
        """All that a call begins with, up to its name."""
        return self.call_open + ('{"name": "' if self.codec == "envelope" else self.name_open)

    @property
    def after_name(self) -> str:
        """What stands between a call's name, or its id, and its arguments."""
        match self.codec:
            case "envelope":
                return f'", "{self.arguments_key}": '
            case "pythonic":
                return "("
            case _:
                return self.name_end

    @property
    def after_arguments(self) -> str:
        """What a call ends with behind its arguments."""
        match self.codec:
            case "envelope":
                return "}" + self.call_close
            case "pythonic":
                return ")" + self.call_close
            case _:
                return self.call_close

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, to find out which of them are tokens of a vocabulary."""
        params = self.params
        found = (
            *(self.section_open, self.section_close, self.call_open, self.name_open, self.id_open),
            *(self.name_end, self.call_close, *self.also_open, *self.dropped),
            *((params.open, params.key_end, params.close) if params else ()),
            *((self.reasoning.open, self.reasoning.close) if self.reasoning else ()),
            *(GEMMA_QUOTE if self.codec == "gemma" else ()),
            *(HARMONY_MARKS if self.channels else ()),
        )
        return tuple(marker for marker in found if marker)

    def spelled(self, spell: Callable[[str], str]) -> "Dialect":
        """The dialect with every marker spelled in another way."""
        params, reasoning = self.params, self.reasoning
        return replace(
            self,
            section_open=spell(self.section_open),
            section_close=spell(self.section_close),
            call_open=spell(self.call_open),
            name_open=spell(self.name_open),
            id_open=spell(self.id_open),
            name_end=spell(self.name_end),
            call_close=spell(self.call_close),
            separator=spell(self.separator),
            params=params
            and Params(spell(params.open), spell(params.key_end), spell(params.close)),
            reasoning=reasoning and Reasoning(spell(reasoning.open), spell(reasoning.close)),
            also_open=tuple(map(spell, self.also_open)),
            dropped=tuple(map(spell, self.dropped)),
        )


#: What Gemma puts strings between.
GEMMA_QUOTE = ('<|"|>',)

#: The marks of Harmony's messages: `start` HEADER `message` CONTENT, and one of the ends.
HARMONY_MARKS = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
)
