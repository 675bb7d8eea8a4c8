"""An item of a response while it is made.

It is announced empty, filled by deltas and closed, and its place and ids never change. It takes in
a delta only once its event is written, so that what the log refuses spoils nothing that is said
later, the failure included.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from antiphon.spec.types import ItemStatus, OutputItem, OutputText, ReasoningText, StreamEvent


class Emitter(Protocol):
    """Writes the events of items."""

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        ...

    def emit(self, kind: str, **fields: Any) -> None:
        """Write an event made of its fields."""
        ...

    def append(self, event: StreamEvent) -> None:
        """Write a whole event."""
        ...


class OpenItem:
    """An item from its announcement to its end."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.status: ItemStatus = "in_progress"

    def snapshot(self) -> OutputItem:
        """The item as it stands, sharing nothing that will change."""
        raise NotImplementedError

    def stored(self) -> Mapping[str, Any]:
        """The item as it is stored."""
        return cast(Mapping[str, Any], self.snapshot())

    def restore(self, item: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self.id = item["id"]

    def opened(self, to: Emitter) -> None:
        """Write what follows the announcement."""

    def closing(self, to: Emitter) -> None:
        """Write what comes before the item's end. `status` is already final."""
        raise NotImplementedError

    def close(self, to: Emitter, *, whole: bool = True) -> None:
        """End the item, if it has not ended."""
        if self.status == "in_progress":
            self.status = "completed" if whole else "incomplete"
            self.closing(to)
            to.emit("response.output_item.done", output_index=self.index, item=self.snapshot())


class OpenContent(OpenItem):
    """An item whose words stand in one content part."""

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self._texts: list[str] = []
        self._place = {"item_id": self.id, "output_index": self.index, "content_index": 0}
        self._announced = False

    def part(self) -> OutputText | ReasoningText:
        """The part as it stands."""
        raise NotImplementedError

    def restore(self, item: Mapping[str, Any]) -> None:
        super().restore(item)
        self._place["item_id"] = self.id
        self._announced = bool(item["content"])
        self._texts = [part["text"] for part in item["content"]]

    def opened(self, to: Emitter) -> None:
        self._announced = True
        to.emit("response.content_part.added", **self._place, part=self.part())
