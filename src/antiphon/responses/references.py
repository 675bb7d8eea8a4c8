"""Items that a request names instead of sending them."""

from collections.abc import Collection, Sequence
from typing import Any

from antiphon.errors import InvalidValue, ItemNotFound
from antiphon.principal import Principal
from antiphon.responses.items import references
from antiphon.responses.refusals import shortened, told
from antiphon.store.base import Responses
from antiphon.store.failures import NotFound


async def resolved(
    responses: Responses,
    principal: Principal,
    items: Sequence[dict[str, Any]],
    *,
    field: str = "input",
    bare: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Complete items with what they refer to in the place of references.

    Raises `ItemNotFound` at the place of a reference in the request's `field`, and `InvalidValue`
    where it came as reasoning, whose places are `bare`.
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
        if place in bare:
            raise reasoning_not_found(error.what, place, field=field) from error
        raise ItemNotFound(
            f"There is no item '{shortened(error.what)}'.", param=f"{field}[{place}].id"
        ) from error
    for (place, _), item in zip(named, found, strict=True):
        result[place] = dict(item)
    return result


def reasoning_not_found(item_id: str, place: int, *, field: str = "input") -> InvalidValue:
    """The error for reasoning that there is nothing of but its id."""
    return InvalidValue(
        f"Referenced reasoning item '{shortened(item_id)}' was not found or has expired. Send its "
        "content or its encrypted content.",
        param=f"{field}[{place}].id",
    )
