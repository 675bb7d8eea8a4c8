"""Who is next among those that wait: by priority, then by tenant, then by arrival."""

from collections import deque
from collections.abc import Iterator

from antiphon.engine.sequence import Sequence


class FairShares:
    """How much of the engine each tenant had, in tokens computed.

    Who comes (back) starts no lower than the one present who had least, so that nobody saves up a
    claim by being away; who had more than that is remembered until the others have caught up.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._num_present: dict[str, int] = {}

    def enter(self, tenant: str) -> None:
        """A sequence of the tenant came."""
        if tenant not in self._num_present:
            least = self._least()
            self._served[tenant] = max(self._served.get(tenant, 0.0), least)
        self._num_present[tenant] = self._num_present.get(tenant, 0) + 1

    def leave(self, tenant: str) -> None:
        """A sequence of the tenant is gone."""
        self._num_present[tenant] -= 1
        if self._num_present[tenant]:
            return
        del self._num_present[tenant]
        least = self._least() if self._num_present else float("inf")
        for name in [name for name, had in self._served.items() if had <= least]:
            if name not in self._num_present:
                del self._served[name]

    def charge(self, tenant: str, num_tokens: int) -> None:
        """So many tokens were computed for the tenant."""
        self._served[tenant] += num_tokens

    def served(self, tenant: str) -> float:
        """What the tenant had; who has least is next."""
        return self._served[tenant]

    def _least(self) -> float:
        return min((self._served[name] for name in self._num_present), default=0.0)


class FairQueue:
    """Waiting sequences. One that was set back goes before all others of its tenant."""

    def __init__(self, shares: FairShares) -> None:
        self._shares = shares
        self._queues: dict[int, dict[str, deque[Sequence]]] = {}
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Sequence]:
        for tenants in self._queues.values():
            for queue in tenants.values():
                yield from queue

    def add(self, sequence: Sequence) -> None:
        self._queue(sequence).append(sequence)
        self._num_waiting += 1

    def add_first(self, sequence: Sequence) -> None:
        self._queue(sequence).appendleft(sequence)
        self._num_waiting += 1

    def next(self) -> Sequence | None:
        """Who is to start next; stays in the queue."""
        if not self._queues:
            return None
        tenants = self._queues[max(self._queues)]
        return tenants[min(tenants, key=self._shares.served)][0]

    def remove(self, sequence: Sequence) -> None:
        request = sequence.request
        tenants = self._queues[request.priority]
        queue = tenants[request.tenant]
        if queue[0] is sequence:
            queue.popleft()
        else:
            queue.remove(sequence)
        self._num_waiting -= 1
        if not queue:
            del tenants[request.tenant]
        if not tenants:
            del self._queues[request.priority]

    def _queue(self, sequence: Sequence) -> deque[Sequence]:
        tenants = self._queues.setdefault(sequence.request.priority, {})
        return tenants.setdefault(sequence.request.tenant, deque())
