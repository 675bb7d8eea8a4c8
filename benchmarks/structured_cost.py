"""What holding answers to a form costs: throughput, the first token, and the event loop."""

import asyncio
import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import httpx
from common import serving
from figure import Figure
from loads import prompt
from loop_watch import LoopWatch
from state_common import stored_app
from structured_hostile import Hostile, hostile

from antiphon.models.base import Model
from antiphon.models.build import build_models
from antiphon.server import keep_loop_responsive
from antiphon.settings import Settings
from antiphon.turn import AnswerFormat, CallArguments, Message, Sampling, TextDelta, Turn

_STREAMS = 16
_TOKENS = 160
_ROUNDS = 7
_FIRST_TOKENS = 15
_PROPERTIES = 50
_TEXT = {"type": "string"}


def cost() -> Iterator[Figure]:
    """Everything, each beside the same without a form."""
    yield from _throughput()
    longest, waiting = multiprocessing.Value("d", 0.0), multiprocessing.Value("d", 0.0)
    with (
        serving(_app, longest, waiting) as peer,
        httpx.Client(base_url=peer.base_url, timeout=300) as http,
    ):
        yield _first_token(http)
        yield from _stalls(http, longest, waiting)


# --- throughput ---

#: Forms of which as good as nothing is decided by the form itself, and of which much is.
_FORMS = {
    "a long string": {
        "type": "object",
        "properties": {"story": {"type": "string", "minLength": 5000}},
        "required": ["story"],
        "additionalProperties": False,
    },
    "records": {
        "type": "object",
        "properties": {
            "people": {
                "type": "array",
                "minItems": 100,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 30},
                        "age": {"type": "integer", "minimum": 0, "maximum": 120},
                        "city": {"type": "string", "pattern": "^[A-Z][a-z]{2,15}$"},
                        "mood": {"enum": ["glad", "sad", "angry", "tired"]},
                        "born": {"type": "string", "format": "date"},
                    },
                    "required": ["name", "age", "city", "mood", "born"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["people"],
        "additionalProperties": False,
    },
}


def _throughput() -> Iterator[Figure]:
    [model] = build_models(Settings(), lambda step, done, size: None)
    keep_loop_responsive()
    rates = asyncio.run(_all_rates(model))
    free = statistics.median(rates["free"])
    yield Figure(f"{_STREAMS} streams of any text", free, "tok/s")
    for name in _FORMS:
        yield Figure(f"{_STREAMS} streams of {name}", statistics.median(rates[name]), "tok/s")
        pairs = zip(rates[name], rates["free"], strict=True)
        lost = statistics.median(100 * (1 - held / plain) for held, plain in pairs)
        yield Figure("  lost", lost, "%", 10)


async def _all_rates(model: Model) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in ("free", *_FORMS)}
    forms = [(name, AnswerFormat(schema, strict=True)) for name, schema in _FORMS.items()]
    kinds: list[tuple[str, AnswerFormat | None]] = [("free", None), *forms]
    for number in range(-1, _ROUNDS):
        # In an order that turns, as the machine's speed drifts.
        for name, answer in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            rate = await _rate(model, answer, number)
            if number >= 0:  # The first round is for warming up.
                rates[name].append(rate)
    await model.close()
    return rates


async def _rate(model: Model, answer: AnswerFormat | None, number: int) -> float:
    """Tokens a second of all streams together, while every one of them is decoding."""
    source = random.Random(number)
    streams = await asyncio.gather(
        *(_stream(model, answer, prompt(source), place) for place in range(_STREAMS))
    )
    begin, end = max(one[0][0] for one in streams), min(one[-1][0] for one in streams)
    made = sum(_made_by(one, end) - _made_by(one, begin) for one in streams)
    return made / (end - begin)


def _made_by(marks: list[tuple[float, int]], moment: float) -> int:
    return max((made for clock, made in marks if clock <= moment), default=0)


