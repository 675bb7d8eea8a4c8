"""What fuzzing found, as cases that can be run again."""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from responses_conformance.exchange import Exchange
from responses_conformance.findings import cut
from responses_conformance.rules.catalogue import rules
from responses_conformance.texts import parsed

#: The checks that a job runs, and what each requires.
CHECKS = {
    "no_server_error": "A server MUST NOT answer any request with a 5xx.",
    "rules_hold": "All rules of the suite MUST hold in every answer.",
    "param_exists": "What an error names as `param` MUST be a place in the request.",
    "frames_fit_content_schema": "Every frame MUST fit the schema of its content.",
    "status_code_conformance": "An answer MUST have a status that the document knows.",
    "content_type_conformance": "An answer MUST have a content type that the document knows.",
    "response_headers_conformance": "An answer MUST have the headers that the document requires.",
    "response_schema_conformance": "An answer MUST be as the document says.",
    "negative_data_rejection": "A request that the document does not allow MUST be refused.",
}
_RULE = re.compile(r"\b([A-Z]+-\d+) at ")
_WORD = re.compile(r"\w{6,}")
_ANSWERED = ["2xx", "3xx", "4xx"]
#: What every client sends of its own.
_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "host",
        "user-agent",
        "x-api-key",
        "x-schemathesis-testcaseid",
    }
)


