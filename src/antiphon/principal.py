"""Who calls."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of a request and of whatever it stores.

    `id` is that of the key, not the key itself; it is safe to log.
    """

    id: str


#: Everybody, on a server without keys.
ANONYMOUS = Principal("anonymous")
