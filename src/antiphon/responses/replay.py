"""Reasoning that comes back to the model: opened where it was sealed.

A stored item that shows its caller neither its reasoning nor the sealed form still has the latter,
in a field of its own that is stored and never shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from antiphon.errors import InvalidEncryptedContent
from antiphon.principal import Principal
from antiphon.spec.types import Response
from antiphon.store.records import ItemBody

#: The field of a stored item that holds sealed reasoning which its caller did not ask for.
KEPT_SEALED = "kept_encrypted_content"


class Unsealed(Protocol):
    """What was sealed: the text, and the family of the model that thought it."""

    @property
    def text(self) -> str: ...
    @property
    def family(self) -> str: ...


class Sealer(Protocol):
    """Opens what was sealed for an owner. Raises `InvalidEncryptedContent` at `param`."""

    def open(self, principal: Principal, sealed: str, *, param: str) -> Unsealed: ...


def has_sealed(items: Iterable[Mapping[str, Any]]) -> bool:
    """Whether there is sealed reasoning among complete items."""
    return any(_sealed(item) for item in items)


def shown(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored item as its owner may see it."""
    if KEPT_SEALED not in item:
        return item
    return {name: value for name, value in item.items() if name != KEPT_SEALED}


def shown_response(response: Response) -> Response:
    """A stored response as its owner may see it."""
    return cast(Response, {**response, "output": [shown(item) for item in response["output"]]})


def check_sealed(
    sealer: Sealer,
    principal: Principal,
    items: Sequence[Mapping[str, Any]],
    *,
    field: str = "input",
) -> None:
    """Raise `InvalidEncryptedContent` at the place of sealed reasoning that cannot be opened.

    `items` are those of the request itself: what is stored was taken before, and its key may be
    gone since.
    """
    for place, item in enumerate(items):
        if sealed := _sealed(item):
            sealer.open(principal, sealed, param=f"{field}[{place}].encrypted_content")


def readable(
    sealer: Sealer, principal: Principal, family: str, items: Iterable[ItemBody]
) -> list[ItemBody]:
    """Items as a model of `family` is shown them: reasoning is taken from its sealed form, where it
    has one. That of another family's model is left out, and so is what cannot be opened any more;
    of the latter the text remains, if there is one."""
    return [_readable(sealer, principal, family, item) for item in items]


def _readable(sealer: Sealer, principal: Principal, family: str, item: ItemBody) -> ItemBody:
    sealed = _sealed(item)
    if not sealed:
        return item
    try:
        found = sealer.open(principal, sealed, param="input")
    except InvalidEncryptedContent:
        return item
    texts = [found.text] if found.family == family and found.text else []
    return {**item, "content": [{"type": "reasoning_text", "text": text} for text in texts]}


def _sealed(item: Mapping[str, Any]) -> str | None:
    if item.get("type") != "reasoning":  # A reference may have no type.
        return None
    return item.get("encrypted_content") or item.get(KEPT_SEALED)
