"""Runs the steps of one case."""

import base64
import itertools
import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from responses_conformance.cases import Case, behaviours
from responses_conformance.config import Config
from responses_conformance.exchange import Client, Exchange, Leave, OutOfTime, Request
from responses_conformance.findings import difference
from responses_conformance.judging import Judge, Seen
from responses_conformance.results import Ledger
from responses_conformance.rules.bodies import judge_resumed, judge_retrieved
from responses_conformance.sockets import Socket, UpgradeRefused
from responses_conformance.values import filled, mistakes, told

_MODEL_PATHS = ("/responses", "/responses/input_tokens", "/responses/compact")
_POLL_SECONDS = 0.1


class PremiseFailed(Exception):
    """The model did not do what the case is about."""


@dataclass
class Player:
    """Plays the steps of one case. `scope` is what its templates see: the answers of named steps
    (of a stream, its response), whole streams in `events`, the prompts and the configuration."""

    case: Case
    client: Client
    config: Config
    judge: Judge
    ledger: Ledger
    scope: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scope |= {
            "model": self.config.model,
            "window": self.config.context_window,
            "prompt": {name: entry.prompt for name, entry in behaviours().items()},
            "events": {},
            "headers": {},
        }

    def play(self) -> None:
        """Play all steps. Raises `PremiseFailed`, and what `values` and `exchange` raise."""
        for step in self.case.steps:
            self._step(step)

    def _step(self, step: Mapping[str, Any]) -> None:
        each = step.get("each")
        if not each:
            self._once(step)
            return
        names = list(each)
        for values in itertools.product(*(each[name] for name in names)):
            chosen = dict(zip(names, values, strict=True))
            self.scope |= {name: filled(value, self.scope) for name, value in chosen.items()}
            before = len(self.wrong)
            self._once({key: value for key, value in step.items() if key != "each"})
            label = ", ".join(f"{name} {json.dumps(value)[:80]}" for name, value in chosen.items())
            self.wrong[before:] = [f"with {label}: {reason}" for reason in self.wrong[before:]]

    def _once(self, step: Mapping[str, Any]) -> None:
        if "steps" in step:
            for inner in step["steps"]:
                self._step(inner)
        elif "parallel" in step:
            with ThreadPoolExecutor(len(step["parallel"])) as pool:
                list(pool.map(self._step, step["parallel"]))
        elif "compare" in step:
            self._compare(step)
        elif "assert" in step:
            wanted = filled(step["assert"], self.scope)
            self.wrong += mistakes(self.scope, wanted)
        elif "poll" in step:
            self._poll(step)
        elif "cancel_all" in step:
            self._cancel_all(step)
        elif "socket" in step:
            self._socket(step)
        else:
            for _ in range(step.get("repeat", 1)):
                self._request(step)

    def _compare(self, step: Mapping[str, Any]) -> None:
        left, right = (
            _without(
                filled(f"{{{{{side}}}}}" if isinstance(side, str) else side, self.scope),
                step.get("without", ()),
            )
            for side in step["compare"]
        )
        found = difference(left, right)
        if found:
            first, second = step["compare"]
            self.wrong.append(f"{first} and {second} differ: {found}")

    def _poll(self, step: Mapping[str, Any]) -> None:
        deadline = time.monotonic() + step.get("within", 30)
        request = self._made({**step, "request": step["poll"]})
        statuses: list[Any] = []
        while True:
            seen = self._sent(request, step)
            status = seen.body.get("status") if isinstance(seen.body, dict) else None
            if status is not None and status not in statuses[-1:]:
                statuses.append(status)
            if not mistakes(seen.body, filled(step["until"], self.scope)):
                break
            if time.monotonic() > deadline:
                reasons = "; ".join(mistakes(seen.body, filled(step["until"], self.scope)))
                self.wrong.append(f"{request.path} after {step.get('within', 30)} s: {reasons}")
                break
            time.sleep(_POLL_SECONDS)
        self._expect(step, seen)
        if "name" in step:
            self.scope["events"][step["name"]] = {"statuses": statuses}

    def _cancel_all(self, step: Mapping[str, Any]) -> None:
        """Cancel what earlier steps began, as far as they began anything."""
        for name in step["cancel_all"]:
            identity = (self.scope.get(name) or {}).get("id")
            if isinstance(identity, str):
                path = f"/responses/{identity}/cancel"
                self._sent(Request("POST", path, key=self.config.api_key), {})

    def _request(self, step: Mapping[str, Any]) -> None:
        request = self._made(step)
        seen = self._sent(request, step)
        self._expect(step, seen)
        if seen.exchange.status < 400 and not seen.exchange.left and request.method == "POST":
            self._again(request, seen)

    def _made(self, step: Mapping[str, Any]) -> Request:
        method, _, path = filled(step["request"], self.scope).partition(" ")
        content = b""
        if "raw" in step:
            content = filled(step["raw"], self.scope).encode("utf-8", "surrogatepass")
        elif "base64" in step:
            content = base64.b64decode(step["base64"])
        elif "body" in step:
            body = step["body"]
            if isinstance(body, dict) and path in _MODEL_PATHS:
                body = {"model": self.config.model, **body}
            body = filled(body, self.scope)
            if isinstance(body, dict) and path in _MODEL_PATHS:
                if path == "/responses" and self.config.max_output_tokens is not None:
                    body.setdefault("max_output_tokens", self.config.max_output_tokens)
            content = json.dumps(body).encode()
        leave = filled(step.get("leave_after"), self.scope)
        return Request(
            method,
            path,
            content,
            filled(step.get("headers", {}), self.scope),
            filled(step.get("query", {}), self.scope),
            self._key(step),
            Leave(**leave) if leave else None,
        )

    def _key(self, step: Mapping[str, Any]) -> str | None:
        keys = {
            "second": self.config.second_api_key,
            "nobody": None,
            "stranger": "sk-this-key-is-not-known",
        }
        return keys.get(step.get("as", ""), self.config.api_key)

    def _socket(self, step: Mapping[str, Any]) -> None:
        path = filled(step["socket"], self.scope)
        wanted = step.get("expect", {}).get("status", 101)
        try:
            socket = Socket(
                self.config.base_url, path, key=self._key(step), timeout=self.config.timeout
            )
        except UpgradeRefused as refused:
            seen = self._told(refused.exchange, step)
            self._expect({"expect": {**step.get("expect", {}), "status": wanted}}, seen)
            return
        with socket:
            if not _status_fits(101, wanted):
                self.wrong.append(f"the socket {path} is opened (required: {wanted})")
            for turn in step.get("turns", ()):
                seen = self._told(socket.turn(self._message(turn)), turn)
                self._expect(turn, seen)

    def _message(self, turn: Mapping[str, Any]) -> str:
        if "raw" in turn:
            return str(filled(turn["raw"], self.scope))
        message = {"type": "response.create", "model": self.config.model}
        return json.dumps(message | filled(turn["send"], self.scope))

    def _sent(self, request: Request, step: Mapping[str, Any]) -> Seen:
        return self._told(self.client.send(request), step)

    def _told(self, exchange: Exchange, step: Mapping[str, Any]) -> Seen:
        """Judge what came back, and keep it under the step's name."""
        exchange = replace(exchange, case=self.case.id, step=str(step.get("name", "")))
        self.exchanges.append(exchange)
        seen = self.judge.judge(exchange)
        self.ledger.note(exchange, seen.checked, seen.findings)
        self._count(seen)
        if "name" in step:
            name = step["name"]
            self.scope[name] = seen.response
            self.scope["headers"][name] = dict(exchange.headers)
            if seen.stream is not None:
                self.scope["events"][name] = seen.body
        self._in_time(exchange)
        return seen

    def _in_time(self, exchange: Exchange) -> None:
        if exchange.out_of_time:
            asked = f"{exchange.method} {exchange.path}"
            raise OutOfTime(asked, self.config.timeout, "the answer did not end")

    def _count(self, seen: Seen) -> None:
        """Rules that the case names count for its verdict. What breaks a rule in one place often
        does so in every event, so it is told once for an exchange."""
        for rule in self.case.rules:
            found = [finding for finding in seen.findings if finding.rule == rule]
            if found:
                more = f", and in {len(found) - 1} more places" if len(found) > 1 else ""
                self.wrong.append(f"{rule} at {found[0].where}: {found[0].seen}{more}")

    def _expect(self, step: Mapping[str, Any], seen: Seen) -> None:
        expected = step.get("expect", {})
        status = seen.exchange.status
        wanted = expected.get("status", 200)
        label = f"{seen.exchange.method} {seen.exchange.path.partition('?')[0]}"
        if not _status_fits(status, wanted):
            error = seen.body.get("error") if isinstance(seen.body, dict) else None
            said = f": {json.dumps(error)[:300]}" if error else ""
            self.wrong.append(f"{label} is answered with {status}{said} (required: {wanted})")
            return
        unreadable = _unreadable(seen, step)
        if unreadable:
            self.wrong.append(f"{label}: {unreadable}")
            return
        if "premise" in step:
            unmet = self._held(step["premise"], seen)
            if unmet:
                raise PremiseFailed("; ".join(unmet))
        self.wrong += [f"{label}: {reason}" for reason in self._held(expected, seen)]

    def _held(self, expected: Mapping[str, Any], seen: Seen) -> list[str]:
        wrong: list[str] = []
        headers = dict(seen.exchange.headers)
        for name, wanted in filled(expected.get("headers", {}), self.scope).items():
            found = mistakes({"it": headers[name]} if name in headers else {}, {"it": wanted})
            if found:
                wrong.append(
                    f"the header {name} is {headers.get(name, 'missing')} (required: "
                    f"{told(wanted)})"
                )
        for part, value in (
            ("body", seen.body),
            ("response", seen.response if seen.exchange.status < 400 else None),
            ("stream", seen.body if seen.stream is not None else None),
        ):
            # What is asked for both ways has one expectation for both.
            if part in expected and (part != "stream" or seen.stream is not None):
                wrong += mistakes(value, filled(expected[part], self.scope))
        if "error" in expected:
            error = seen.body.get("error") if isinstance(seen.body, dict) else None
            wrong += mistakes(error, filled(expected["error"], self.scope))
        if "raw" in expected:
            text = seen.exchange.content.decode("utf-8", "replace")
            wrong += mistakes({"the text": text}, {"the text": filled(expected["raw"], self.scope)})
        return wrong

    def _again(self, request: Request, seen: Seen) -> None:
        """Ask again for a response that was stored, and hold it against what was told before."""
        response = seen.response
        if (
            "stored" not in self.config.profiles
            or request.path != "/responses"
            or not isinstance(response, dict)
            or response.get("store") is not True
            or response.get("status") not in ("completed", "incomplete", "failed")
            or not isinstance(response.get("id"), str)
        ):
            return
        path = f"/responses/{response['id']}"
        get = self.client.send(Request("GET", path, key=request.key))
        get = replace(get, case=self.case.id, step="retrieved")
        self.exchanges.append(get)
        again = self.judge.judge(get)
        if not get.left:
            again.checked.add("FOLD-3")
            judge_retrieved(again.body, response, f"GET {path}", again.findings)
        self.ledger.note(get, again.checked, again.findings)
        self._count(again)
        self._in_time(get)
        if seen.stream is not None and (
            response.get("background") is True or "exact" in self.config.profiles
        ):
            self._resumed(path, request, seen)

    def _resumed(self, path: str, request: Request, seen: Seen) -> None:
        assert seen.stream is not None
        events = tuple(frame.data for frame in seen.stream.frames)
        after = len(events) // 2
        query = {"stream": "true", "starting_after": str(after)}
        exchange = self.client.send(Request("GET", path, query=query, key=request.key))
        exchange = replace(exchange, case=self.case.id, step="resumed")
        self.exchanges.append(exchange)
        resumed = self.judge.judge(exchange)
        if resumed.stream is not None and not exchange.left:
            resumed.checked.add("FOLD-4")
            told = tuple(frame.data for frame in resumed.stream.frames)
            judge_resumed(events, told, after, resumed.findings)
        self.ledger.note(exchange, resumed.checked, resumed.findings)
        self._count(resumed)
        self._in_time(exchange)


def _unreadable(seen: Seen, step: Mapping[str, Any]) -> str | None:
    """Why nothing can be said of an answer that should tell something, if so."""
    exchange = seen.exchange
    if exchange.status >= 400 or exchange.left or exchange.streamed:
        return None
    what = "stream" if exchange.asked_stream else "JSON"
    if exchange.asked_stream or ("premise" in step and seen.body is None):
        return f"the answer is no {what}, but {exchange.media or 'of no type'}"
    return None


def _status_fits(status: int, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_status_fits(status, entry) for entry in wanted)
    if isinstance(wanted, str):
        return bool(re.fullmatch(wanted.replace("x", r"\d"), str(status)))
    return bool(status == wanted)


def _without(value: Any, names: Any) -> Any:
    if isinstance(value, list):
        return [_without(entry, names) for entry in value]
    if isinstance(value, dict):
        return {k: _without(v, names) for k, v in value.items() if k not in names}
    return value
