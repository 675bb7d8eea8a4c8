"""Tokenizers of a few hundred tokens, a Llama of two layers, and a runner that says what it is
told: models small enough to know everything about."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from collections.abc import Sequence as Tokens
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HubTokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from antiphon.engine.block_manager import BlockManager
from antiphon.engine.engine import Engine, EngineOptions
from antiphon.engine.runners.base import ModelRunner, Scores, Segment
from antiphon.engine.sampler import Sampler, SampleRow
from antiphon.engine.sequence import SampledToken, Sequence
from antiphon.engine.tokenizer import PromptTokenizer
from antiphon.formats.family import Family
from antiphon.formats.template import ChatTemplate
from antiphon.models.base import Generation, ModelDefaults
from antiphon.models.local import LocalModel
from antiphon.turn import Delta, Message, Sampling, TextDelta, TokenUsage, Turn

CHATML = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

BYTE_LEVEL_CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SENTENCEPIECE_CONTROLS = ("<unk>", "<s>", "</s>")

Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end; what hangs fails."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


# --- tokenizers ---


def byte_level_tokenizer(*words: str) -> HubTokenizer:
    """Byte-level BPE, as GPT-2's: all bytes, some words, and tokens that end inside characters.

    No merges lead to `words`.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _merges(
        "h e|l l|he ll|hell o|Ġ w|o r|Ġw or|l d|Ġwor ld|u s|e r|us er|Ċ Ċ|Ċ ĊĊ|Ġ Ġ|i m|im _|e n"
        "|en d|a s|as s|ass i|s t|assi st|assist a|n t|assista nt|ð Ł|ðŁ ĺ|Ģ Ã|Ã ©|s y"
        "|sy st|e m|syst em"
    )
    vocabulary = [*alphabet, *("".join(merge) for merge in merges), *words]
    tokenizer = HubTokenizer(
        models.BPE(vocab={token: n for n, token in enumerate(vocabulary)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in BYTE_LEVEL_CONTROLS])
    return tokenizer


def sentencepiece_tokenizer() -> HubTokenizer:
    """BPE with bytes to fall back on, as Llama 2's: spaces are `▁`, and one opens every text."""
    merges = _merges(
        "▁ h|▁h e|l l|▁he ll|▁hell o|▁ w|o r|▁w or|l d|▁wor ld|▁ ▁|u s|e r|us er|日 本"
    )
    letters = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?<>|_/é日本"
    vocabulary = [
        *SENTENCEPIECE_CONTROLS,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *letters,
        *("".join(merge) for merge in merges),
    ]
    tokenizer = HubTokenizer(
        models.BPE(
            vocab={token: n for n, token in enumerate(vocabulary)},
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme="first", split=False
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SENTENCEPIECE_CONTROLS]
    )
    return tokenizer


def _merges(written: str) -> list[tuple[str, str]]:
    pairs = [merge.split(" ") for merge in written.split("|")]
    return [(first, second) for first, second in pairs]


def byte_tokens(tokenizer: PromptTokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    by_bytes = {tokenizer.bytes_of(number): number for number in range(tokenizer.num_tokens)}
    return [by_bytes[bytes([byte])] for byte in data]


# --- models ---


def llama_config(**changes: Any) -> LlamaConfig:
    tokenizer = byte_level_tokenizer()
    values: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        # Larger than usual, so that a random model has clear preferences.
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        "bos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "eos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        **changes,
    }
    return LlamaConfig(**values)


@cache
def tiny_llama() -> LlamaForCausalLM:
    """A random model, always the same. Not to be changed."""
    return new_llama(llama_config())


def new_llama(config: LlamaConfig) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        module = LlamaForCausalLM(config)
        # Norms of ones would hide that one is used for another.
        for name, weight in module.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(weight, 1.0, 0.2)
    return module.eval()


def save(folder: Path, *, template: str | None = CHATML, **generation: Any) -> Path:
    """The tiny Llama as transformers keeps it."""
    transformers_logging.disable_progress_bar()
    tiny_llama().save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=template,
    )
    tokenizer.save_pretrained(folder)
    # As a model's author writes it; transformers refuses to save some that it reads.
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


