"""Finds the model a request asks for, by name or alias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from antiphon.errors import ModelNotFound, StartError
from antiphon.models.base import Model

#: The alias for every name that is neither a model's nor another alias.
ANY = "*"


@dataclass(frozen=True, slots=True)
class Route:
    """A name that requests may use. `alias_of` is None for a model's own name."""

    name: str
    model: Model
    alias_of: str | None = None


class Router:
    """The served models; the first is the default. `aliases` map further names to theirs."""

    def __init__(self, models: Sequence[Model], aliases: Mapping[str, str]) -> None:
        self._models = {model.name: model for model in models}
        self._default = models[0]
        self._aliases = dict(aliases)
        for alias, target in aliases.items():
            if target not in self._models:
                raise StartError(f"alias {alias!r} stands for {target!r}, which is not served")

    @property
    def models(self) -> Sequence[Model]:
        """The models themselves."""
        return list(self._models.values())

    @property
    def takes_all(self) -> bool:
        """Whether requests may use any name."""
        return ANY in self._aliases

    def routes(self) -> list[Route]:
        """Every name there is, models first."""
        named = [Route(name, model) for name, model in self._models.items()]
        aliased = [
            Route(alias, self._models[target], target)
            for alias, target in self._aliases.items()
            if alias != ANY
        ]
        return named + aliased

    def find(self, name: str | None) -> Route:
        """The model for a request's `model`; the default for None. Raises `ModelNotFound`."""
        if name is None:
            return Route(self._default.name, self._default)
        if name in self._models:
            return Route(name, self._models[name])
        target = self._aliases.get(name) or self._aliases.get(ANY)
        if target is None:
            raise ModelNotFound(
                f"There is no model '{name[:64]}'. GET /v1/models lists what there is.",
                param="model",
            )
        return Route(name, self._models[target], target)
