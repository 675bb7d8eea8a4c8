"""Strict answers of the embedded model to many schemas, judged by another library."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import regex
import regress
from common import serving
from figure import Figure
from state_common import stored_app
from structured_models import made
from structured_suite import NamedSchema, fetch, load

from antiphon.models.build import build_models
from antiphon.settings import Settings

_MODELS = 150
_AT_ONCE = 16
_TOKENS = 1024
_TIMEOUT_SECONDS = 1800
_INPUT = (
    "Make up one example and give it as JSON. Keep it very short: a word or a number is enough "
    "for each value, and lists have one or two of them."
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a schema: `state` is `completed`, `incomplete`, `refused` or what else."""

    schema: NamedSchema
    state: str
    told: str = ""
    tokens: int = 0
    wrong: str | None = None


def schemas(suite: Path | None, out: Path | None) -> Iterator[Figure]:
    """What is accepted, completed and valid; each outcome as a line of JSON goes into `out`."""
    settings = Settings()
    folder = suite or fetch(settings.cache_dir / "benchmarks" / "schemas")
    asked = {"suite": list(load(folder)), "pydantic": made(_MODELS)}
    with serving(_app) as peer:
        everything = [one for schemas in asked.values() for one in schemas]
        # In another order than by kind, so that one kind alone never fills a step.
        random.Random(1).shuffle(everything)
        outcomes = asyncio.run(_ask_all(peer.base_url, everything))
    if out is not None:
        _write(out, outcomes)
    by_schema = {id(outcome.schema): outcome for outcome in outcomes}
    accepted: list[Outcome] = []
    for kind, least in (("suite", 45), ("pydantic", 100)):
        these = [by_schema[id(one)] for one in asked[kind]]
        taken = [one for one in these if one.state != "refused"]
        accepted += taken
        share = 100 * len(taken) / len(these)
        yield Figure(f"{kind}: accepted of {len(these)}", share, "%", least, at_least=True)
    completed = [one for one in accepted if one.state == "completed"]
    share = 100 * len(completed) / len(accepted)
    yield Figure(f"completed within {_TOKENS} tokens", share, "%", 90, at_least=True)
    right = sum(one.wrong is None for one in completed)
    title = f"valid of {len(completed)} completed"
    yield Figure(title, 100 * right / len(completed), "%", 100, at_least=True)
    refused = [one for one in outcomes if one.state == "refused"]
    unnamed = sum(not _names_keyword(one) for one in refused)
    yield Figure(f"refused without naming a keyword, of {len(refused)}", unnamed, "", 0)
    others = Counter(one.state for one in accepted) - Counter(completed=len(completed))
    others.pop("incomplete", None)
    yield Figure(f"anything else {dict(others) or ''}", others.total(), "", 0)


def _app() -> Any:
    settings = Settings(state="memory")
    return stored_app(settings, build_models(settings, lambda step, done, size: None))


async def _ask_all(base_url: str, asked: Sequence[NamedSchema]) -> list[Outcome]:
    places = asyncio.Semaphore(_AT_ONCE)
    async with httpx.AsyncClient(base_url=base_url, timeout=_TIMEOUT_SECONDS) as http:

        async def one(schema: NamedSchema) -> Outcome:
            async with places:
                return await _ask(http, schema)

        return await asyncio.gather(*map(one, asked))


async def _ask(http: httpx.AsyncClient, asked: NamedSchema) -> Outcome:
    body = {
        "input": _INPUT,
        "temperature": 1,
        "max_output_tokens": _TOKENS,
        "store": False,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "example",
                "strict": True,
                "schema": asked.schema,
            }
        },
    }
    answer = await http.post("/v1/responses", json=body)
    said = answer.json()
    if answer.status_code == 400:
        error = said["error"]
        state = "refused" if error["code"] == "invalid_json_schema" else f"400 {error['code']}"
        return Outcome(asked, state, error["message"])
    if answer.status_code != 200:
        return Outcome(asked, f"status {answer.status_code}", answer.text)
    tokens = said["usage"]["output_tokens"]
    text = "".join(
        part["text"] for item in said["output"] for part in item.get("content") or () if part
    )
    if said["status"] != "completed":
        told = text if said["status"] == "incomplete" else str(said["error"])
        return Outcome(asked, said["status"], told, tokens)
    return Outcome(asked, "completed", text, tokens, _wrong(text, asked.schema))


# The judge's own patterns are Python's; these are ECMA's.


def _found(pattern: str, text: str) -> bool:
    try:
        return regress.Regex(pattern, "u").find(text) is not None
    except regress.RegressError:  # What ECMA does not have, such as `\p{digit}`.
        return regex.search(pattern, text) is not None


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    judge: Any, patterns: dict[str, Any], instance: Any, _: Any
) -> Iterator[Any]:
    for pattern, schema in patterns.items():
        for key, value in instance.items() if isinstance(instance, dict) else ():
            if _found(pattern, key):
                yield from judge.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(judge: Any, more: Any, instance: Any, schema: Any) -> Iterator[Any]:
    for key, value in instance.items() if isinstance(instance, dict) else ():
        matches = any(_found(pattern, key) for pattern in schema.get("patternProperties", ()))
        if key not in schema.get("properties", ()) and not matches:
            yield from judge.descend(value, more, path=key)


def _is_integer(_: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


_DRAFT: Any = jsonschema.Draft202012Validator
#: Numbers are decimal fractions, as they are written.
_JUDGE: Any = jsonschema.validators.extend(
    _DRAFT,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
    type_checker=_DRAFT.TYPE_CHECKER.redefine("integer", _is_integer),
)


def _wrong(text: str, schema: dict[str, Any]) -> str | None:
    try:
        exact = json.loads(json.dumps(schema), parse_float=Decimal)
        value = json.loads(text, parse_float=Decimal)
        _JUDGE(exact, format_checker=_DRAFT.FORMAT_CHECKER).validate(value)
    except Exception as error:  # Also what the judge itself cannot do.
        return repr(error)[:500]
    return None


def _names_keyword(outcome: Outcome) -> bool:
    return any(f"'{keyword}'" in outcome.told for keyword in _keywords(outcome.schema.schema))


def _keywords(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_keywords, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(_keywords, value.values()))


def _write(path: Path, outcomes: Sequence[Outcome]) -> None:
    with path.open("w") as file:
        for one in outcomes:
            told = {"name": one.schema.name, "state": one.state, "tokens": one.tokens}
            told |= {"wrong": one.wrong, "told": one.told, "schema": one.schema.schema}
            file.write(json.dumps(told, ensure_ascii=False) + "\n")
