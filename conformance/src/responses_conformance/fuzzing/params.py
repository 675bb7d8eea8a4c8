"""Whether what an error names as `param` is a place in a request."""

import re
from collections.abc import Collection
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from responses_conformance.exchange import Exchange
from responses_conformance.schemas import document
from responses_conformance.texts import parsed

#: Places that no part of a request is named after.
_ELSEWHERE = frozenset({"api_key", "body"})
_INDEX = re.compile(r"\[(\d+)\]")


def place_exists(param: str, exchange: Exchange, names: Collection[str]) -> bool:
    """Whether a `param` such as `input[0].id` leads to something in the request, or to a field that
    is missing where it leads; `names` are those of all fields and parameters that could be."""
    query = parse_qs(urlsplit(exchange.path).query, keep_blank_values=True)
    asked = {name.partition("[")[0] for name in query}
    if param in _ELSEWHERE or param in names or param.partition("[")[0] in asked:
        return True
    try:
        body = parsed(exchange.request)
    except ValueError:
        return False
    return _leads(body, param if param.startswith("[") else f".{param}", names)


def _leads(value: Any, rest: str, names: Collection[str]) -> bool:
    """Whether the rest of a place leads on from a value. Names of fields may hold anything, dots
    included, so all that fit are tried."""
    if not rest:
        return True
    if isinstance(value, list):
        index = _INDEX.match(rest)
        if index is None or int(index[1]) >= len(value):
            return False
        return _leads(value[int(index[1])], rest[index.end() :], names)
    if not isinstance(value, dict) or not rest.startswith("."):
        return False
    rest = rest[1:]
    # What is missing is the last of the place, and one that the document knows.
    return rest in names or any(
        _leads(inner, rest[len(name) :], names)
        for name, inner in value.items()
        if rest.startswith(name) and rest[len(name) : len(name) + 1] in ("", ".", "[")
    )


@cache
def known_names() -> frozenset[str]:
    """The names of all fields and parameters of the suite's own document."""
    return names_of(document())


def names_of(content: Any) -> frozenset[str]:
    """The names of all fields and parameters that an OpenAPI document tells of."""
    names: set[str] = set()
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if isinstance(node.get("properties"), dict):
                names.update(node["properties"])
            if isinstance(node.get("name"), str) and isinstance(node.get("in"), str):
                names.add(node["name"])
            waiting += node.values()
    return frozenset(names)