async def _stream(
    model: Model, answer: AnswerFormat | None, text: str, seed: int
) -> list[tuple[float, int]]:
    """When a stream had made how many tokens."""
    turn = Turn(
        (Message("user", text),),
        # None may end before the others.
        sampling=Sampling(temperature=1.0, seed=seed, bias=((_END_TOKEN, -100.0),)),
        max_output_tokens=_TOKENS,
        answer=answer,
    )
    generation = await model.prepare(turn)
    marks = []
    async for delta in generation.deltas():
        if isinstance(delta, TextDelta | CallArguments):
            marks.append((time.perf_counter(), generation.usage.output_tokens))
    return marks


_END_TOKEN = 2  # SmolLM2's <|im_end|>.


# --- the server ---


def _app(longest: "Synchronized[float]", waiting: "Synchronized[float]") -> Any:
    settings = Settings(
        state="memory", max_schema_bytes=2**20, max_schema_properties=5000, max_running=17
    )
    models = build_models(settings, lambda step, done, size: None)
    return LoopWatch(stored_app(settings, models), longest, waiting)


def _body(**more: Any) -> dict[str, Any]:
    common = {"input": "Tell of a house.", "store": False, "stream": True, "max_output_tokens": 16}
    return {**common, **more}


# --- the first token ---


def _first_token(http: httpx.Client) -> Figure:
    """What a schema that was never seen before adds to the time to the first text."""
    delays = []
    for number in range(-2, _FIRST_TOKENS):
        names = [f"property_{number}_{place}" for place in range(_PROPERTIES)]
        schema = {
            "type": "object",
            "properties": dict.fromkeys(names, _TEXT),
            "required": names,
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
        plain = _time_to_text(http, _body())
        held = _time_to_text(http, _body(text={"format": wanted}))
        if number >= 0:
            delays.append(1000 * (held - plain))
    title = f"first token later, new schema of {_PROPERTIES} properties"
    return Figure(title, statistics.median(delays), "ms", 30)


def _time_to_text(http: httpx.Client, body: dict[str, Any]) -> float:
    sent = time.perf_counter()
    first = None
    with http.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if first is None and "response.output_text.delta" in line:
                first = time.perf_counter()
    assert first is not None
    return first - sent


# --- stalls ---


def _stalls(
    http: httpx.Client, longest: "Synchronized[float]", waiting: "Synchronized[float]"
) -> Iterator[Figure]:
    """The loop's longest stall while streams are read, alone and beside each hostile request."""
    stop = threading.Event()
    streams = [threading.Thread(target=_keep_streaming, args=(http, stop)) for _ in range(8)]
    for stream in streams:
        stream.start()
    time.sleep(3)
    worst = 0.0
    calm = Hostile("nothing beside the streams", {})
    try:
        for one in [calm, *hostile()]:
            longest.value = waiting.value = 0.0
            began = time.perf_counter()
            told = ""
            if one.body:
                told = _answer(http, one)
            else:
                time.sleep(5)
            seconds = time.perf_counter() - began
            time.sleep(0.2)
            stall, delayed = 1000 * longest.value, 1000 * waiting.value
            worst = max(worst, stall)
            print(
                f"    {one.name:<36} {seconds:6.2f} s  stall {stall:6.1f} ms, of which"
                f" {delayed:5.1f} without a processor  {told}"
            )
    finally:
        stop.set()
        for stream in streams:
            stream.join()
    yield Figure("longest stall of the event loop", worst, "ms", 25)


def _answer(http: httpx.Client, one: Hostile) -> str:
    answer = http.post("/v1/responses", json={**_body(**one.body), "stream": False})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        return str(answer.json()["status"])
    return str(answer.json()["error"]["message"])[:90]


def _keep_streaming(http: httpx.Client, stop: threading.Event) -> None:
    body = _body(input="Write a long story.", temperature=1, max_output_tokens=2000)
    while not stop.is_set():
        with http.stream("POST", "/v1/responses", json=body) as answer:
            for _ in answer.iter_raw():
                if stop.is_set():
                    return
