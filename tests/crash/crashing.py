"""Rounds in which a server is killed while clients read from it, and what they must find after.

A round has some clients create streams of stored responses, kills their server at a marked or a
random point, lets a restarted or another server go on, and compares all that the clients were told
with what is stored in the end.
"""

import asyncio
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
from launcher import Launcher, Process
from readers import Reader
from scenes import BRIEF, said, whole, write_settings
from snapshots import Row, Snapshot, num_active, snapshot
from sqlalchemy import create_engine

LEASE_SECONDS = 1.0
#: A client that has no end so long after the death of its server is stuck.
_PATIENCE_SECONDS = 30.0
#: A mark that is not come to in so long is not on the way of these responses.
_MARK_SECONDS = 15.0
_TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
_LIMITS = {
    "background_workers": 24,
    "max_background": 500,
    "max_background_per_key": 500,
    "max_readers": 500,
    "max_readers_per_key": 500,
}


@dataclass(frozen=True)
class Plan:
    """How a server dies: at the `after`th time that it comes to `mark`, or after so many seconds.
    If `again` is a mark, the restarted server dies the first time it comes there."""

    mark: str | None
    after: float
    again: str | None = None


@dataclass(frozen=True)
class Death:
    """A process that died, and what was stored then."""

    pid: int
    stored: Snapshot


@dataclass
class Outcome:
    """What came of a round. `complaints` is all that was wrong."""

    plan: Plan
    reached: bool = False
    complaints: list[str] = field(default_factory=list)
    num_accepted: int = 0
    num_lost: int = 0
    num_resumed: int = 0
    num_events: int = 0
    num_ended_before: int = 0
    num_made_again: int = 0
    num_failed: int = 0
    #: Of responses that a living server had, and lost to another all the same.
    num_taken_from_living: int = 0
    slowest_seconds: float = 0.0


class Server:
    """A server process at an address that it keeps when it is started again."""

    def __init__(self, launcher: Launcher, settings: Path, log: Path) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
            self._port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = log
        self._launcher = launcher
        self._settings = settings
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def start(self, mark: str | None = None, after: int = 1) -> None:
        """Start it, to die when it comes to `mark` for the `after`th time."""
        arguments = ("serve", "--config", str(self._settings), "--port", str(self._port))
        self._process = self._launcher.start(*arguments, log=self.log, mark=mark, after=after)

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Wait until it answers, or died at its mark."""
        for _ in range(3000):
            if self.process.ended:
                return
            try:
                await http.get(f"{self.url}/health")
                return
            except httpx.TransportError:
                await asyncio.sleep(0.01)
        raise AssertionError(f"no server: {self.log.read_text()}")


class Site:
    """A database and the servers on it: one that dies and, with `survives`, one that does not."""

    def __init__(
        self, launcher: Launcher, folder: Path, url: str, *, survives: bool, **settings: Any
    ) -> None:
        """`url` is that of a PostgreSQL database, or empty for a file in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        file = write_settings(
            folder / "settings.toml",
            state="postgres" if url else "sqlite",
            **({"database_url": url} if url else {}),
            data_dir=folder / "data",
            keys_file=folder / "no-keys.toml",
            lease_seconds=LEASE_SECONDS,
            log_level="warning",
            log_format="json",
            **{**_LIMITS, **settings},
        )
        self.mortal = Server(launcher, file, folder / "mortal.log")
        self.survivor = Server(launcher, file, folder / "survivor.log") if survives else None
        driver = "postgresql+psycopg" + url[url.index(":") :] if url else ""
        self._engine = create_engine(driver or f"sqlite:///{folder / 'data' / 'antiphon.db'}")

    @property
    def urls(self) -> list[str]:
        """Where clients may ask."""
        servers = [self.mortal, self.survivor] if self.survivor else [self.mortal]
        return [server.url for server in servers]

    async def up(self, plan: Plan, http: httpx.AsyncClient) -> None:
        """Have all servers running, and the mortal one about to die if it has a mark."""
        if self.survivor is not None and self.survivor._process is None:
            self.survivor.start()
            await self.survivor.ready(http)
        if plan.mark is None:
            self.mortal.start()
        else:
            self.mortal.start(plan.mark, int(plan.after))
        await self.mortal.ready(http)

    def snapshot(self) -> Snapshot:
        return snapshot(self._engine)

    async def settled(self) -> bool:
        """Wait until no response is active any more; False if that does not come."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while num_active(self._engine):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.05)
        return True

    def close(self) -> None:
        for server in (self.mortal, self.survivor):
            if server is not None and server._process is not None:
                server.process.kill()
        self._engine.dispose()


def client() -> httpx.AsyncClient:
    """What clients ask with."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits, timeout=20, trust_env=False)


