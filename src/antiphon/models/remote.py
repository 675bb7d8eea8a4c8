"""A model that other processes have."""

from antiphon.errors import UnsupportedValue
from antiphon.models.base import Generation, ModelDefaults
from antiphon.spec.types import ModelStatus
from antiphon.turn import Turn


class RemoteModel:
    """What is known here of a model of worker processes. It cannot be asked here."""

    def __init__(
        self,
        name: str,
        created: int,
        *,
        context_window: int | None = None,
        takes_tools: bool = False,
        defaults: ModelDefaults | None = None,
    ) -> None:
        self.name = name
        self.created = created
        self.context_window = context_window
        self.takes_tools = takes_tools
        self.defaults = defaults or ModelDefaults()

    def status(self) -> ModelStatus:
        return {"id": self.name, "state": "remote", "engine": None}

    async def prepare(self, turn: Turn) -> Generation:
        raise UnsupportedValue(
            f"The model '{self.name}' runs in other processes: it makes stored responses, and "
            "nothing else can be asked of it here.",
            param="model",
        )

    async def close(self) -> None:
        """There is nothing here."""
