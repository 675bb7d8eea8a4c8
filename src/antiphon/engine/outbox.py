"""What a step has to tell, handed to each event loop in one go."""

import asyncio

from antiphon.engine.sequence import EngineStream, TokenOutput

_Letters = list[tuple[EngineStream, TokenOutput | BaseException | None]]


class Outbox:
    """Collects outputs on the engine's thread. Waking an event loop costs more than telling it."""

    def __init__(self) -> None:
        self._letters: dict[asyncio.AbstractEventLoop, _Letters] = {}

    def put(self, stream: EngineStream, output: TokenOutput | BaseException) -> None:
        """Keep an output until `flush`. Nobody reads a stream that is cancelled."""
        if not stream.cancelled:
            self._letters.setdefault(stream.loop, []).append((stream, output))

    def let_go(self, stream: EngineStream) -> None:
        """Tell, at `flush`, that nothing is held for a stream any more."""
        self._letters.setdefault(stream.loop, []).append((stream, None))

    def flush(self) -> None:
        """Hand over all that was put in."""
        waiting, self._letters = self._letters, {}
        for loop, letters in waiting.items():
            try:
                loop.call_soon_threadsafe(_deliver, letters)
            except RuntimeError:  # The loop is closed: nobody is left to read.
                for stream, _ in letters:
                    stream.cancel()


def _deliver(letters: _Letters) -> None:
    for stream, output in letters:
        if output is None:
            stream.released.set()
        else:
            stream.receive(output)
