"""What the engine asks of whatever keeps the state of sequences: keys and values, or snapshots."""

from typing import Any, Protocol

from antiphon.engine.sequence import Sequence


class SequenceCache(Protocol):
    """Keeps what is computed of sequences, and finds prefixes that were computed before.

    Used by the engine's thread alone.
    """

    def begin(self, sequence: Sequence) -> None:
        """Find the longest prefix of a sequence that is kept, and take hold of it.

        Sets `num_computed`, which stays below the number of tokens: the last one is always
        computed. Also for a sequence that was set back to the start (`release`) and comes again.
        """
        ...

    def reserve(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make room for tokens up to `num_computed + num_tokens`. False, and nothing is changed, if
        there is none; then somebody else must be released first."""
        ...

    def publish(self, sequence: Sequence) -> None:
        """After a step: what was computed up to `num_computed` may be found by others."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Let go of what a sequence holds and set `num_computed` to 0. What was published may be
        found until its room is needed."""
        ...

    def fits(self, num_tokens: int) -> bool:
        """Whether a sequence of so many tokens can ever be held."""
        ...

    def stats(self) -> dict[str, Any]:
        """How full it is, for `GET /v1/status` and the metrics."""
        ...

    def close(self) -> None:
        """Put away what is to outlive the process. For the thread that closes the engine."""
        ...
