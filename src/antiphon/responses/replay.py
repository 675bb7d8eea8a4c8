"""Reasoning that comes back to the model: opened where it was sealed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from antiphon.errors import InvalidEncryptedContent
from antiphon.principal import Principal
from antiphon.store.records import ItemBody


class Unsealed(Protocol):
    """What was sealed: the text, and the family of the model that thought it."""

    @property
    def text(self) -> str: ...
    @property
    def family(self) -> str: ...


class Sealer(Protocol):
    """Opens what was sealed for an owner. Raises `InvalidEncryptedContent` at `param`."""

    def open(self, principal: Principal, sealed: str, *, param: str) -> Unsealed: ...


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
    return item.get("encrypted_content") if item["type"] == "reasoning" else None
