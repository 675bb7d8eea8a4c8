"""Which dialect a model speaks, found out by rendering with its own chat template.

A template shows calls that were made before as the model is meant to write them. So a made-up
conversation with calls is rendered, and the dialect is the one whose parser reads them back; of
several the one with the most of its markers there as they are spelled. Where a template shows no
calls, what it says when it has tools counts, then what is written in it. Where none of this tells,
the model is told of its tools by a text of ours, and asked to call them in the dialect `generic`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from antiphon.errors import StartError
from antiphon.formats.calls import Said, Shown, named_ids
from antiphon.formats.dialects.dialect import Dialect, Reasoning
from antiphon.formats.dialects.families import DIALECTS
from antiphon.formats.dialects.telling import tool_json
from antiphon.formats.folding import Traits
from antiphon.formats.parser import DialectParser
from antiphon.formats.parsing.source import pieces
from antiphon.turn import Call, CallArguments, CallEnd, CallStart, Message, Tool

GENERIC = "generic"

#: Marks of families whose calls have no row.
_OTHER_REASONING = (Reasoning("<mm:think>", "</mm:think>"),)
_LEAST_MARKER = 5  # Characters of a marker that is not in a text by chance.
_QUESTION = Message("user", "probequestion")
_PARAMETERS = {
    "type": "object",
    "properties": {"probekey": {"type": "string"}, "probenumber": {"type": "integer"}},
}
_TOOLS = [Tool(f"probename{n}", "probedescription", _PARAMETERS) for n in (1, 2)]
_ARGUMENTS = {"probekey": "probevalue", "probenumber": 3}


class UnknownDialect(StartError):
    """There is no dialect of that name."""


class Probed(Protocol):
    """A chat template that can be tried out."""

    source: str
    traits: Traits

    def probe(
        self,
        messages: Sequence[Shown],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        generate: bool = False,
    ) -> str | None:
        """Messages rendered by its traits, None if it refuses them."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """A dialect, and whether the template tells the model of its tools, or `tools_text` has to."""

    dialect: Dialect
    shows_tools: bool


def choose_dialect(template: Probed, name: str | None = None) -> Choice:
    """The dialect of a template's model, or the one of that name. Raises `UnknownDialect`."""
    if name is not None and name not in DIALECTS:
        raise UnknownDialect(f"there is no dialect {name!r}; it is one of {', '.join(DIALECTS)}")
    row = DIALECTS[name] if name is not None else _found(template)
    shows_tools = row.name != GENERIC and _shows_tools(template)
    return Choice(_with_reasoning(template, row), shows_tools)


def _found(template: Probed) -> Dialect:
    said = _said(template)
    read = max(_reading(said), key=lambda row: _share(row, said), default=None) if said else None
    if read is not None and not read.bare:
        return read
    told = template.probe([_QUESTION], tools=[tool_json(tool) for tool in _TOOLS]) or ""
    texts = [told] if said else [told, template.source]
    for text in texts if read or not said else []:
        named = [row for row in DIALECTS.values() if _opens_in(row, text)]
        if named:
            return max(named, key=lambda row: len(_opening(row)))
    return read or DIALECTS[GENERIC]


def _said(template: Probed) -> str | None:
    """What the assistant says where it makes calls, up to the end of the conversation."""
    if template.traits.calls is None:
        return None
    calls = tuple(
        Call(f"call0000{n}", tool.name, json.dumps(_ARGUMENTS)) for n, tool in enumerate(_TOOLS)
    )
    said: list[Shown] = [
        _QUESTION,
        Said("", "", calls if template.traits.parallel_calls else calls[:1]),
    ]
    if template.traits.named_ids:
        said = named_ids(said)
    rendered = template.probe(said)
    prompt = template.probe([_QUESTION], generate=True)
    if rendered is None or prompt is None:
        return None
    common = _common(rendered, prompt)
    # Not from inside of a marker that both begin with.
    begin = max(common.rfind(char) for char in ">]\n") + 1
    return rendered[begin:]


def _common(one: str, other: str) -> str:
    """What two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return one[: next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))]


def _reading(said: str) -> Iterator[Dialect]:
    """The dialects that read the calls of a rendered text for what they are."""
    made = said.count("probevalue")
    for row in DIALECTS.values():
        if row.name == GENERIC:
            continue
        parser = DialectParser(row, _TOOLS)
        deltas = [*parser.feed(said), *parser.finish()]
        names = [delta.name for delta in deltas if isinstance(delta, CallStart)]
        ended = sum(isinstance(delta, CallEnd) for delta in deltas)
        whole = names == [tool.name for tool in _TOOLS[:made]] and ended == made
        if whole and all(_arguments(deltas, number) == _ARGUMENTS for number in range(made)):
            yield row


def _arguments(deltas: Sequence[object], number: int) -> Any:
    texts = [d.text for d in deltas if isinstance(d, CallArguments) and d.call == number]
    try:
        return json.loads("".join(texts))
    except ValueError:
        return None


def _share(row: Dialect, text: str) -> int:
    """How much more of a dialect's markers of calls is in a text as spelled than is not."""
    marks = [row.section_open, row.section_close, row.call_open, row.name_open, row.id_open]
    marks += [row.name_end, row.call_close, row.separator]
    if row.params:
        marks += [row.params.open, row.params.key_end, row.params.close]
    return sum(len(mark) if mark in text else -len(mark) for mark in marks)


def _opening(row: Dialect) -> list[str]:
    """The marks that a call cannot be without."""
    marks = (row.section_open, row.call_open, row.name_end)
    return [p for mark in marks for p in pieces(mark) if len(p) >= _LEAST_MARKER]


def _opens_in(row: Dialect, text: str) -> bool:
    opening = _opening(row)
    return bool(opening) and all(mark in text for mark in opening)


def _shows_tools(template: Probed) -> bool:
    told = template.probe([_QUESTION], tools=[tool_json(tool) for tool in _TOOLS]) or ""
    return all(f"probename{n}" in told for n in (1, 2)) and "probekey" in told


def _with_reasoning(template: Probed, row: Dialect) -> Dialect:
    """The dialect with the marks of reasoning that the template writes, if it writes any."""
    if row.channels:
        return row
    known = {r.reasoning for r in DIALECTS.values() if r.reasoning and not r.channels}
    in_order = sorted({*known, *_OTHER_REASONING}, key=lambda marks: -len(marks.open))
    rendered = template.probe([_QUESTION, Said("probeanswer", "probereason")]) or ""
    for marks in in_order:
        if _stands_between(marks, rendered):
            return replace(row, reasoning=marks)
    prompt = (template.probe([_QUESTION], generate=True) or "").rstrip()
    for marks in in_order:
        if prompt.endswith((marks.open.rstrip(), marks.close.rstrip())):
            return replace(row, reasoning=marks)
    return row


def _stands_between(marks: Reasoning, rendered: str) -> bool:
    before, after = re.escape(marks.open.strip()), re.escape(marks.close.strip())
    return re.search(rf"{before}\s*probereason\s*{after}", rendered) is not None
