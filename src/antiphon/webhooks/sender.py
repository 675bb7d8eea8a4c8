"""Makes the webhook calls that the store holds.

Each call is made at least once: the id is the same at every attempt, so that a receiver can tell.
Nothing of a call but its id is logged.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx
import orjson
import structlog

from antiphon.store.base import Signals
from antiphon.store.deliveries import Delivery, SqlDeliveries
from antiphon.store.failures import StoreError
from antiphon.webhooks.addresses import AddressRefused, Resolve, addresses_of, look_up
from antiphon.webhooks.options import WebhookOptions

_logger = structlog.get_logger("antiphon.webhooks")

#: What tells that there is a new call.
TOPIC = "delivery"
#: Of name look-up, connection, request and status line together. Much less than a claim lasts.
_TIMEOUT_SECONDS = 10.0
_AT_ONCE = 8
#: Waits after the first, second... attempt, the last one again and again; give or take a fifth.
BACK_OFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
_JITTER = 0.2
GIVE_UP_SECONDS = 86400.0
_MIN_PAUSE_SECONDS = 1.0
#: However much another process claims, or its clock is off, somebody looks again.
_MAX_PAUSE_SECONDS = 600.0
_STORE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How an attempt ended: `reason` is None if well, `final` whether there is to be no other."""

    reason: str | None = None
    final: bool = False


class WebhookSender:
    """Sends what is due until it is cancelled; as many processes as like may do so.

    `transport` and `resolve` stand for the network, `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        deliveries: SqlDeliveries,
        signals: Signals,
        options: WebhookOptions,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        resolve: Resolve = look_up,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deliveries = deliveries
        self._signals = signals
        self._options = options
        self._resolve = resolve
        self._clock = clock
        # A proxy would look the name up again, so the environment's are not asked.
        self._client = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(verify=httpx.create_ssl_context()),
            timeout=_TIMEOUT_SECONDS,
            limits=httpx.Limits(max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
        )

    async def run(self) -> None:
        """Send what is due, and wait for more, for ever."""
        while True:
            # Taken before looking, so that nothing is missed in between.
            changed = asyncio.ensure_future(self._signals.waiter(TOPIC))
            try:
                await asyncio.wait((changed,), timeout=await self._round())
            finally:
                changed.cancel()

    async def send_due(self) -> None:
        """Send all that is due now, each once. Raises `StoreError`."""
        while batch := await self._deliveries.due(_AT_ONCE):
            await asyncio.gather(*(self._send(delivery) for delivery in batch))

    async def aclose(self) -> None:
        """Close what connections there are. Cancel `run` before."""
        await self._client.aclose()

    async def _round(self) -> float:
        """Send what is due. Returns the seconds until there may be more."""
        try:
            await self.send_due()
            due_at = await self._deliveries.next_due()
        except StoreError as error:
            _logger.warning("webhooks wait for the store", reason=str(error))
            return _STORE_PAUSE_SECONDS
        wanted = _MAX_PAUSE_SECONDS if due_at is None else due_at - self._clock()
        return min(max(wanted, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)

    async def _send(self, delivery: Delivery) -> None:
        outcome = await self._attempt(delivery)
        log = _logger.bind(webhook_id=delivery.id, attempt=delivery.attempt)
        try:
            if outcome.reason is None:
                log.debug("webhook sent")
                await self._deliveries.remove(delivery)
                return
            retry_at = self._clock() + back_off(delivery.attempt)
            if outcome.final or retry_at > delivery.queued_at + GIVE_UP_SECONDS:
                log.error("webhook given up", reason=outcome.reason)
                await self._deliveries.remove(delivery)
            else:
                log.warning("webhook failed", reason=outcome.reason)
                await self._deliveries.retry(delivery, retry_at)
        except StoreError as error:
            # The claim runs out and the call is made again, which receivers must expect.
            log.warning("webhook not noted", reason=str(error))

    async def _attempt(self, delivery: Delivery) -> _Outcome:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                addresses = await addresses_of(
                    self._options.host, self._resolve, allow_private=self._options.allow_private
                )
                status = await self._post(delivery, addresses)
        except AddressRefused as error:
            return _Outcome(str(error))
        except (TimeoutError, httpx.TimeoutException):
            return _Outcome(f"no answer in {_TIMEOUT_SECONDS:.0f} s")
        except Exception as error:
            # Whatever it is, the others must go on. Its text may tell the URL.
            return _Outcome(type(error).__name__)
        if 200 <= status < 300:
            return _Outcome()
        return _Outcome(f"status {status}", final=status == httpx.codes.GONE)

    async def _post(self, delivery: Delivery, addresses: Sequence[str]) -> int:
        """Post to the first address that can be connected to. Returns the status."""
        for address in addresses[:-1]:
            try:
                return await self._post_to(address, delivery)
            except httpx.ConnectError:
                continue
        return await self._post_to(addresses[-1], delivery)

    async def _post_to(self, address: str, delivery: Delivery) -> int:
        url = self._options.url
        body = _body(delivery)
        timestamp = int(self._clock())
        headers = {
            "host": url.netloc.decode("ascii"),
            "content-type": "application/json",
            "user-agent": "antiphon",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": self._options.signature(delivery.id, timestamp, body),
        }
        # The certificate must be the name's, though the connection is to an address.
        named = {"sni_hostname": self._options.host.rstrip(".")}
        async with self._client.stream(
            "POST", url.copy_with(host=address), content=body, headers=headers, extensions=named
        ) as answer:
            return answer.status_code  # Whatever else it says is not read.


def back_off(attempt: int) -> float:
    """Seconds to wait after an attempt failed, counting from 1."""
    seconds = BACK_OFF_SECONDS[min(attempt, len(BACK_OFF_SECONDS)) - 1]
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


def _body(delivery: Delivery) -> bytes:
    """A webhook's body as the official API has it. The same at every attempt."""
    return orjson.dumps(
        {
            "id": delivery.id,
            "object": "event",
            "created_at": delivery.created_at,
            "type": delivery.type,
            "data": {"id": delivery.response_id},
        }
    )