async def run_round(
    site: Site, plan: Plan, *, num_readers: int, seed: int, background_in_four: int = 4
) -> Outcome:
    """Kill a server among clients, and look whether anything is wrong."""
    chance = random.Random(seed)
    outcome = Outcome(plan)
    async with client() as http:
        await site.up(plan, http)
        known = set(site.snapshot())
        readers = [
            Reader(
                http,
                lambda turn=number: site.urls[turn % len(site.urls) :] + site.urls,
                BRIEF[number % len(BRIEF)],
                f"{seed}-{number}" if chance.random() < 0.7 else "",
                # The others' events come straight from who makes them.
                background=number % 4 < background_in_four,
            )
            for number in range(num_readers)
        ]
        tasks = [asyncio.create_task(_run(reader, chance.random() / 4)) for reader in readers]
        reading = asyncio.gather(*tasks)
        outcome.reached = await _death(site.mortal.process, plan, reading)
        died_at = time.monotonic()
        deaths = [Death(site.mortal.process.pid, site.snapshot())]
        deaths += await _go_on(site, plan, http)
        _, stuck = await asyncio.wait({reading}, timeout=_PATIENCE_SECONDS)
        if stuck:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if not await site.settled():
            outcome.complaints.append("there are responses without an end")
        audit = _Audit(http, site, outcome, deaths, known)
        await audit.run(readers)
        for reader in readers:
            outcome.slowest_seconds = max(
                outcome.slowest_seconds, (reader.done_at or died_at) - died_at
            )
        site.mortal.process.kill()
    _read_logs(site, outcome)
    return outcome


async def _run(reader: Reader, delay: float) -> None:
    await asyncio.sleep(delay)
    await reader.run()


async def _death(process: Process, plan: Plan, reading: "asyncio.Future[Any]") -> bool:
    """Wait for the death of a server, or bring it about. Whether it came to its mark."""
    if plan.mark is None:
        await asyncio.sleep(plan.after)
        process.kill()
        return True
    until = time.monotonic() + _MARK_SECONDS
    while not process.ended and not reading.done() and time.monotonic() < until:
        await asyncio.sleep(0.002)
    reached = process.ended
    process.kill()
    return reached


async def _go_on(site: Site, plan: Plan, http: httpx.AsyncClient) -> list[Death]:
    """Let somebody be there who goes on, if nobody is. Who died in doing so."""
    deaths: list[Death] = []
    if site.survivor is not None:
        return deaths
    if plan.again is not None:
        site.mortal.start(plan.again)
        until = time.monotonic() + 3 * LEASE_SECONDS
        while not site.mortal.process.ended and time.monotonic() < until:
            await asyncio.sleep(0.01)
        site.mortal.process.kill()
        deaths.append(Death(site.mortal.process.pid, site.snapshot()))
    site.mortal.start()
    await site.mortal.ready(http)
    return deaths


def _read_logs(site: Site, outcome: Outcome) -> None:
    for server in (site.mortal, site.survivor):
        if server is not None:
            text = server.log.read_text()
            if "Traceback" in text:
                outcome.complaints.append(text[text.index("Traceback") - 300 :][:3000])
            server.log.write_text("")


