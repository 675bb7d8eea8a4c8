"""A run whose events and end are stored."""

import asyncio

import structlog

from antiphon.errors import APIError, ResponseCancelled, StorageUnavailable
from antiphon.models.base import Generation
from antiphon.responses.builder import ResponseBuilder
from antiphon.responses.fold import FoldError, fold
from antiphon.responses.journal import StoredLog, unheard
from antiphon.responses.run import Run
from antiphon.spec.types import Response
from antiphon.store.failures import LeaseLost, StoreError

_logger = structlog.get_logger("antiphon.responses")


class StoredRun(Run):
    """Ends by committing the final response with its last events.

    `stored_end` is whether that was done; a run that lost its lease or was given up has no end
    here. If the store fails, readers get a failure that is not stored, as nothing can be; another
    worker will find the run without an end.
    """

    def __init__(
        self,
        generation: Generation,
        builder: ResponseBuilder,
        log: StoredLog,
        *,
        keep_alive_seconds: float,
    ) -> None:
        super().__init__(generation, builder, log, keep_alive_seconds=keep_alive_seconds)
        self._stored = log
        self._base = builder.response
        self._deadline: asyncio.TimerHandle | None = None
        self.storage_failure: APIError | None = None
        self.stored_end = False
        self.given_up = False
        log.on_failure = self._log_failed

    @property
    def stored_log(self) -> StoredLog:
        """Its log."""
        return self._stored

    @property
    def response_id(self) -> str:
        """The id of its response."""
        return self._base["id"]

    @property
    def response(self) -> Response:
        """The response as it stands, whether its events are committed or not."""
        return self._builder.response

    @property
    def outcome(self) -> str:
        return "cancelled" if self._builder.response["status"] == "cancelled" else super().outcome

    def result(self) -> Response:
        return self._builder.response

    async def give_up(self) -> None:
        """Stop the model without an end, so that another worker may make the response."""
        self.given_up = True
        self.cancel()
        await asyncio.wait({self.task})
        await self._generation.released()

    def stop_at(self, seconds: float, reason: APIError) -> None:
        """Stop it after so many seconds, if it has not ended."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.stop, reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super()._ended(task)
        # Else the two would keep each other, with all events, until garbage is collected.
        self._stored.on_failure = unheard

    async def _stopped(self, reason: APIError) -> None:
        if reason is self.storage_failure:
            self._tell_storage_failure()
            return
        # Until then it takes up room, and may be called running.
        await self._generation.released()
        if isinstance(reason, ResponseCancelled):
            self._builder.cancel(self.usage)
        else:
            self._fail(reason)

    async def _conclude(self) -> None:
        if self.storage_failure is not None:
            return
        try:
            await self._stored.end(self._builder.stored)
            self.stored_end = True
        except LeaseLost:
            _logger.warning("run taken over", response=self.response_id)
        except StoreError:
            self._tell_storage_failure()

    def _log_failed(self, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self.cancel()
        else:
            _logger.error("run not stored", response=self.response_id, reason=str(error))
            self.storage_failure = StorageUnavailable("The storage failed while it was answered.")
            self.stop(self.storage_failure)

    def _tell_storage_failure(self) -> None:
        """End the stream for those who read it, from what they have got."""
        if self.storage_failure is None:
            self.storage_failure = StorageUnavailable("The storage failed while it was answered.")
        self._stored.detach()
        try:
            known = fold(self._stored.events)
        except FoldError:
            known = self._base
        self._builder = ResponseBuilder(known, self._stored)
        self._fail(self.storage_failure)
