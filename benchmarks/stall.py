"""The event loop's longest stall while a prompt of 1 MB is tokenised and 8 streams generate.

    python benchmarks/stall.py

Serves the embedded model with a context large enough that the prompt is not refused before it is
tokenised. A timer on the server's loop asks to be called every millisecond; a stall is how much
later than that it is called. The prompt is counted several times, as whole text and as 2,000
messages, while 8 streams are read. Limit: 25 ms.
"""

import multiprocessing
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import httpx
from common import serving
from loop_watch import LoopWatch

from antiphon.app import build
from antiphon.keys import KeyFile, KeyRing
from antiphon.models import embedded
from antiphon.models.build import build_models
from antiphon.settings import ModelSettings, Settings

_STREAMS = 8
_WORDS = "The quick brown fox jumps over the lazy dog, again and again. "


def make_app(longest: "Synchronized[float]") -> Any:
    path = str(embedded.fetch(Settings().cache_dir, lambda done, size: None))
    settings = Settings(models={"large": ModelSettings(path=path, context_window=1_000_000)})
    models = build_models(settings, lambda step, done, size: None)
    app = build(settings, models, KeyRing(KeyFile(Path("/nonexistent")))).asgi
    return LoopWatch(app, longest)


def stream(base_url: str, stop: threading.Event) -> None:
    body = {"input": "Write a long story.", "stream": True, "temperature": 1}
    with httpx.stream("POST", f"{base_url}/v1/responses", json=body, timeout=None) as answer:
        for _ in answer.iter_raw():
            if stop.is_set():
                return


def main() -> None:
    longest = multiprocessing.Value("d", 0.0)
    whole: Any = _WORDS * (1_000_000 // len(_WORDS))
    parts = [{"role": "user", "content": whole[i : i + 500]} for i in range(0, len(whole), 500)]
    with serving(make_app, longest) as peer:
        stop = threading.Event()
        threads = [
            threading.Thread(target=stream, args=(peer.base_url, stop)) for _ in range(_STREAMS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(8)
        longest.value = 0.0
        time.sleep(10)
        print(f"{_STREAMS} streams alone            longest stall {longest.value * 1000:5.1f} ms")
        for name, value in (("1 MB of text", whole), (f"{len(parts)} messages", parts)):
            for _ in range(5):
                longest.value = 0.0
                started = time.perf_counter()
                answer = httpx.post(
                    f"{peer.base_url}/v1/responses/input_tokens", json={"input": value}, timeout=300
                )
                seconds = time.perf_counter() - started
                print(
                    f"{name:<16} {answer.json()['input_tokens']:>8} tokens in {seconds:4.1f} s   "
                    f"longest stall {longest.value * 1000:5.1f} ms"
                )
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