class WholeRunner:
    """Runs a module over all of a sequence's tokens in every step: slow, and without a cache that
    could be wrong. `before_step` is called with the segments of each step, on the engine's thread.
    """

    path = "universal"
    reason = "It is for tests."
    num_blocks = 0
    rewinds = True

    def __init__(
        self, module: Any, *, before_step: Callable[[list[Segment]], None] = lambda segments: None
    ) -> None:
        self._module = module
        self._before_step = before_step
        self.vocab_size = int(module.config.vocab_size)

    def forward(self, segments: list[Segment]) -> Scores:
        self._before_step(segments)
        rows = [np.zeros((0, self.vocab_size), np.float32), *map(self._scores, segments)]
        return np.concatenate(rows)

    def _scores(self, segment: Segment) -> Scores:
        tokens = [*segment.sequence.tokens[: segment.start], *segment.tokens.tolist()]
        with torch.inference_mode():
            logits = self._module(torch.tensor([tokens]), use_cache=False).logits[0]
        scores: Scores = logits[len(tokens) - segment.num_scores :].float().numpy()
        return scores

    def stats(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class ScriptedRunner:
    """Draws the tokens it is told, whatever the prompt: a model runner and its sampler in one. An
    exception in a token's place is raised by the step.

    `before_step` is called on the engine's thread with the number of the sequence, in the order in
    which they first ran, and how many tokens were made of it. Every prompt is one step.
    """

    path = "universal"
    reason = "It is told what to say."
    vocab_size = 512
    num_blocks = 0
    rewinds = True

    def __init__(
        self,
        *scripts: Tokens[int | SampledToken | Exception],
        before_step: Callable[[int, int], None] = lambda sequence, step: None,
    ) -> None:
        self.steps: list[tuple[int, int]] = []
        self.prompts: list[list[int]] = []
        self._scripts = scripts
        self._before_step = before_step
        self._numbers: dict[Sequence, int] = {}

    def forward(self, segments: list[Segment]) -> Scores:
        for sequence in [segment.sequence for segment in segments]:
            if sequence not in self._numbers:
                self._numbers[sequence] = len(self._numbers)
                self.prompts.append(list(sequence.request.tokens))
            number, step = self._numbers[sequence], sequence.num_generated
            self.steps.append((number, step))
            self._before_step(number, step)
            told = self._told(sequence)
            if isinstance(told, Exception):
                raise told
        return np.zeros((sum(segment.num_scores for segment in segments), 1), np.float32)

    def sample(self, scores: Scores, rows: list[SampleRow]) -> list[SampledToken]:
        told = [self._told(row.sequence) for row in rows]
        return [one if isinstance(one, SampledToken) else SampledToken(int(one)) for one in told]

    def _told(self, sequence: Sequence) -> Any:
        script = self._scripts[min(self._numbers[sequence], len(self._scripts) - 1)]
        return script[sequence.num_generated % len(script)]

    def stats(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


@contextmanager
def engine(
    runner: Any = None, *, num_blocks: int = 4096, sampler: Any = None, **options: Any
) -> Iterator[Engine]:
    """An engine, by default of the tiny Llama and of at most eight sequences at once."""
    running: ModelRunner = runner or WholeRunner(tiny_llama())
    if sampler is None:
        sampler = running if hasattr(running, "sample") else Sampler(running.vocab_size, None)
    cache = BlockManager(running.num_blocks or num_blocks, "tiny")
    wanted = {"max_running": 8, "max_chunk": 4096, "speculate": False, **options}
    started = Engine(running, cache, sampler, EngineOptions(**wanted))
    try:
        yield started
    finally:
        started.close()
        assert not {"engine", "watchdog"} & {thread.name for thread in threading.enumerate()}
        assert cache.stats()["used_blocks"] == 0


@contextmanager
def local_model(
    runner: Any = None,
    *,
    tokenizer: HubTokenizer | None = None,
    template: str = CHATML,
    context_window: int = 256,
    stop_tokens: frozenset[int] = frozenset(),
    dialect: str | None = None,
    **options: Any,
) -> Iterator[LocalModel]:
    """A local model, by default the tiny Llama with its byte-level tokenizer and ChatML."""
    prompt_tokenizer = PromptTokenizer(tokenizer or byte_level_tokenizer())
    chat_template = ChatTemplate(
        template,
        variables={"bos_token": "<s>", "eos_token": "</s>"},
        controls=list(prompt_tokenizer.controls.values()),
    )
    with engine(runner, **options) as started:
        model = LocalModel(
            "tiny",
            started,
            prompt_tokenizer,
            Family(chat_template, dialect),
            context_window=context_window,
            stop_tokens=stop_tokens,
            defaults=ModelDefaults(),
        )
        yield model
        asyncio.run(model.close())


# --- what they say ---


def ask(text: str, *, max_output_tokens: int | None = 12, **options: Any) -> Turn:
    """A turn of one user message; options that `Turn` does not know are of its sampling."""
    turn_options = {
        name: options.pop(name) for name in ("instructions", "top_logprobs") if name in options
    }
    return Turn(
        (Message("user", text),),
        sampling=Sampling(**options),
        max_output_tokens=max_output_tokens,
        **turn_options,
    )


class Said(tuple[Delta, ...]):
    """All that a generation said, and its usage at the end."""

    usage: TokenUsage

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self if isinstance(delta, TextDelta))

    @property
    def logprobs(self) -> list[Any]:
        return [one for delta in self if isinstance(delta, TextDelta) for one in delta.logprobs]


async def hear(generation: Generation) -> Said:
    """A generation to its end."""
    said = Said([delta async for delta in generation.deltas()])
    said.usage = generation.usage
    return said


async def answer(model: Any, turn: Turn) -> Said:
    return await hear(await model.prepare(turn))


def answers(model: Any, turns: Mapping[str, Turn]) -> dict[str, Said]:
    """The answers to several turns, all at once."""

    async def together() -> list[Said]:
        return await asyncio.gather(*(answer(model, turn) for turn in turns.values()))

    return dict(zip(turns, run(together()), strict=True))
