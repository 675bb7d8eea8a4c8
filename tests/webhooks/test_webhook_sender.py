"""Webhooks arrive, signed, and only where they may go; what fails is tried again for a day."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import openai
import orjson
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import func, insert, select
from standardwebhooks import Webhook, WebhookVerificationError

from antiphon.store.database import Database
from antiphon.store.deliveries import CLAIM_SECONDS, SqlDeliveries
from antiphon.store.failures import StoreUnavailable
from antiphon.store.schema import deliveries, owners
from antiphon.store.sealing import PlainSealer
from antiphon.webhooks import sender as sender_module
from antiphon.webhooks.options import webhook_options
from antiphon.webhooks.sender import BACK_OFF_SECONDS, GIVE_UP_SECONDS, WebhookSender, back_off

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://hooks.example/path/T0K3N?x=1"
PUBLIC = "93.184.216.34"


class Clock:
    """Begins now, as receivers look at the time, and stands still until it is moved."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Signals:
    """Wakes whoever waits when it is told to, and tells when somebody does."""

    def __init__(self) -> None:
        self.waiters: list[asyncio.Future[None]] = []
        self.taken = asyncio.Event()

    def waiter(self, topic: str) -> Awaitable[None]:
        assert topic == "delivery"
        self.waiters.append(asyncio.get_running_loop().create_future())
        self.taken.set()
        return self.waiters[-1]

    def tell(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class Receiver:
    """Stands for the user's server: answers with `statuses` in turn, the last again and again."""

    def __init__(self, *statuses: int | Exception) -> None:
        self.statuses = list(statuses or (200,))
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, Exception):
            raise status
        return httpx.Response(status, headers={"location": "https://elsewhere.example/"})

    @property
    def addresses(self) -> list[str]:
        return [request.url.host for request in self.requests]


class Resolver:
    """Gives each of some answers once, the last again and again."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers or ([PUBLIC],))
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class World:
    """A store with webhook calls, and a sender of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = Clock()
        self.deliveries = SqlDeliveries(database, PlainSealer(), self.clock)

    def add(self, number: int = 1, kind: str = "response.completed") -> None:
        """Store a call that is due now."""

        def work(connection) -> None:
            owner = connection.scalar(select(owners.c.key))
            if owner is None:
                added = connection.execute(insert(owners).values(id="key_1"))
                owner = added.inserted_primary_key[0]
            payload = {"type": kind, "response_id": f"resp_{number}", "created_at": 1_700_000_000}
            place = f"delivery:evt_{number}"
            connection.execute(
                insert(deliveries).values(
                    id=f"evt_{number}",
                    owner=owner,
                    payload=PlainSealer().box(None).seal(orjson.dumps(payload), place),
                    created_at=self.clock(),
                    due_at=self.clock(),
                )
            )

        asyncio.run(self.database.write(work))

    @property
    def waiting(self) -> int:
        """How many calls are still to be made."""
        count = select(func.count()).select_from(deliveries)
        return asyncio.run(self.database.read(lambda connection: connection.scalar(count)))

    def send(self, receiver: Receiver, **options) -> None:
        """Send what is due now to a receiver."""

        async def work() -> None:
            async with self.sender(transport=httpx.MockTransport(receiver), **options) as sender:
                await sender.send_due()

        asyncio.run(work())

    @asynccontextmanager
    async def sender(
        self,
        *,
        url: str = URL,
        transport: httpx.AsyncBaseTransport,
        resolver: Callable[[str], Awaitable[list[str]]] | None = None,
        signals: Signals | None = None,
        allow_private: bool = False,
    ) -> AsyncIterator[WebhookSender]:
        sender = WebhookSender(
            self.deliveries,
            signals or Signals(),
            webhook_options(url, SECRET, allow_private=allow_private),
            transport=transport,
            resolve=resolver or Resolver(),
            clock=self.clock,
        )
        try:
            yield sender
        finally:
            await sender.aclose()


@pytest.fixture
def world() -> Iterator[World]:
    database = Database.open("sqlite:///:memory:")
    yield World(database)
    database.close()


