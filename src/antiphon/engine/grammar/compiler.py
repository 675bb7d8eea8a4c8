"""Compiles grammars, away from everything else."""

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits

from antiphon.engine.grammar.errors import GrammarRefused, told
from antiphon.engine.grammar.matcher import SLOW_MASK_SECONDS, GrammarMatcher
from antiphon.engine.grammar.vocabulary import Vocabulary

#: Compilers descend as deep as rules refer to one another. In this much memory, which is taken up
#: only as far as it is used, a text of 4 MiB does not run out of it.
_STACK_BYTES = 1 << 30
_KEPT, _KEPT_BYTES = 128, 8 << 20
#: How many times as long as on a free processor a thread may take on a busy machine.
_BUSIEST = 10
_stack_size = threading.Lock()


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What a grammar may cost: its length, the time to compile it, and work and memory of one mask.

    `seconds` are of a processor, where that can be told, so that a busy machine refuses no more.
    llguidance counts the work: 14 units of `mask_fuel` or 20 of `mask_items` are a microsecond, and
    a lexer's state is 1 to 2 kB. `row_items` is how many ways there may be to go on.
    """

    num_bytes: int = 4 << 20
    seconds: float = 5.0
    mask_fuel: int = 100_000
    mask_items: int = 10_000
    row_items: int = 1000
    lexer_states: int = 50_000
    symbols: int = 500_000


class GrammarCompiler:
    """Makes grammars of their texts: llguidance's Lark.

    Two are compiled at once; the latest are kept. Close it.
    """

    def __init__(self, vocabulary: Vocabulary, limits: GrammarLimits | None = None) -> None:
        self._vocabulary = vocabulary
        self._limits = limits or GrammarLimits()
        self._compiled: OrderedDict[bytes, Future[LLMatcher]] = OrderedDict()
        self._sizes: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="grammars")

    async def compile(self, grammar: str, *, keep: bool = True) -> GrammarMatcher:
        """A grammar at its beginning. The caller's own. Unless it is to `keep`, nobody will ask for
        it again. Raises `GrammarRefused`."""
        data = grammar.encode("utf-8", "replace")
        if len(data) > self._limits.num_bytes:
            raise GrammarRefused(f"it has more than {self._limits.num_bytes} bytes")
        compiled = self._find(data, grammar) if keep else self._begin(grammar)
        matcher = await asyncio.shield(asyncio.wrap_future(compiled))
        return GrammarMatcher(matcher.deep_copy())

    async def accepts(self, grammar: str, text: str) -> bool:
        """Whether a whole text is one of a grammar's. Raises `GrammarRefused`."""
        matcher = await self.compile(grammar)
        return await asyncio.to_thread(matcher.reads, self._vocabulary.tokenizer.tokenize_str(text))

    def close(self) -> None:
        """Compile no more. Waits for what is being compiled."""
        self._closed = True
        self._threads.shutdown()

    def _find(self, data: bytes, grammar: str) -> "Future[LLMatcher]":
        key = hashlib.sha256(data).digest()
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                found = self._compiled[key] = self._begin(grammar)
                self._sizes[key] = len(data)
            self._compiled.move_to_end(key)
            while len(self._compiled) > _KEPT or sum(self._sizes.values()) > _KEPT_BYTES:
                oldest, _ = self._compiled.popitem(last=False)
                del self._sizes[oldest]
            return found

    def _begin(self, grammar: str) -> "Future[LLMatcher]":
        compiled: Future[LLMatcher] = Future()
        self._threads.submit(self._compile, grammar, compiled)
        return compiled

    def _compile(self, grammar: str, compiled: "Future[LLMatcher]") -> None:
        if self._closed:
            compiled.set_exception(GrammarRefused("the model is being closed"))
            return
        result: list[LLMatcher | Exception] = []
        seconds = self._limits.seconds
        thread = _deep_thread(lambda: result.append(self._attempt(grammar)))
        _join(thread, seconds)
        if not result:
            compiled.set_exception(GrammarRefused(f"it takes more than {seconds:g} s to compile"))
            thread.join()  # So that there are never more than two.
            return
        (outcome,) = result
        if isinstance(outcome, Exception):
            compiled.set_exception(outcome)
        else:
            compiled.set_result(outcome)

    def _attempt(self, grammar: str) -> LLMatcher | Exception:
        try:
            limits = self._limits
            matcher = LLMatcher(
                self._vocabulary.tokenizer,
                grammar,
                log_level=0,
                limits=LLParserLimits(
                    step_lexer_fuel=limits.mask_fuel,
                    step_max_items=limits.mask_items,
                    max_items_in_row=limits.row_items,
                    max_lexer_states=limits.lexer_states,
                    max_grammar_size=limits.symbols,
                    verbose_errors=False,
                ),
            )
            if not matcher.is_error():
                started = time.thread_time()
                matcher.compute_bitmask()  # What allows nothing shows here.
                if time.thread_time() - started > 2 * SLOW_MASK_SECONDS:
                    return GrammarRefused("what it allows is too much work to find out")
            if matcher.is_error():
                return GrammarRefused(told(matcher.get_error()))
            return matcher
        except Exception as error:
            return error


def _join(thread: threading.Thread, seconds: float) -> None:
    """Wait for a thread's end, until it has taken so many seconds of a processor."""
    taken = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    until = time.monotonic() + seconds * (_BUSIEST if taken.exists() else 1)
    left = seconds
    while left > 0 and time.monotonic() < until:
        thread.join(left)
        if not thread.is_alive():
            return
        try:
            left = seconds - int(taken.read_text().split()[0]) / 1e9
        except OSError:  # It has just ended, or nothing is told of threads here.
            return


def _deep_thread(work: Callable[[], object]) -> threading.Thread:
    """A running thread with a large stack."""
    thread = threading.Thread(target=work, name="grammar", daemon=True)
    with _stack_size:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread
