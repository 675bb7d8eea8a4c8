"""A model that other processes have."""

from collections.abc import Mapping

from antiphon.errors import UnsupportedValue
from antiphon.models.base import Generation, ModelDefaults
from antiphon.spec.types import ModelStatus
from antiphon.turn import Effort, Turn


class RemoteModel:
    """What is known here of a model of worker processes. It cannot be asked here.

    `efforts` are what those that may be asked for amount to with it, by what is asked, None for
    nothing; what is not there has no effect.
    """

    #: Only who asks a model shows it reasoning.
    family = ""

    def __init__(
        self,
        name: str,
        created: int,
        *,
        context_window: int | None = None,
        defaults: ModelDefaults | None = None,
        efforts: Mapping[Effort | None, Effort] | None = None,
    ) -> None:
        self.name = name
        self.created = created
        self.context_window = context_window
        self.defaults = defaults or ModelDefaults()
        self._efforts = efforts or {}

    def effort(self, asked: Effort | None) -> Effort | None:
        return self._efforts.get(asked)

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
