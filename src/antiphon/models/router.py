"""Finds the model a request asks for, by name or alias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from antiphon.errors import ModelNotFound, ModelUnavailable, StartError
from antiphon.models.base import Model

#: The alias for every name that is neither a model's nor another alias.
ANY = "*"
#: When to ask again for a model that no process has.
_RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Route:
    """A name that requests may use. `alias_of` is None for a model's own name."""

    name: str
    model: Model
    alias_of: str | None = None


class Router:
    """The served models; the first is the default. `aliases` map further names to theirs.

    There may be none, where other processes have the models: then every look-up raises
    `ModelUnavailable`.
    """

    def __init__(self, models: Sequence[Model], aliases: Mapping[str, str]) -> None:
        self._models: Mapping[str, Model] = {}
        self._aliases: Mapping[str, str] = {}
        self.replace(models, aliases)

    def replace(self, models: Sequence[Model], aliases: Mapping[str, str]) -> None:
        """Serve these from now on. Raises `StartError` for an alias of what is not served."""
        served = {model.name: model for model in models}
        for alias, target in aliases.items():
            if target not in served:
                raise StartError(f"alias {alias!r} stands for {target!r}, which is not served")
        self._models, self._aliases = served, dict(aliases)

    @property
    def models(self) -> Sequence[Model]:
        """The models themselves."""
        return list(self._models.values())

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names, `ANY` included, and what they stand for."""
        return self._aliases

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
        """The model for a request's `model`; the default for None.

        Raises `ModelNotFound` or `ModelUnavailable`.
        """
        if not self._models:
            raise ModelUnavailable(
                "No worker serves a model now. Try again later.",
                headers={"retry-after": str(_RETRY_SECONDS)},
            )
        if name is None:
            default = next(iter(self._models.values()))
            return Route(default.name, default)
        if name in self._models:
            return Route(name, self._models[name])
        target = self._aliases.get(name) or self._aliases.get(ANY)
        if target is None:
            raise ModelNotFound(
                f"There is no model '{name[:64]}'. GET /v1/models lists what there is.",
                param="model",
            )
        return Route(name, self._models[target], target)
