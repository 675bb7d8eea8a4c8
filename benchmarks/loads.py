"""What the servers are asked to do, and what is measured of it.

A load sends its requests through one client and returns figures by name. Its texts come from a
random generator, so that every server is asked the same in a round and no round repeats another:
a prefix is cached only where the load itself sent it before.
"""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence

from client import (
    Answer,
    Asker,
    Chunk,
    Client,
    RequestFailed,
    decode_rate,
    median_first_token,
    message,
    percentile,
    read_answer,
    read_part,
    throughput,
)

Figures = dict[str, float]
Load = Callable[[Client, random.Random], Awaitable[Figures]]
#: A load that needs no connection, only answers.
CoreLoad = Callable[[Asker, random.Random], Awaitable[Figures]]

# Each is one token of SmolLM2's vocabulary, so that a prompt's length is known beforehand.
_WORDS = (
    "the sea river stone light garden window paper music engine harbor winter summer red green "
    "silver old new small large quick quiet bright train road bridge letter story forest market "
    "island mountain copper village captain farmer"
).split()
_ASKED = "Tell me a very long story about a traveller who sees all of these."
_FRAME_TOKENS = 47  # `_ASKED`, and what the chat template puts around a message.

#: The smallest `max_output_tokens` of the Responses API.
FEW_TOKENS = 16


def words(source: random.Random, number: int) -> str:
    """So many words, which make no sense."""
    return " ".join(source.choice(_WORDS) for _ in range(number))


def prompt(source: random.Random, tokens: int = 75) -> str:
    """A request for a long answer, which with its template is about so many tokens.

    It is one that the model answers with a tale of its own. One that it answers by repeating the
    words would flatter a server that guesses tokens ahead from the prompt.
    """
    # The words come first: a beginning that all prompts share would be cached.
    return f"{words(source, tokens - _FRAME_TOKENS)}. {_ASKED}"


async def short(client: Asker, source: random.Random) -> Figures:
    """First token of a short prompt, alone."""
    answers = [await client.ask(prompt(source), FEW_TOKENS) for _ in range(3)]
    return {"short_first": median_first_token(answers)}


async def long(client: Asker, source: random.Random) -> Figures:
    """First token of a cold prompt of 2,000 tokens, and of two more turns of that conversation."""
    turns = [prompt(source, 2000), "Now tell me what else there is to know.", "And what then?"]
    figures: Figures = {}
    messages = []
    for name, text in zip(("cold", "second", "third"), turns, strict=True):
        messages.append(message("user", text))
        answer = await client.converse(messages, FEW_TOKENS)
        messages.append(message("assistant", answer.text))
        figures[f"{name}_first"] = answer.first_token_seconds
        figures[f"{name}_input"] = answer.input_tokens
    return figures


def sixteen(tokens: int = 24) -> CoreLoad:
    """Sixteen short prompts at once, so many tokens of answer each."""

    async def load(client: Asker, source: random.Random) -> Figures:
        answers = await client.ask_all([prompt(source) for _ in range(16)], tokens)
        return {
            "sixteen_rate": throughput(answers),
            "sixteen_first": median_first_token(answers),
        }

    return load


def decode(streams: int, tokens: int, repeats: int) -> CoreLoad:
    """Decoding alone: the rate at which so many streams grow together after their first tokens."""

    async def load(client: Asker, source: random.Random) -> Figures:
        rates = []
        for _ in range(repeats):
            texts = [prompt(source) for _ in range(streams)]
            rates.append(decode_rate(await client.ask_all(texts, tokens)))
        return {f"decode_{streams}": statistics.median(rates)}

    return load


async def sixty_four(client: Client, source: random.Random) -> Figures:
    """Sixty short prompts at once; with every twelve of them that end, a long one arrives."""
    shorts = [prompt(source) for _ in range(60)]
    longs = [prompt(source, 2000) for _ in range(4)]
    collected: list[list[Chunk]] = []

    def send(text: str, tokens: int) -> "asyncio.Task[float]":
        collected.append([])
        return asyncio.create_task(client.collect([message("user", text)], tokens, collected[-1]))

    tasks = [send(text, 24) for text in shorts]
    for number, ended in enumerate(asyncio.as_completed(tuple(tasks)), 1):
        await ended
        if number % 12 == 0 and longs:
            tasks.append(send(longs.pop(), FEW_TOKENS))
    sent = await asyncio.gather(*tasks)
    answers = [read_answer(*one) for one in zip(sent, collected, strict=True)]
    gaps = [gap for answer in answers for gap in answer.gaps()]
    return {
        "sixty_four_rate": throughput(answers),
        "sixty_four_gap_p99": percentile(gaps, 0.99),
    }


async def stall(client: Client, source: random.Random) -> Figures:
    """Gaps between the tokens of sixteen streams while a prompt of 4,000 tokens is computed."""
    collected: list[list[Chunk]] = [[] for _ in range(16)]
    streams = [
        asyncio.create_task(client.collect([message("user", prompt(source))], 600, chunks))
        for chunks in collected
    ]
    try:
        while not all(_pieces(chunks) >= 4 for chunks in collected):
            await asyncio.sleep(0.05)
            _raise_failure(streams)
        answer = await client.ask(prompt(source, 4000), FEW_TOKENS)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    start, end = answer.sent, answer.arrivals[0]
    gaps = gaps_between([read_part(0.0, chunks) for chunks in collected], start, end)
    median = statistics.median(gaps)
    return {
        "stall_median": median,
        "stall_p99": percentile(gaps, 0.99),
        "stall_ratio": percentile(gaps, 0.99) / median,
        "stall_first": answer.first_token_seconds,
        "stall_gaps": len(gaps),
    }


def gaps_between(answers: Sequence[Answer], start: float, end: float) -> list[float]:
    """All gaps of several answers that touch a time. Raises `RequestFailed` where there is none."""
    gaps = [gap for answer in answers for gap in answer.gaps(start, end)]
    if not gaps:
        raise RequestFailed("no stream was decoding while the long prompt was computed")
    return gaps


def _pieces(chunks: Sequence[Chunk]) -> int:
    return sum(data.count(b'response.output_text.delta"') for _, data in chunks)


def _raise_failure(tasks: Sequence["asyncio.Task[float]"]) -> None:
    for task in tasks:
        if task.done():
            task.result()


#: Every load by the name it is asked for by, in the order they run.
LOADS: Mapping[str, Load] = {
    "short": short,
    "long": long,
    "decode1": decode(1, 128, 2),
    "decode4": decode(4, 64, 1),
    "decode16": decode(16, 96, 1),
    "sixteen": sixteen(),
    "sixtyfour": sixty_four,
    "stall": stall,
}
