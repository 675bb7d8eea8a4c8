"""Stored items as lists that clients page through."""

from typing import cast

from antiphon.responses.replay import shown
from antiphon.spec.types import ItemList, ItemResource
from antiphon.store.records import Page


def item_list(page: Page) -> ItemList:
    """A page as the API shows it. The next one begins after its last item."""
    items = [cast(ItemResource, shown(item)) for item in page.items]
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else "",
        "last_id": items[-1]["id"] if items else "",
        "has_more": page.has_more,
    }
