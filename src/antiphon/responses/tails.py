"""The events of stored responses, wherever and whenever they are written."""

from collections.abc import Sequence

from antiphon.principal import Principal
from antiphon.responses.journal import StoredLog
from antiphon.responses.log import EventsGone
from antiphon.responses.refusals import on_response
from antiphon.store.base import Responses, Signals


class StoredTail:
    """Reads a stored response's events: from `log` while this process writes it, else from the
    store. Between events it waits for a signal.
    """

    def __init__(
        self,
        responses: Responses,
        signals: Signals,
        principal: Principal,
        response_id: str,
        log: StoredLog | None,
    ) -> None:
        self._responses = responses
        self._signals = signals
        self._principal = principal
        self._response_id = response_id
        self._log = log

    async def frames_from(self, number: int) -> Sequence[bytes]:
        if self._log is not None:
            frames = await self._frames_from_log(self._log, number)
            if frames is not None:
                return frames
        while True:
            changed = self._signals.waiter(self._response_id)
            with on_response(self._response_id):
                page = await self._responses.events(self._principal, self._response_id, number)
            if page.first > number:
                raise EventsGone(page.first)
            if page.frames or page.ended:
                return page.frames
            await changed

    async def _frames_from_log(self, log: StoredLog, number: int) -> Sequence[bytes] | None:
        """Frames of the log; None where it has none and did not end either, as another process
        goes on with the response or has to end it."""
        try:
            frames = await log.frames_from(number)
        except EventsGone:
            if not log.closed:
                raise
            # The store may keep some more.
            self._log = None
            return None
        if frames or log.told_end:
            return frames
        self._log = None
        return None
