"""Takes requests in: what of a body is done, by which model, and whether it makes sense."""

from collections.abc import Mapping
from typing import Any, Protocol

from antiphon.errors import IntegerBelowMinimum
from antiphon.models.router import Router
from antiphon.responses.gate import Dropped, Gate
from antiphon.responses.request import EffectiveRequest


class IntakeOptions(Protocol):
    """The smallest `max_output_tokens` there may be, and whether responses are stored where a
    request does not say."""

    @property
    def min_output_tokens(self) -> int: ...
    @property
    def store_by_default(self) -> bool: ...


class Intake:
    """Reads bodies as the document allows them. `stores` is whether anything is stored here."""

    def __init__(self, gate: Gate, router: Router, *, stores: bool, options: IntakeOptions) -> None:
        self._gate = gate
        self._router = router
        self._stores = stores and options.store_by_default
        self._min_output_tokens = options.min_output_tokens

    def accept(self, body: Mapping[str, Any]) -> tuple[EffectiveRequest, list[Dropped]]:
        """What is asked, and what was left out of it. Raises what is wrong with it in itself."""
        kept, dropped = self._gate.apply(body)
        fewest = self._min_output_tokens
        limit = kept.get("max_output_tokens", fewest)
        if limit < fewest:
            raise IntegerBelowMinimum(
                f"Invalid 'max_output_tokens': expected at least {fewest}, but got {limit}.",
                param="max_output_tokens",
            )
        route = self._router.find(kept.get("model"))
        request = EffectiveRequest(kept, route, stores=self._stores)
        request.check()
        return request, dropped
