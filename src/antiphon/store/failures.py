"""How a store fails, and what it refuses.

StoreError                the store is at fault
├── StoreUnavailable      it cannot be reached, is full or failed; trying again may help
└── Corrupt               what was stored cannot be read any more
Refused                   what is asked for cannot be had
├── NotFound              unknown, foreign, deleted or expired
├── StillActive           the response is queued or running
├── NotContinuable        the response failed or was cancelled
├── ConversationBusy      another response is being made in the conversation
├── KeyReused             the idempotency key was used with another body
├── TooDeep               the chain of responses is too long
├── TooLarge              the response and its history are too many bytes
└── TooMany               a limit on records, bytes or active runs is reached
LeaseLost                 another process has taken the run over
"""


class StoreError(Exception):
    """The store is at fault."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is full or has failed. Trying again may help."""


class Corrupt(StoreError):
    """What was stored cannot be read any more. It is never made up again."""


class Refused(Exception):
    """What is asked for cannot be had."""


class NotFound(Refused):
    """It is unknown, belongs to another, was deleted or has expired. `what` is its id."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class StillActive(Refused):
    """The response is queued or running."""


class NotContinuable(Refused):
    """The response failed or was cancelled."""


class ConversationBusy(Refused):
    """Another response is being made in the conversation."""


class KeyReused(Refused):
    """The idempotency key was used with another body."""


class TooDeep(Refused):
    """The chain of responses is too long. `limit` is the longest there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooLarge(Refused):
    """The response and its history are too many bytes. `limit` is the most there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooMany(Refused):
    """A limit is reached: `what` names it, such as `active responses of this key`."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit


class LeaseLost(Exception):
    """Another process has taken the run over. Nothing was written."""
