"""How reasoning goes out to callers and comes back from them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.models.base import Model
from antiphon.principal import Principal
from antiphon.responses.replay import check_sealed, has_sealed, readable
from antiphon.responses.sealing import ReasoningSealer
from antiphon.store.records import ItemBody


@dataclass(frozen=True, slots=True)
class ReasoningPolicy:
    """What a server does with reasoning.

    `sealer` makes and opens its sealed form, None where there is none. With `hides` nobody is shown
    its text; with `summarises` whoever asks for a summary is given the text as one.
    """

    sealer: ReasoningSealer | None = None
    hides: bool = False
    summarises: bool = False

    def seal(self, principal: Principal, model: Model) -> Callable[[str], str] | None:
        """Makes the sealed form of what `model` reasons; None where there is none."""
        sealer = self.sealer
        if sealer is None:
            return None
        return lambda text: sealer.seal(principal, model.family, text)

    async def check(
        self, principal: Principal, items: Sequence[Mapping[str, Any]], *, field: str = "input"
    ) -> None:
        """Raise `InvalidEncryptedContent` at the place of sealed reasoning among the complete items
        of a request's `field` that cannot be opened."""
        if self.sealer is not None and has_sealed(items):
            # A long history takes milliseconds.
            await asyncio.to_thread(check_sealed, self.sealer, principal, items, field=field)

    async def readable(
        self, principal: Principal, family: str, items: Sequence[ItemBody]
    ) -> Sequence[ItemBody]:
        """Items as a model of `family` is shown them."""
        if self.sealer is None or not has_sealed(items):
            return items
        return await asyncio.to_thread(readable, self.sealer, principal, family, items)