@dataclass(frozen=True, slots=True)
class Found:
    """A check that failed: what was said of it, and the exchanges that lead to it, itself last."""

    check: str
    message: str
    exchanges: tuple[Exchange, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it the same as another: the operation, the check, and the rules broken."""
        last = self.exchanges[-1]
        path = re.sub(r"\w*\d\w*", "", last.path.partition("?")[0])
        broken = _RULE.findall(self.message) if self.check == "rules_hold" else ()
        return (last.method, path, self.check, *sorted(set(broken)))

    @property
    def size(self) -> tuple[int, int, bytes]:
        """How small it is: the requests, then their bytes; what they are decides between two."""
        asked = b"".join(e.path.encode() + e.request for e in self.exchanges)
        return len(self.exchanges), len(asked), asked


class Made:
    """Remembers which request made what, of the latest so many things."""

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._by_id: dict[str, Exchange] = {}

    def add(self, exchange: Exchange) -> None:
        """Take in an exchange, which may have made something."""
        if exchange.method != "POST" or exchange.status >= 300:
            return
        for identity in ids_of(exchange):
            self._by_id.setdefault(identity, exchange)
            if len(self._by_id) > self._most:
                del self._by_id[next(iter(self._by_id))]

    def before(self, exchanges: tuple[Exchange, ...]) -> tuple[Exchange, ...]:
        """The exchanges, and before each those that made what it names."""
        known: set[str] = set()
        all_of_them: list[Exchange] = []
        for exchange in exchanges:
            self._lead_to(exchange, known, all_of_them)
            all_of_them.append(exchange)
            known.update(ids_of(exchange))
        return tuple(all_of_them)

    def _lead_to(self, exchange: Exchange, known: set[str], before: list[Exchange]) -> None:
        text = exchange.path + exchange.request.decode("utf-8", "replace")
        for word in dict.fromkeys(_WORD.findall(text)):
            maker = self._by_id.get(word)
            if maker is None or word in known:
                continue
            known.update(ids_of(maker))
            self._lead_to(maker, known, before)
            before.append(maker)


class Smallest:
    """Keeps the smallest of all that is found of each kind."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Found] = {}

    def add(self, found: Found) -> None:
        """Take in something found."""
        known = self._found.get(found.key)
        if known is None or found.size < known.size:
            self._found[found.key] = found

    def __iter__(self) -> Any:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def write(found: Iterable[Found], file: Path, *, phase: str, seed: int, base_path: str) -> None:
    """Write what was found as a file of cases. `base_path` is the path of the base URL."""
    cases = [
        case(one, f"FOUND-{phase.upper()}-{number}", phase, seed, base_path)
        for number, one in enumerate(found, 1)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(cases, sort_keys=False, allow_unicode=True, width=110)
    file.write_text(text, encoding="utf-8")


def case(found: Found, identity: str, phase: str, seed: int, base_path: str) -> dict[str, Any]:
    """What was found as a case, as its YAML says it."""
    last = found.exchanges[-1]
    path = _within(last.path, base_path).partition("?")[0]
    expected, broken = _expectations(found)
    exact = any(rules()[name].level == "exact" for name in broken)
    said = cut(" ".join(found.message.split()))
    return {
        "id": identity,
        "title": f"{last.method} {path}: {found.check.replace('_', ' ')}",
        "requirement": CHECKS.get(found.check, f"The check {found.check} MUST hold."),
        "source": [f"found by fuzzing, phase {phase}, seed {seed}: {said}"],
        "profile": "exact" if exact else "core",
        **({"rules": broken} if broken else {}),
        "steps": _steps(found.exchanges, expected, base_path),
    }


def _steps(
    exchanges: tuple[Exchange, ...], expected: dict[str, Any], base_path: str
) -> list[dict[str, Any]]:
    """The steps. An id that an earlier answer told is taken from that answer again."""
    steps = []
    holes: dict[str, str] = {}
    for number, exchange in enumerate(exchanges, 1):
        path = _within(exchange.path, base_path)
        step: dict[str, Any] = {"request": f"{exchange.method} {_filled(path, holes)}"}
        step |= _body(exchange.request, holes)
        headers = {k: v for k, v in exchange.request_headers.items() if k not in _OWN_HEADERS}
        if headers.get("content-type") == "application/json":
            del headers["content-type"]  # It is sent anyway.
        if headers:
            step["headers"] = headers
        if number < len(exchanges):
            step["name"] = f"step{number}"
            step["expect"] = {"status": exchange.status}
            for identity, place in ids_of(exchange).items():
                holes.setdefault(identity, "{{" + f"step{number}.{place}" + "}}")
        else:
            step["expect"] = expected
        steps.append(step)
    return steps


def ids_of(exchange: Exchange) -> dict[str, str]:
    """The ids of what an answer tells of, and where they stand in it."""
    try:
        body = parsed(exchange.content)
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    told: dict[str, Any] = {"id": body}
    for name in ("data", "output"):
        if isinstance(body.get(name), list):
            told |= {f"{name}[{number}].id": entry for number, entry in enumerate(body[name])}
    return {
        entry["id"]: place
        for place, entry in told.items()
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry["id"]
    }


def _body(content: bytes, holes: Mapping[str, str]) -> dict[str, str]:
    """A body as it was, which is as base64 where a case could not say it as a text."""
    if not content:
        return {}
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "{{"
    if "{{" in text:
        return {"base64": base64.b64encode(content).decode("ascii")}
    return {"raw": _filled(text, holes)}


def _filled(text: str, holes: Mapping[str, str]) -> str:
    for identity, hole in holes.items():
        text = text.replace(identity, hole)
    return text


def _within(path: str, base_path: str) -> str:
    return path.removeprefix(base_path.rstrip("/"))


def _expectations(found: Found) -> tuple[dict[str, Any], list[str]]:
    """What the case expects of the last answer, and the rules that count for it."""
    last = found.exchanges[-1]
    answered = {"status": [*_ANSWERED, 503, 504]}
    match found.check:
        case "negative_data_rejection":
            return {"status": "4xx"}, []
        case "rules_hold":
            broken = list(dict.fromkeys(_RULE.findall(found.message)))
            return {"status": [*_ANSWERED, "5xx"]}, broken
        case "frames_fit_content_schema":
            return answered, ["SHAPE-1", "SHAPE-2"]
        case "response_schema_conformance" | "response_headers_conformance":
            return answered, ["SHAPE-1", "SHAPE-2", "SHAPE-3"]
        case "param_exists":
            error = _told(last, "error")
            param = error.get("param") if isinstance(error, dict) else None
            return {"status": "4xx", "error": {"param": {"$not": param}}}, []
        case "content_type_conformance":
            seen = last.headers.get("content-type", "")
            return {**answered, "headers": {"content-type": {"$not": seen}}}, []
        case "status_code_conformance":
            others = [f"{n}xx" for n in (2, 3, 4) if n != last.status // 100]
            return {"status": others}, []
    return answered, []


def _told(exchange: Exchange, name: str) -> Any:
    try:
        body = parsed(exchange.content)
    except ValueError:
        return None
    return body.get(name) if isinstance(body, dict) else None
