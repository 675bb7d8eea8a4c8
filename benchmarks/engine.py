"""The engine without HTTP: its speed, its share of the memory's, and what HTTP costs.

    python benchmarks/engine.py [--rounds 5] [--json FILE]

Measures the embedded model in this process, and in the same rounds the memory's speed, as that
drifts. Decoding one stream reads every weight and the stream's K/V once a token, so the memory
bounds it; limit: at least 65 % of that bound. Nothing is guessed ahead here, as a guess that holds
makes tokens without reading anything. Then asks the same of a server of its own: what 16
streams lose on the way from the core to an HTTP client; limit: 8 %.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from client import Answer, Asker, RequestFailed, connected
from loads import CoreLoad, decode, long, short, sixteen
from peers import Running, antiphon, running, stop_servers_when_told_to_end
from report import Metric, markdown, shown

from antiphon.engine.checkpoints.gguf import GGUFFile
from antiphon.models import embedded
from antiphon.models.base import Model
from antiphon.models.build import build_models
from antiphon.server import keep_loop_responsive
from antiphon.settings import Settings
from antiphon.turn import Message, Sampling, TextDelta, Turn

_READ_BYTES = 512 << 20  # Far beyond any cache.
_CONTEXT = 140  # Tokens that a stream has on average while it is measured.
_KV_BYTES = 2  # K and V are kept as 16-bit floats.

_METRICS: Sequence[Metric] = (
    Metric("short_first", "short prompt, first token", "s"),
    Metric("prefill", "cold 2,000-token prompt", "tok/s", more_is_better=True),
    Metric("cold_first", "the same, first token", "s"),
    Metric("second_first", "second turn (2,000 cached), first token", "s"),
    Metric("third_first", "third turn, first token", "s"),
    Metric("decode_1", "decode, one stream", "tok/s", more_is_better=True),
    Metric("decode_4", "decode, 4 streams", "tok/s", more_is_better=True),
    Metric("decode_16", "decode, 16 streams", "tok/s", more_is_better=True),
    Metric("sixteen_rate", "16 concurrent, 64 tokens each, prefill included", "tok/s", True),
    Metric("bandwidth", "memory read", "GB/s", more_is_better=True),
    Metric("bound_share", "one stream's share of the memory's bound", "%", True, limit=65.0),
    Metric("http_rate", "16 concurrent over HTTP", "tok/s", more_is_better=True),
    Metric("http_loss", "lost from core to HTTP", "%", limit=8.0),
)


class Core:
    """Asks a model of this process, and notes what its client would."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def ask(self, text: str, max_tokens: int) -> Answer:
        return await self._answer((Message("user", text),), max_tokens)

    async def converse(self, messages: Sequence[dict[str, Any]], max_tokens: int) -> Answer:
        said = tuple(Message(m["role"], m["content"][0]["text"]) for m in messages)
        return await self._answer(said, max_tokens)

    async def ask_all(self, texts: Sequence[str], max_tokens: int) -> list[Answer]:
        return await asyncio.gather(*(self.ask(text, max_tokens) for text in texts))

    async def _answer(self, messages: tuple[Message, ...], max_tokens: int) -> Answer:
        turn = Turn(messages, sampling=Sampling(temperature=0.0), max_output_tokens=max_tokens)
        sent = time.perf_counter()
        generation = await self._model.prepare(turn)
        arrivals, text = [], []
        async for delta in generation.deltas():
            if isinstance(delta, TextDelta):
                arrivals.append(time.perf_counter())
                text.append(delta.text)
        usage = generation.usage
        return Answer(
            sent,
            tuple(arrivals),
            time.perf_counter(),
            "".join(text),
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
        )


