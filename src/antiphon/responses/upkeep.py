"""What has to be done from time to time so that a store does not grow for ever."""

import asyncio
from typing import Protocol

import structlog

from antiphon.store.failures import StoreError
from antiphon.store.records import Swept

_logger = structlog.get_logger("antiphon.responses")

_SWEEP_SECONDS = 3600.0


class Sweeper(Protocol):
    """Removes what is past its time."""

    async def sweep(self) -> Swept: ...


async def sweep_hourly(sweeper: Sweeper) -> None:
    """Sweep now, and every hour from then on."""
    while True:
        try:
            _logger.info("swept", **_counts(await sweeper.sweep()))
        except StoreError as error:
            _logger.warning("not swept", reason=str(error))
        await asyncio.sleep(_SWEEP_SECONDS)


def _counts(swept: Swept) -> dict[str, int]:
    return {
        "responses": swept.responses,
        "event_logs": swept.event_logs,
        "conversations": swept.conversations,
        "blobs": swept.blobs,
    }