class _Audit:
    """Compares what readers were told with what is stored."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        site: Site,
        outcome: Outcome,
        deaths: Sequence[Death],
        known: set[str],
    ) -> None:
        self._http = http
        self._url = (site.survivor or site.mortal).url
        self._outcome = outcome
        self._deaths = deaths
        self._after = {id: row for id, row in site.snapshot().items() if id not in known}

    async def run(self, readers: Sequence[Reader]) -> None:
        outcome = self._outcome
        outcome.num_accepted = len(self._after)
        logs = {}
        for id, row in self._after.items():
            logs[id] = await self._look_at(row)
        for reader in readers:
            outcome.complaints += reader.complaints
            outcome.num_resumed += reader.num_resumed
            outcome.num_lost += reader.lost
            outcome.num_events += len(reader.seen)
            if not reader.lost:
                self._compare(reader, logs)

    def _compare(self, reader: Reader, logs: dict[str, list[bytes]]) -> None:
        """What a reader was told, and what the log says."""
        if reader.done_at is None:
            self._wrong(reader.id, f"its client is stuck at number {max(reader.seen, default=-1)}")
        log = logs.get(reader.id or "")
        if log is None:
            self._wrong(reader.id, "was accepted and is not there")
            return
        for number, frame in reader.seen.items():
            if number >= len(log) or log[number] != frame:
                self._wrong(reader.id, f"its client got number {number}, which the log has not")
        if reader.done_at is not None and len(reader.seen) != len(log):
            self._wrong(reader.id, "its client did not get all of the log")

    async def _look_at(self, row: Row) -> list[bytes]:
        """Look at one response, as a client may. Its log."""
        path = f"{self._url}/v1/responses/{row.id}"
        answer = await self._http.get(path)
        if answer.status_code != 200:
            self._wrong(row.id, f"cannot be retrieved: {answer.text}")
            return []
        response = answer.json()
        streamed = await self._http.get(path, params={"stream": "true"})
        *frames, done = streamed.content.removesuffix(b"\n\n").split(b"\n\n")
        if done != b"data: [DONE]":
            self._wrong(row.id, f"its stream ends with {done.decode()}")
        items = (await self._http.get(f"{path}/input_items")).json()
        scene = items["data"][0]["content"][0]["text"]
        self._check_log(row, response, [orjson.loads(f.split(b"\ndata: ")[1]) for f in frames])
        self._check_fate(row, response, scene)
        return frames

    def _check_log(self, row: Row, response: dict[str, Any], events: list[dict[str, Any]]) -> None:
        if [event["sequence_number"] for event in events] != list(range(row.next_event)):
            self._wrong(row.id, "its log is not contiguous")
        kinds = [event["type"] for event in events]
        if [kind in _TERMINAL for kind in kinds] != [False] * (len(kinds) - 1) + [True]:
            self._wrong(row.id, f"its log has not one end: {kinds}")
        elif events[-1]["response"] != response:
            self._wrong(row.id, "its stored response is not that of its last event")
        if _output(response) != said(events):
            self._wrong(row.id, "its output is not what its events say")
        code = [event["code"] for event in events if event["type"] == "error"]
        if code != (["server_restarted"] if response["status"] == "failed" else []):
            self._wrong(row.id, f"has errors of {code} and is {response['status']}")

    def _check_fate(self, row: Row, response: dict[str, Any], scene: str) -> None:
        """Whether it ended as it must, as far as it was when the server died."""
        output, status = _output(response), response["status"]
        # What two executions have written is no beginning of what one says.
        fits = output == whole(scene) if status == "completed" else whole(scene).startswith(output)
        if not fits or status not in ("completed", "failed"):
            self._wrong(row.id, f"is {status} with {output!r}")
        old = self._deaths[-1].stored.get(row.id)
        if old is None:
            expected = "completed"
        elif not old.active:
            expected = old.status
            self._outcome.num_ended_before += 1
        elif old.worker is not None and not any(
            old.is_made_by(death.pid) for death in self._deaths
        ):
            expected = "completed"
            if status == "failed":
                self._outcome.num_taken_from_living += 1
                expected = status
        elif old.published:
            expected = "failed"
            self._outcome.num_failed += 1
        else:
            expected = "completed"
            self._outcome.num_made_again += 1
        if status != expected:
            self._wrong(row.id, f"is {status}, and should be {expected}")
        for death in self._deaths:
            then = death.stored.get(row.id)
            if then is not None and row.frames[: len(then.frames)] != then.frames:
                self._wrong(row.id, "its log is not what it was when the server died")

    def _wrong(self, id: str | None, what: str) -> None:
        self._outcome.complaints.append(f"{id}: {what}")


def _output(response: dict[str, Any]) -> str:
    """All that the model said in a response."""
    return "".join(
        item["arguments"]
        if item["type"] == "function_call"
        else "".join(part["text"] for part in item["content"])
        for item in response["output"]
    )
