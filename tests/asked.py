"""A scripted model that keeps what it was asked."""

from typing import Any

from antiphon.models.scripted import ScriptedGeneration, ScriptedModel
from antiphon.settings import SceneSettings, StepSettings
from antiphon.turn import Call, CallResult, Message, Turn


class AskedModel(ScriptedModel):
    """Plays scenes, each a pattern and its steps. `turns` are those that it was asked."""

    def __init__(
        self,
        *scenes: tuple[str, list[dict[str, Any]]],
        name: str = "test-model",
        **options: Any,
    ) -> None:
        super().__init__(
            name,
            [
                SceneSettings(match=match, steps=tuple(StepSettings(**step) for step in steps))
                for match, steps in scenes
            ],
            **options,
        )
        self.turns: list[Turn] = []

    async def prepare(self, turn: Turn) -> ScriptedGeneration:
        self.turns.append(turn)
        return await super().prepare(turn)

    @property
    def last(self) -> list[tuple[str, str]]:
        """Of the last turn, who said what; calls and results by their kind."""
        return [(_who(entry), entry.text) for entry in self.turns[-1].messages]


def _who(entry: Any) -> str:
    match entry:
        case Message(role=role):
            return role
        case Call():
            return "call"
        case CallResult():
            return "result"
        case _:
            return "reasoning"