def test_a_webhook_is_what_the_official_api_sends(world):
    world.add()
    receiver = Receiver()
    world.send(receiver)
    (request,) = receiver.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == "evt_1"
    assert orjson.loads(request.content) == {
        "id": "evt_1",
        "object": "event",
        "created_at": 1_700_000_000,
        "type": "response.completed",
        "data": {"id": "resp_1"},
    }
    assert world.waiting == 0


def test_the_signature_is_that_of_the_standard(world):
    world.add()
    receiver = Receiver()
    world.send(receiver)
    (request,) = receiver.requests
    Webhook(SECRET).verify(request.content, dict(request.headers))
    for changed in (request.content + b" ", request.content.replace(b"resp_1", b"resp_2")):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(changed, dict(request.headers))


@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
def test_the_official_sdk_takes_every_kind(world, status):
    world.add(kind=f"response.{status}")
    receiver = Receiver()
    world.send(receiver)
    (request,) = receiver.requests
    with openai.OpenAI(api_key="k", webhook_secret=SECRET) as client:
        event = client.webhooks.unwrap(request.content, dict(request.headers))
        assert event.type == f"response.{status}"
        assert event.data.id == "resp_1"
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(
                request.content, dict(request.headers), secret="whsec_" + "A" * 32
            )


def test_what_fails_is_tried_again_later_and_later_with_the_same_id_and_body(world):
    world.add()
    receiver = Receiver(500, httpx.ConnectError("refused"), 404, 302, 200)
    for attempt in range(1, 5):
        world.send(receiver)
        assert len(receiver.requests) == attempt
        wait = asyncio.run(world.deliveries.next_due()) - world.clock()
        expected = BACK_OFF_SECONDS[attempt - 1]
        assert 0.79 * expected <= wait <= 1.21 * expected
        world.clock.now += wait - 1
        world.send(receiver)
        assert len(receiver.requests) == attempt
        world.clock.now += 1
    world.send(receiver)
    assert world.waiting == 0
    assert {request.headers["webhook-id"] for request in receiver.requests} == {"evt_1"}
    assert len({request.content for request in receiver.requests}) == 1
    stamps = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
    assert stamps == sorted(set(stamps))
    assert len({request.headers["webhook-signature"] for request in receiver.requests}) == 5


def test_after_a_day_it_is_given_up(world):
    world.add()
    begin = world.clock()
    receiver = Receiver(503)
    while (due_at := asyncio.run(world.deliveries.next_due())) is not None:
        world.clock.now = due_at
        world.send(receiver)
    assert world.waiting == 0
    assert len(receiver.requests) > len(BACK_OFF_SECONDS)
    assert GIVE_UP_SECONDS / 2 < world.clock() - begin <= GIVE_UP_SECONDS


def test_a_receiver_that_is_gone_for_good_is_not_asked_again(world):
    world.add()
    world.send(Receiver(410))
    assert world.waiting == 0


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_success_is_one(world, status):
    world.add()
    world.send(Receiver(status))
    assert world.waiting == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(world, status):
    world.add()
    receiver = Receiver(status)
    world.send(receiver)
    assert receiver.addresses == [PUBLIC]
    assert world.waiting == 1


def test_one_that_fails_keeps_no_other_back(world):
    for number in range(20):
        world.add(number)
    receiver = Receiver(500, 200)
    world.send(receiver)
    assert len(receiver.requests) == 20
    assert world.waiting == 1


def test_the_address_that_was_looked_at_is_called_under_the_name(world):
    world.add()
    receiver, resolver = Receiver(), Resolver([PUBLIC])
    world.send(receiver, resolver=resolver, url="https://hooks.example:8443/path?x=1")
    (request,) = receiver.requests
    assert str(request.url) == f"https://{PUBLIC}:8443/path?x=1"
    assert request.headers["host"] == "hooks.example:8443"
    assert request.extensions["sni_hostname"] == "hooks.example"
    assert resolver.asked == ["hooks.example"]


def test_a_name_that_comes_to_stand_for_a_private_address_is_refused(world):
    world.add()
    resolver = Resolver([PUBLIC], ["127.0.0.1"])
    receiver = Receiver(500, 200)
    world.send(receiver, resolver=resolver)
    world.clock.now += 10
    world.send(receiver, resolver=resolver)
    assert receiver.addresses == [PUBLIC]
    assert resolver.asked == ["hooks.example"] * 2
    assert world.waiting == 1


