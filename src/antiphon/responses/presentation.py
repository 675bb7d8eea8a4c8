"""How what a model says is shown to its caller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class ShownTool(NamedTuple):
    """What a response calls a tool, the namespace it was declared in, if it was in one, and whether
    a call of it is a search for tools."""

    name: str
    namespace: str | None = None
    searches: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """`tools` are by the names that the model uses; a name that is not there is shown as it is.

    `seal` makes the sealed form of an item's reasoning, None where it is not wanted; unless
    `shows_sealed` it is only stored. With `hides_reasoning` the text of reasoning is not shown,
    with `summarises` it is shown as the summary, too.
    """

    tools: Mapping[str, ShownTool] = field(default_factory=dict)
    seal: Callable[[str], str] | None = None
    shows_sealed: bool = True
    hides_reasoning: bool = False
    summarises: bool = False

    def tool(self, name: str) -> ShownTool:
        """What the tool is called that the model calls `name`."""
        return self.tools.get(name) or ShownTool(name)
