"""What a request is answered with: events as they come, or the response once it can be given."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from antiphon.errors import ShuttingDown
from antiphon.principal import Principal
from antiphon.responses.log import Tail
from antiphon.responses.refusals import on_response
from antiphon.responses.replay import shown_response
from antiphon.responses.run import Run
from antiphon.responses.stored_run import StoredRun
from antiphon.spec.types import Response
from antiphon.store.base import Store


class Answer(Protocol):
    """One caller's view of a response. Either its `tail` is read or its `result` awaited."""

    @property
    def tail(self) -> Tail:
        """Its events."""
        ...

    async def result(self) -> Response:
        """The response as one object. Raises what keeps it from being given."""
        ...

    def leave(self) -> None:
        """The caller is gone, or has all."""
        ...


class RunAnswer:
    """A response that is made while its caller waits, and not stored."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def tail(self) -> Tail:
        return self._run.log

    async def result(self) -> Response:
        await asyncio.wait({self._run.task})
        if self._run.stop_reason is not None:
            raise self._run.stop_reason
        return self._run.result()

    def leave(self) -> None:
        self._run.cancel()


class StoredRunAnswer:
    """A stored response that this process makes while its caller waits. `leave` says what becomes
    of it without its caller."""

    def __init__(self, run: StoredRun, tail: Tail, leave: Callable[[], None]) -> None:
        self._run = run
        self.tail = tail
        self.leave = leave

    async def result(self) -> Response:
        await asyncio.wait({self._run.task})
        if self._run.storage_failure is not None:
            raise self._run.storage_failure
        if not self._run.stored_end:
            raise ShuttingDown("The server is shutting down.", headers={"retry-after": "1"})
        return self._run.result()


class GivenAnswer:
    """A response whose caller need not wait."""

    def __init__(self, response: Response, tail: Tail, leave: Callable[[], None]) -> None:
        self._response = response
        self.tail = tail
        self.leave = leave

    async def result(self) -> Response:
        return self._response


class AwaitedAnswer:
    """A stored response that another process makes while its caller waits here."""

    def __init__(self, store: Store, principal: Principal, response_id: str, tail: Tail) -> None:
        self._store = store
        self._principal = principal
        self._response_id = response_id
        self.tail = tail

    async def result(self) -> Response:
        while True:
            changed = self._store.signals.waiter(self._response_id)
            with on_response(self._response_id):
                record = await self._store.responses.retrieve(self._principal, self._response_id)
            if not record.active:
                return shown_response(record.response)
            await changed

    def leave(self) -> None:
        """It is finished all the same."""
