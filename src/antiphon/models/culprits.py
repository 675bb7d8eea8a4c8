"""Finds what in a schema keeps a grammar from being made of it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from antiphon.engine.grammar.compiler import GrammarCompiler
from antiphon.engine.grammar.errors import GrammarRefused
from antiphon.formats.grammars.held import Document
from antiphon.formats.grammars.turn import answer_grammar
from antiphon.schema_places import Place, inner_places, places, target
from antiphon.schemas import InvalidSchema, blame
from antiphon.turn import AnswerFormat

#: What is larger, or takes longer, is judged by the message alone.
_MOST_PLACES = 500
_SECONDS = 2.0
#: Said last: without them nothing is left to be wrong.
_FRAME = ("type", "properties", "required", "$defs", "definitions")


async def culprit(
    compiler: GrammarCompiler, schema: Mapping[str, Any], message: str
) -> InvalidSchema:
    """The innermost part of a schema that is refused by itself, and the keyword without which it
    would not be. `message` is what the compiler says of the whole."""
    search = await asyncio.to_thread(_Search, compiler, schema)
    if search.num_places > _MOST_PLACES:
        return await asyncio.to_thread(blame, schema, message)
    place = await search.innermost()
    keyword = await search.keyword(place)
    if not keyword:
        return await asyncio.to_thread(blame, schema, message)
    return InvalidSchema(place.pointer, keyword, f"'{keyword}': {search.message or message}")


class _Search:
    def __init__(self, compiler: GrammarCompiler, schema: Mapping[str, Any]) -> None:
        self._compiler = compiler
        self._document = Document(schema)
        self._found = {place.pointer: place for place in places(schema)}
        self._until = time.monotonic() + _SECONDS
        #: What is said of the part that was found.
        self.message = ""

    @property
    def num_places(self) -> int:
        """How many schemas there are."""
        return len(self._found)

    async def innermost(self) -> Place:
        place = self._found[""]
        seen = {""}
        while True:
            for inner in self._inside(place):
                if inner.pointer not in seen and await self._refused(inner.schema):
                    seen.add(inner.pointer)
                    place = inner
                    break
            else:
                return place

    async def keyword(self, place: Place) -> str:
        """The keyword of a part without which it is not refused; '' if there is none."""
        schema = place.schema
        names: list[str] = sorted(
            schema, key=lambda name: (name in _FRAME, name not in self.message)
        )
        for name in names:
            if not await self._refused({key: schema[key] for key in schema if key != name}, False):
                return name
        return ""

    def _inside(self, place: Place) -> list[Place]:
        inside = list(inner_places(place))
        referred = target(place.schema["$ref"], {}) if "$ref" in place.schema else None
        if referred in self._found:
            inside.append(self._found[referred])
        # Of `false` there is nothing to name but what is around it.
        return [inner for inner in inside if isinstance(inner.schema, Mapping)]

    async def _refused(self, schema: Any, noting: bool = True) -> bool:
        if time.monotonic() > self._until:
            return not noting  # Nothing more is found out: neither deeper places nor keywords.
        grammar = await asyncio.to_thread(self._grammar, schema)
        try:
            await self._compiler.compile(grammar, keep=False)
        except GrammarRefused as error:
            if noting:
                self.message = str(error)
            return True
        return False

    def _grammar(self, schema: Any) -> str:
        return answer_grammar(AnswerFormat(self._document.alone(schema), strict=True))
