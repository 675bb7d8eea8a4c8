"""Items that a request names instead of sending them."""

from collections.abc import Sequence
from typing import Any

from antiphon.errors import ItemNotFound
from antiphon.principal import Principal
from antiphon.responses.items import references
from antiphon.responses.refusals import shortened, told
from antiphon.store.base import NotFound, Responses


async def resolved(
    responses: Responses,
    principal: Principal,
    items: Sequence[dict[str, Any]],
    *,
    field: str = "input",
) -> list[dict[str, Any]]:
    """Complete items with what they refer to in the place of references.

    Raises `ItemNotFound` at the place of a reference in the request's `field`.
    """
    named = references(items)
    result = list(items)
    if not named:
        return result
    try:
        with told():
            found = await responses.items(principal, [name for _, name in named])
    except NotFound as error:
        place = next(place for place, name in named if name == error.what)
        raise ItemNotFound(
            f"There is no item '{shortened(error.what)}'.", param=f"{field}[{place}].id"
        ) from error
    for (place, _), item in zip(named, found, strict=True):
        result[place] = dict(item)
    return result
