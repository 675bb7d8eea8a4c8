"""Reasoning while it is made: shown, summarised, sealed, as its presentation has it."""

from collections.abc import Iterable, Mapping
from typing import Any

from antiphon import ids
from antiphon.responses.open_item import Emitter, OpenContent
from antiphon.responses.presentation import Presentation
from antiphon.responses.replay import KEPT_SEALED
from antiphon.spec.types import OutputReasoning, ReasoningText, SummaryText


class OpenReasoning(OpenContent):
    """Reasoning, and what `presentation` makes of it."""

    def __init__(self, index: int, presentation: Presentation) -> None:
        super().__init__(ids.reasoning_id(), index)
        self._presentation = presentation
        self._sealed: str | None = None
        #: The summary in pieces, None where there is none.
        self._summary: list[str] | None = None

    def part(self) -> ReasoningText:
        return {"type": "reasoning_text", "text": "".join(self._texts)}

    def snapshot(self) -> OutputReasoning:
        item: OutputReasoning = {
            "type": "reasoning",
            "id": self.id,
            "status": self.status,
            "summary": [] if self._summary is None else [_summary_of(self._summary)],
            "content": [self.part()] if self._announced else [],
        }
        if self._sealed is not None and self._presentation.shows_sealed:
            item["encrypted_content"] = self._sealed
        return item

    def stored(self) -> Mapping[str, Any]:
        item = super().stored()
        if self._sealed is None or self._presentation.shows_sealed:
            return item
        return {**item, KEPT_SEALED: self._sealed}

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        if item["summary"]:
            self._summary = [part["text"] for part in item["summary"]]

    def opened(self, to: Emitter) -> None:
        if not self._presentation.hides_reasoning:
            super().opened(to)
        if self._presentation.summarises:
            self._summary = []
            place, part = self._summary_place(), _summary_of([])
            to.emit("response.reasoning_summary_part.added", **place, part=part)

    def add(self, to: Emitter, text: str) -> None:
        if self._announced:
            to.emit("response.reasoning_text.delta", **self._place, delta=text)
        self._texts.append(text)
        if self._summary is not None:
            to.emit("response.reasoning_summary_text.delta", **self._summary_place(), delta=text)
            self._summary.append(text)

    def closing(self, to: Emitter) -> None:
        part = self.part()
        if self._presentation.seal is not None:
            self._sealed = self._presentation.seal(part["text"])
        if self._announced:
            to.emit("response.reasoning_text.done", **self._place, text=part["text"])
            to.emit("response.content_part.done", **self._place, part=part)
        if self._summary is not None:
            place, summary = self._summary_place(), _summary_of(self._summary)
            to.emit("response.reasoning_summary_text.done", **place, text=summary["text"])
            to.emit("response.reasoning_summary_part.done", **place, part=summary)

    def _summary_place(self) -> Mapping[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "summary_index": 0}


def _summary_of(texts: Iterable[str]) -> SummaryText:
    return {"type": "summary_text", "text": "".join(texts)}