@pytest.mark.parametrize(
    "found", [["127.0.0.1"], ["::1"], ["::ffff:10.0.0.1"], [PUBLIC, "169.254.169.254"]]
)
def test_nothing_is_sent_to_a_private_address_unless_it_is_allowed(world, found):
    world.add()
    receiver = Receiver()
    world.send(receiver, resolver=Resolver(found))
    assert receiver.requests == []
    assert world.waiting == 1
    world.clock.now += 10
    world.send(receiver, resolver=Resolver(found), allow_private=True)
    assert receiver.addresses == [found[0]]
    assert world.waiting == 0


def test_the_next_address_is_called_where_one_cannot_be_reached(world):
    world.add()
    receiver = Receiver(httpx.ConnectError("refused"), 200)
    world.send(receiver, resolver=Resolver(["2606:4700::1111", PUBLIC]))
    assert receiver.addresses == ["2606:4700::1111", PUBLIC]
    assert world.waiting == 0


def test_a_name_that_has_no_address_is_tried_again(world):
    async def resolve(host: str) -> list[str]:
        raise OSError("no such name")

    world.add()
    receiver = Receiver()
    world.send(receiver, resolver=resolve)
    assert receiver.requests == []
    assert world.waiting == 1


def test_who_does_not_answer_is_given_up_in_time(world, monkeypatch):
    monkeypatch.setattr(sender_module, "_TIMEOUT_SECONDS", 0.01)

    async def resolve(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    world.add()
    with structlog.testing.capture_logs() as logs:
        world.send(Receiver(), resolver=resolve)
    assert [entry["reason"] for entry in logs] == ["no answer in 0 s"]
    assert world.waiting == 1


def test_neither_url_nor_body_nor_secret_is_logged(world):
    world.add()
    receiver = Receiver(500, httpx.ConnectError(f"cannot reach {URL}"), ValueError(URL), 410)
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            world.send(receiver)
            world.clock.now += 1000
    assert [entry["event"] for entry in logs] == ["webhook failed"] * 3 + ["webhook given up"]
    for secret in ("T0K3N", "hooks.example", "resp_1", "v1,", "whsec", SECRET[6:]):
        assert secret not in str(logs)


def test_a_store_that_fails_meanwhile_leads_to_another_attempt(world, monkeypatch):
    async def fail(delivery) -> None:
        raise StoreUnavailable("full")

    world.add()
    receiver = Receiver()
    with monkeypatch.context() as patch:
        patch.setattr(world.deliveries, "remove", fail)
        world.send(receiver)
    world.clock.now += CLAIM_SECONDS
    world.send(receiver)
    assert [request.headers["webhook-id"] for request in receiver.requests] == ["evt_1"] * 2
    assert world.waiting == 0


def test_waits_grow_and_are_not_all_the_same():
    for attempt in range(1, 30):
        waits = {back_off(attempt) for _ in range(20)}
        middle = BACK_OFF_SECONDS[min(attempt, len(BACK_OFF_SECONDS)) - 1]
        assert len(waits) > 1
        assert all(0.8 * middle <= wait <= 1.2 * middle for wait in waits)


# --- the task ---


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def running(sender: WebhookSender) -> AsyncIterator[None]:
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_new_call_is_sent_when_it_is_told_of(world):
    world.add(1)
    receiver = Receiver()

    async def work() -> None:
        signals = Signals()
        transport = httpx.MockTransport(receiver)
        async with world.sender(transport=transport, signals=signals) as sender, running(sender):
            await until(lambda: len(receiver.requests) == 1)
            await asyncio.to_thread(world.add, 2)
            signals.tell()
            await until(lambda: len(receiver.requests) == 2)

    asyncio.run(work())
    assert {request.headers["webhook-id"] for request in receiver.requests} == {"evt_1", "evt_2"}


def test_a_call_that_is_told_of_while_others_are_sent_is_not_missed(world):
    world.add(1)
    signals = Signals()
    seen: list[str] = []

    async def receive(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["webhook-id"])
        if len(seen) == 1:
            await asyncio.to_thread(world.add, 2)
            signals.tell()
        return httpx.Response(200)

    async def work() -> None:
        transport = httpx.MockTransport(receive)
        async with world.sender(transport=transport, signals=signals) as sender, running(sender):
            await until(lambda: len(seen) == 2)

    asyncio.run(work())
    assert seen == ["evt_1", "evt_2"]


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The longest waits that were asked for; none of them is waited out."""
    asked: list[float] = []
    wait = asyncio.wait

    async def note(tasks, *, timeout: float):
        asked.append(timeout)
        return await wait(tasks)

    monkeypatch.setattr(sender_module.asyncio, "wait", note)
    return asked


def test_it_waits_until_the_next_call_is_due_but_never_less_than_a_second(world, pauses):
    world.add()
    receiver = Receiver(500)

    async def work() -> None:
        signals = Signals()
        transport = httpx.MockTransport(receiver)
        async with world.sender(transport=transport, signals=signals) as sender, running(sender):
            await until(lambda: len(pauses) == 1)
            due_at = await world.deliveries.next_due()
            assert pauses[0] == pytest.approx(due_at - world.clock())
            world.clock.now = due_at - 0.001
            signals.tell()
            await until(lambda: len(pauses) == 2)
            world.clock.now = due_at
            receiver.statuses = [200]
            signals.tell()
            await until(lambda: len(pauses) == 3)

    asyncio.run(work())
    assert pauses[1:] == [1.0, 600.0]
    assert len(receiver.requests) == 2


def test_a_store_that_fails_does_not_end_it(world, pauses, monkeypatch):
    world.add()
    receiver = Receiver()

    async def work() -> None:
        signals = Signals()
        transport = httpx.MockTransport(receiver)

        async def fail(limit: int) -> None:
            raise StoreUnavailable("gone")

        async with world.sender(transport=transport, signals=signals) as sender:
            with monkeypatch.context() as patch:
                patch.setattr(world.deliveries, "due", fail)
                task = running(sender)
                await task.__aenter__()
                await until(lambda: len(pauses) == 1)
            signals.tell()
            await until(lambda: len(receiver.requests) == 1)
            await task.__aexit__(None, None, None)

    asyncio.run(work())
    assert pauses[0] == 5.0


# --- over a real connection ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> str:
    """A file with a key and a certificate for the name `hooks.example` alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.example")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return str(file)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None, answer: bytes) -> AsyncIterator[tuple[int, list]]:
    """A server on loopback: its port, and the requests that it gets."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        got.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], got


def trusting(certificate: str) -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=certificate))


@pytest.mark.parametrize(("name", "arrives"), [("hooks.example", True), ("other.example", False)])
def test_the_certificate_must_be_the_names(world, certificate, name, arrives):
    world.add()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    asked = []
    tls.sni_callback = lambda _, name, __: asked.append(name)

    async def work() -> list[bytes]:
        async with serving(tls, b"HTTP/1.1 204 No Content\r\n\r\n") as (port, got):
            async with world.sender(
                url=f"https://{name}:{port}/hook",
                transport=trusting(certificate),
                resolver=Resolver(["127.0.0.1"]),
                allow_private=True,
            ) as sender:
                await sender.send_due()
        return got

    got = asyncio.run(work())
    assert asked == [name]
    assert (len(got) == 1) is arrives
    assert (world.waiting == 0) is arrives


def test_an_answer_that_never_ends_is_not_read(world):
    world.add()
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n" + b"x" * 10_000

    async def work() -> list[bytes]:
        async with serving(None, endless) as (port, got):
            async with world.sender(
                url=f"http://127.0.0.1:{port}/hook?x=1",
                transport=httpx.AsyncHTTPTransport(),
                resolver=Resolver(["127.0.0.1"]),
                allow_private=True,
            ) as sender:
                await sender.send_due()
        return got

    (request,) = asyncio.run(work())
    assert request.startswith(b"POST /hook?x=1 HTTP/1.1\r\n")
    assert world.waiting == 0