class MemoryReader:
    """Reads a large array with several threads, as fast as the memory gives it."""

    def __init__(self, threads: int) -> None:
        self._parts = np.array_split(np.ones(_READ_BYTES // 4, np.int32), threads)

    def gigabytes_a_second(self) -> float:
        """The median of five passes: it drifts as much as what is held against it."""
        return statistics.median(self._pass() for _ in range(5))

    def _pass(self) -> float:
        # Of numpy's reductions the one that computes least: it waits for the memory alone.
        threads = [threading.Thread(target=np.max, args=(part,)) for part in self._parts]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return _READ_BYTES / 1e9 / (time.perf_counter() - began)


def bytes_per_token(gguf: Path) -> int:
    """What decoding reads for a token of one stream: each weight as it lies in the file, and K/V.

    The embedding is counted once: as the output layer it is read whole, as the input one row.
    """
    file = GGUFFile(gguf)
    meta = file.metadata
    weights = sum(int(tensor.data.nbytes) for tensor in file.tensors.values())
    head = meta["llama.embedding_length"] // meta["llama.attention.head_count"]
    cached = 2 * meta["llama.block_count"] * meta["llama.attention.head_count_kv"] * head
    return weights + int(cached) * _KV_BYTES * _CONTEXT


async def asked(asker: Asker, load: CoreLoad, name: str, seed: str) -> dict[str, float]:
    """A load's figures; none, and a sentence, where it failed."""
    try:
        return await load(asker, random.Random(f"{seed} {name}"))
    except RequestFailed as error:
        print(f"there are no figures of {name}: {error}")
        return {}


async def measure_round(
    model: Model, served: Running | None, reader: MemoryReader, token_bytes: int, seed: str
) -> dict[str, float]:
    """All figures of one round."""
    core = Core(model)
    figures = await asked(core, short, "short", seed)
    figures |= await asked(core, long, "long", seed)
    if "cold_first" in figures:
        figures["prefill"] = figures["cold_input"] / figures["cold_first"]
    before = await asyncio.to_thread(reader.gigabytes_a_second)
    figures |= await asked(core, decode(1, 128, 2), "decode1", seed)
    after = await asyncio.to_thread(reader.gigabytes_a_second)
    figures["bandwidth"] = (before + after) / 2
    if "decode_1" in figures:
        used = figures["decode_1"] * token_bytes / 1e9
        figures["bound_share"] = 100 * used / figures["bandwidth"]
    figures |= await asked(core, decode(4, 64, 1), "decode4", seed)
    figures |= await asked(core, decode(16, 96, 1), "decode16", seed)
    figures |= await asked(core, sixteen(64), "sixteen", seed)
    if served is not None:
        async with connected(served.base_url, served.server.model) as client:
            over_http = (await asked(client, sixteen(64), "sixteen", seed)).get("sixteen_rate")
        if over_http is not None and "sixteen_rate" in figures:
            figures["http_rate"] = over_http
            figures["http_loss"] = 100 * (1 - over_http / figures["sixteen_rate"])
    return figures


async def measure(arguments: argparse.Namespace, gguf: Path, served: Running | None) -> list[Any]:
    settings = Settings(model=str(gguf), threads=arguments.threads, speculate=False)
    [model] = build_models(settings, lambda step, done, size: None)
    keep_loop_responsive()
    reader, token_bytes = MemoryReader(arguments.threads), bytes_per_token(gguf)
    print(f"A token of one stream reads {token_bytes / 1e6:.1f} MB.")
    try:
        await sixteen(16)(Core(model), random.Random("warming up"))
        rounds = []
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
            seed = f"{arguments.seed} {number}"
            rounds.append(await measure_round(model, served, reader, token_bytes, seed))
            if arguments.json:
                arguments.json.write_text(json.dumps(rounds, indent=1))
        return rounds
    finally:
        await model.close()


def table(rounds: Sequence[dict[str, float]]) -> str:
    """Medians of all rounds, their ranges and their limits."""
    rows = []
    for metric in _METRICS:
        values = [figures[metric.key] for figures in rounds if metric.key in figures]
        if not values:
            continue
        median = statistics.median(values)
        limit = ""
        if metric.limit is not None:
            sign = "≥" if metric.more_is_better else "≤"
            limit = f"{sign} {metric.limit:g}: "
            limit += "met" if metric.met(median, metric.limit) else "MISSED"
        spread = f"{shown(min(values))} to {shown(max(values))}"
        rows.append([f"{metric.title}, {metric.unit}", shown(median), spread, limit])
    return markdown(["SmolLM2-135M-Instruct, Q4_1", "median", "rounds", "limit"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1, help="of the prompts' words")
    parser.add_argument("--core-only", action="store_true", help="leave HTTP out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    arguments = parser.parse_args()
    stop_servers_when_told_to_end()
    gguf = embedded.fetch(Settings().cache_dir, lambda done, size: None)
    if arguments.core_only:
        rounds = asyncio.run(measure(arguments, gguf, None))
    else:
        server = antiphon(gguf, arguments.threads, Settings().max_running, ["--no-speculate"])
        with running(server) as served:
            rounds = asyncio.run(measure(arguments, gguf, served))
    print(table(rounds))


if __name__ == "__main__":
    main()
