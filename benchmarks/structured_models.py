"""Models of Pydantic, made at random but always the same, as the official client sends them."""

import datetime as dt
import random
from collections.abc import Callable, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID

import openai
from pydantic import AnyUrl, BaseModel, Field, create_model
from structured_suite import NamedSchema

_NAMES = (
    *("name", "city", "age", "price", "tags", "status", "owner", "notes", "created_at", "is_open"),
    *("größe", "prénom", "имя", "都市", "名前", "ciudad", "παράδειγμα", "naïve_id", "x1", "step2"),
)
#: What only an alias can be.
_ALIASES = ("two words", "a/b~c", 'say "hi"', "emoji 😀", "日本 語", "back\\slash", "$ref", "type")
_WORDS = ("red", "green", "blau", "gelb", "赤", "青", "on hold", "n/a", "O'Brien", 'a "b"', "😀")


def made(count: int) -> list[NamedSchema]:
    """The schemas of so many models."""
    return [_made(number) for number in range(count)]


def _made(number: int) -> NamedSchema:
    rng = random.Random(f"model {number}")
    model = _model(rng, f"Model{number}", depth=0)
    schema: dict[str, Any] = openai.pydantic_function_tool(model)["function"]["parameters"]
    return NamedSchema(f"pydantic {number}", schema)


def _model(rng: random.Random, name: str, depth: int) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key in rng.sample(_NAMES, rng.randint(1, 5 if depth == 0 else 3)):
        alias = rng.choice(_ALIASES) if rng.random() < 0.1 else None
        about = "What it is, in short." if rng.random() < 0.2 else None
        if alias in {info.alias for _, info in fields.values()}:
            alias = None
        kind = _kind(rng, f"{name}{key.title()}", depth)
        fields[key] = (kind, Field(alias=alias, description=about))
    if depth == 0 and rng.random() < 0.05:
        # By the model's own name, which is looked up when it is whole.
        several = Annotated[list[name], Field(max_length=2)]  # type: ignore[valid-type]
        fields["next"] = (rng.choice((Optional[name], several)), Field())  # noqa: UP045
    return create_model(name, **fields)


def _kind(rng: random.Random, name: str, depth: int) -> Any:
    makers: Sequence[Callable[[], Any]] = (
        lambda: rng.choice((str, int, float, bool)),
        lambda: _constrained(rng),
        lambda: rng.choice((dt.datetime, dt.date, dt.time, dt.timedelta, UUID)),
        lambda: rng.choice((AnyUrl, IPv4Address, IPv6Address)),
        lambda: Literal[tuple(rng.sample(_WORDS, rng.randint(1, 4)))],
        lambda: Enum(name, {f"m{i}": word for i, word in enumerate(rng.sample(_WORDS, 3))}),
        lambda: Literal[1, 2, 3] if rng.random() < 0.5 else Literal[True, "yes", None],
    )
    if depth < 3:
        deeper: Sequence[Callable[[], Any]] = (
            lambda: _model(rng, name, depth + 1),
            lambda: Optional[_kind(rng, name, depth + 1)],  # noqa: UP045 - any kind, not only types
            lambda: Union[  # noqa: UP007
                _kind(rng, f"{name}A", depth + 1), _kind(rng, f"{name}B", depth + 1)
            ],
            lambda: _list(rng, _kind(rng, name, depth + 1)),
            lambda: tuple[_kind(rng, f"{name}A", 3), _kind(rng, f"{name}B", 3)],  # type: ignore[misc]
            lambda: _tagged(rng, name, depth),
        )
        makers = (*makers, *deeper)
    return rng.choice(makers)()


def _constrained(rng: random.Random) -> Any:
    return rng.choice(
        (
            Annotated[str, Field(min_length=1, max_length=rng.randint(2, 40))],
            Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{3,5}$")],
            Annotated[str, Field(pattern=r"^(alpha|beta)?[a-z]+ \w{1,8}$", max_length=30)],
            Annotated[int, Field(ge=0, le=rng.randint(1, 10_000))],
            Annotated[int, Field(gt=-50, lt=50, multiple_of=5)],
            Annotated[float, Field(ge=0, le=1)],
            Annotated[float, Field(gt=-273.15)],
        )
    )


def _list(rng: random.Random, kind: Any) -> Any:
    most = rng.choice((None, 1, 3, 8))
    least = rng.choice((None, 0, 1))
    return Annotated[list[kind], Field(min_length=least, max_length=most)]


def _tagged(rng: random.Random, name: str, depth: int) -> Any:
    """One of two models, told apart by a constant."""
    variants = []
    for number in range(2):
        kind = _kind(rng, f"{name}{number}", depth + 1)
        fields: dict[str, Any] = {
            "kind": (Literal[f"k{number}"], Field()),
            "value": (kind, Field()),
        }
        variants.append(create_model(f"{name}Variant{number}", **fields))
    return Annotated[Union[tuple(variants)], Field(discriminator="kind")]  # noqa: UP007
